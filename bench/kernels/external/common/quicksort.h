// Numbers and partition of src/quicksort/mod.rs.
#pragma once
#include "bench.h"

static uint32_t *numbers;

static void setup(size_t size) {
    free(numbers);
    numbers = (uint32_t *)malloc(size * sizeof *numbers);
    uint64_t x = 42;
    for (size_t i = 0; i < size; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        numbers[i] = (uint32_t)(x >> 32);
    }
}

static uint64_t check(size_t size, uint64_t result) {
    for (size_t i = 0; i < size; i++) result = result * 31 + numbers[i];
    return result;
}

static inline int sort_few(uint32_t *v, size_t n) {
    if (n > 32) return 0;
    for (size_t i = 1; i < n; i++) {
        uint32_t x = v[i];
        size_t j = i;
        for (; j > 0 && v[j - 1] > x; j--) v[j] = v[j - 1];
        v[j] = x;
    }
    return 1;
}

static inline uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t greatest(uint32_t a, uint32_t b) { return a > b ? a : b; }

static inline size_t partition(uint32_t *v, size_t n) {
    uint32_t a = v[0], b = v[n / 2], c = v[n - 1];
    uint32_t pivot = greatest(least(a, b), least(greatest(a, b), c));
    size_t i = 0, j = n - 1;
    for (;;) {
        while (v[i] < pivot) i++;
        while (v[j] > pivot) j--;
        if (i >= j) return i;
        uint32_t x = v[i];
        v[i++] = v[j];
        v[j--] = x;
    }
}
