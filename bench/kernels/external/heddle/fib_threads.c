#include "fiber.h"

static void *fib(void *argument) {
    uintptr_t n = (uintptr_t)argument;
    heddle_fiber_t half;
    void *a, *b;
    if (n < 2) return argument;
    if (heddle_fiber_create(&half, NULL, fib, (void *)(n - 1))) abort();
    b = fib((void *)(n - 2));
    if (heddle_fiber_join(half, &a)) abort();
    return (void *)((uintptr_t)a + (uintptr_t)b);
}

static uint64_t kernel(size_t size) { return (uint64_t)fib((void *)size); }

int main(int argc, char **argv) { return fiber_main(argc, argv); }
