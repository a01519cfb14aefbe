// fib(n) with TBB: fib_tbb n=NUMBER threads=COUNT
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <oneapi/tbb.h>

static unsigned long fib(long n) {
    if (n < 2) return (unsigned long)n;
    unsigned long a, b;
    tbb::parallel_invoke([&] { a = fib(n - 1); }, [&] { b = fib(n - 2); });
    return a + b;
}

static long number(char **argv, const char *name, long otherwise) {
    for (; *argv; argv++)
        if (!strncmp(*argv, name, strlen(name)) && (*argv)[strlen(name)] == '=') return atol(*argv + strlen(name) + 1);
    return otherwise;
}

int main(int, char **argv) {
    long n = number(argv, "n", 10), threads = number(argv, "threads", 1);
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism, (size_t)threads);
    tbb::task_arena arena((int)threads);
    arena.execute([&] { fib(10); });
    auto start = std::chrono::steady_clock::now();
    unsigned long result = 0;
    arena.execute([&] { result = fib(n); });
    double took = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    double a = 0, b = 1;
    for (long i = 0; i < n + 1; i++) {
        double c = a + b;
        a = b;
        b = c;
    }
    printf("call %.9g\ntime %.9g\ncheck fib %lu\n", took / (2 * a - 1), took / 1e9, result);
}
