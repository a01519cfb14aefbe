#define NO_SETUP
#include "tbb.h"

static uint64_t fib(unsigned n) {
    if (n < 2) return n;
    uint64_t a, b;
    tbb::task_group group;
    group.run([&a, n] { a = fib(n - 1); });
    b = fib(n - 2);
    group.wait();
    return a + b;
}

static uint64_t kernel(size_t size) { return fib((unsigned)size); }
