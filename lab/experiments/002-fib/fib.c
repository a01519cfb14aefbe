// fib(n) with one thread per call, as the paper's program makes them, or as a plain recursion.
//
//   fib n=NUMBER mode=threads|plain [stack=KIB]
#include "lab.h"

static pthread_attr_t attributes;

static __attribute__((noinline)) uint64_t plain(long n) { return n < 2 ? (uint64_t)n : plain(n - 1) + plain(n - 2); }

static void *call(void *argument) {
    intptr_t n = (intptr_t)argument;
    if (n < 2) return (void *)n;
    pthread_t a, b;
    void *x, *y;
    PTHREAD(pthread_create(&a, &attributes, call, (void *)(n - 1)));
    PTHREAD(pthread_create(&b, &attributes, call, (void *)(n - 2)));
    PTHREAD(pthread_join(a, &x));
    PTHREAD(pthread_join(b, &y));
    return (void *)((intptr_t)x + (intptr_t)y);
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    long n = number("n", 10);
    PTHREAD(pthread_attr_init(&attributes));
    PTHREAD(pthread_attr_setstacksize(&attributes, (size_t)number("stack", 64) * 1024));
    // Once before the clock runs: stacks that are kept are kept now, and everything has been touched.
    if (is("mode", "threads")) call((void *)(intptr_t)(n > 4 ? n - 4 : n));
    uint64_t start = now_ns(), result;
    if (is("mode", "plain")) {
        result = plain(n);
    } else {
        pthread_t root;
        void *value;
        PTHREAD(pthread_create(&root, &attributes, call, (void *)(intptr_t)n));
        PTHREAD(pthread_join(root, &value));
        result = (uint64_t)(uintptr_t)value;
    }
    double took = (double)(now_ns() - start);
    double calls = 2.0 * (double)plain(n + 1) - 1;
    figure("call", took / calls);
    figure("time", took / 1e9);
    check_value("fib", result);
    return 0;
}
