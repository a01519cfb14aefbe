// fib(n) with OpenMP tasks: fib_omp n=NUMBER threads=COUNT
#include "lab.h"

static uint64_t fib(long n) {
    if (n < 2) return (uint64_t)n;
    uint64_t a, b;
#pragma omp task shared(a) firstprivate(n)
    a = fib(n - 1);
#pragma omp task shared(b) firstprivate(n)
    b = fib(n - 2);
#pragma omp taskwait
    return a + b;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    long n = number("n", 10), threads = number("threads", 1);
    uint64_t result = 0, start = now_ns();
#pragma omp parallel num_threads(threads)
#pragma omp single
    result = fib(n);
    double took = (double)(now_ns() - start), a = 0, b = 1;
    for (long i = 0; i < n + 1; i++) {
        double c = a + b;
        a = b;
        b = c;
    }
    figure("call", took / (2 * a - 1));
    figure("time", took / 1e9);
    check_value("fib", result);
    return 0;
}
