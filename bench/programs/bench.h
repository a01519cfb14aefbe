// What the measuring programs share: a clock, one output line per figure, and
// checks that end the program. Plain C and pthreads: nothing here knows Heddle.
#ifndef BENCH_H
#define BENCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// The program's own verdict: a figure of a program that went wrong is worthless.
__attribute__((noreturn, format(printf, 1, 2), unused)) static void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "check failed: ");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    fflush(NULL);
    _exit(1);
}

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) die(__VA_ARGS__);                                                        \
    } while (0)

// pthread functions return the error instead of setting errno.
#define PTHREAD(call)                                                                              \
    do {                                                                                           \
        int error_ = (call);                                                                       \
        if (error_ != 0) die("%s: %s (line %d)", #call, strerror(error_), __LINE__);               \
    } while (0)

static inline void figure(const char *name, double value, const char *unit) {
    printf("%s %.4f %s\n", name, value, unit);
    fflush(stdout);
}

// Argument `index` as a number, or `otherwise` when it is not given.
static inline double argument(int argc, char **argv, int index, double otherwise) {
    if (index >= argc) return otherwise;
    char *end;
    double value = strtod(argv[index], &end);
    CHECK(end != argv[index] && *end == 0 && value >= 0, "not a number: %s", argv[index]);
    return value;
}

// Attributes of a thread with a small stack.
static inline void small_stack(pthread_attr_t *attr, size_t bytes) {
    PTHREAD(pthread_attr_init(attr));
    PTHREAD(pthread_attr_setstacksize(attr, bytes));
}

#endif
