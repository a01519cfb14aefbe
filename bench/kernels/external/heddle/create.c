#include "fiber.h"

static void *same(void *argument) { return argument; }

static uint64_t kernel(size_t size) {
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i++) {
        heddle_fiber_t fiber;
        void *result;
        if (heddle_fiber_create(&fiber, NULL, same, (void *)i) || heddle_fiber_join(fiber, &result)) abort();
        sum += (uint64_t)result;
    }
    return sum;
}

int main(int argc, char **argv) { return fiber_main(argc, argv); }
