// Matrices and steps of src/strassen/mod.rs.
#pragma once
#include "bench.h"

static double *a, *b, *product;

static double *matrix(size_t n, size_t p, size_t q) {
    double *m = (double *)malloc(n * n * sizeof *m);
    for (size_t i = 0; i < n * n; i++) m[i] = (double)((i * p + i / n) % q);
    return m;
}

static void setup(size_t n) {
    free(a), free(b), free(product);
    a = matrix(n, 7, 5), b = matrix(n, 3, 7), product = 0;
}

static uint64_t check(size_t n, uint64_t sum) {
    for (size_t i = 0; i < n * n; i++) sum += (uint64_t)product[i] * (i % 1009 + 1);
    return sum;
}

#define PLAIN 64

static __attribute__((noinline)) double *plain(const double *a, const double *b) {
    const size_t n = PLAIN;
    double *c = (double *)calloc(n * n, sizeof *c);
    for (size_t i = 0; i < n; i++) {
        double *__restrict__ to = c + i * n;
        for (size_t k = 0; k < n; k++) {
            double x = a[i * n + k];
            const double *__restrict__ from = b + k * n;
            for (size_t j = 0; j < n; j++) to[j] += x * from[j];
        }
    }
    return c;
}

// A quarter, 0 to 3, plus `sign` times another one; a sign of 0: the quarter alone.
static __attribute__((noinline)) double *quarters(const double *m, size_t n, int one, int sign, int other) {
    size_t half = n / 2;
    double *to = (double *)malloc(half * half * sizeof *to);
    for (size_t i = 0; i < half; i++) {
        const double *x = m + ((size_t)(one / 2) * half + i) * n + (size_t)(one % 2) * half;
        const double *y = m + ((size_t)(other / 2) * half + i) * n + (size_t)(other % 2) * half;
        double *line = to + i * half;
        if (sign == 0)
            memcpy(line, x, half * sizeof *x);
        else
            for (size_t j = 0; j < half; j++) line[j] = x[j] + sign * y[j];
    }
    return to;
}

static inline double *factor_a(int i, const double *a, size_t n) {
    static const int of[7][3] = {{0, 1, 3}, {2, 1, 3}, {0, 0, 0}, {3, 0, 0}, {0, 1, 1}, {2, -1, 0}, {1, -1, 3}};
    return quarters(a, n, of[i][0], of[i][1], of[i][2]);
}

static inline double *factor_b(int i, const double *b, size_t n) {
    static const int of[7][3] = {{0, 1, 3}, {0, 0, 0}, {1, -1, 3}, {2, -1, 0}, {3, 0, 0}, {0, 1, 1}, {2, 1, 3}};
    return quarters(b, n, of[i][0], of[i][1], of[i][2]);
}

static __attribute__((noinline)) double *combine(double *const m[7], size_t n) {
    size_t half = n / 2;
    double *c = (double *)malloc(n * n * sizeof *c);
    for (size_t i = 0; i < half; i++) {
        double *up = c + i * n, *down = c + (i + half) * n;
        for (size_t j = 0; j < half; j++) {
            size_t at = i * half + j;
            up[j] = m[0][at] + m[3][at] - m[4][at] + m[6][at];
            up[half + j] = m[2][at] + m[4][at];
            down[j] = m[1][at] + m[3][at];
            down[half + j] = m[0][at] - m[1][at] + m[2][at] + m[5][at];
        }
    }
    return c;
}
