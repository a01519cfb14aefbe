#define NO_SETUP
#include "openmp.h"

static uint64_t fib(unsigned n) {
    if (n < 2) return n;
    uint64_t a, b;
#pragma omp task shared(a) firstprivate(n)
    a = fib(n - 1);
    b = fib(n - 2);
#pragma omp taskwait
    return a + b;
}

static uint64_t kernel(size_t size) {
    uint64_t result = 0;
#pragma omp parallel
#pragma omp single
    result = fib((unsigned)size);
    return result;
}
