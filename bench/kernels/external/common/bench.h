// WORKERS SIZE RUNS: times `kernel`, once untimed first, and prints nanoseconds and result of each run.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void setup(size_t size);
static uint64_t kernel(size_t size);
static uint64_t check(size_t size, uint64_t result);

#ifdef NO_SETUP
static void setup(size_t size) { (void)size; }
static uint64_t check(size_t size, uint64_t result) {
    (void)size;
    return result;
}
#endif

static int64_t bench_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int bench_main(int argc, char **argv) {
    if (argc < 4) return 2;
    size_t size = strtoull(argv[2], 0, 10);
    int runs = atoi(argv[3]);
    for (int i = 0; i <= runs; i++) {
        setup(size);
        int64_t start = bench_now();
        uint64_t result = kernel(size);
        int64_t time = bench_now() - start;
        result = check(size, result);
        if (i > 0) printf("%lld %llu\n", (long long)time, (unsigned long long)result);
    }
    return 0;
}
