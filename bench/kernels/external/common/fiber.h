// Heddle's fibers from C: a fiber measures.
#pragma once
#define NO_SETUP
#include "bench.h"
#include <heddle.h>

struct bench_arguments {
    int argc;
    char **argv;
};

static void *bench_fiber(void *given) {
    struct bench_arguments *arguments = given;
    return (void *)(intptr_t)bench_main(arguments->argc, arguments->argv);
}

static int fiber_main(int argc, char **argv) {
    struct bench_arguments arguments = {argc, argv};
    heddle_options_t options = HEDDLE_OPTIONS_INIT;
    heddle_fiber_attr_t attr = HEDDLE_FIBER_ATTR_INIT;
    heddle_fiber_t fiber;
    void *result;
    if (argc < 2) return 2;
    options.workers = atoi(argv[1]);
    attr.stack_size = 4 << 20;
    if (heddle_start(&options) || heddle_fiber_create(&fiber, &attr, bench_fiber, &arguments)) abort();
    if (heddle_fiber_join(fiber, &result)) abort();
    return (int)(intptr_t)result;
}
