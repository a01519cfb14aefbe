// Matrices and rows of src/matmul/mod.rs.
#pragma once
#include "bench.h"

static float *a, *b, *c;

#define BEFORE_B 256

static float *matrix(size_t n, size_t p, size_t q, size_t before) {
    float *m = (float *)aligned_alloc(64, (before + n * n) * sizeof *m) + before;
    for (size_t i = 0; i < n * n; i++) m[i] = (float)((i * p + i / n) % q);
    return m;
}

static void setup(size_t n) {
    if (b) free(a), free(b - BEFORE_B), free(c);
    a = matrix(n, 7, 5, 0), b = matrix(n, 3, 7, BEFORE_B);
    c = (float *)aligned_alloc(64, n * n * sizeof *c);
    memset(c, 0, n * n * sizeof *c);
}

static uint64_t check(size_t n, uint64_t sum) {
    for (size_t i = 0; i < n * n; i++) sum += (uint64_t)c[i] * (i % 1009 + 1);
    return sum;
}

static __attribute__((noinline)) void row(size_t i, size_t n) {
    float *__restrict__ to = c + i * n;
    memset(to, 0, n * sizeof *to);
    for (size_t k = 0; k < n; k++) {
        float x = a[i * n + k];
        const float *__restrict__ from = b + k * n;
        for (size_t j = 0; j < n; j++) to[j] += x * from[j];
    }
}
