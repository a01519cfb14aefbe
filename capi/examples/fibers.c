/* Fibers: a recursion by a fiber for one half of each call, and a ring of many that pass a number on. */
#include <heddle.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int error) {
    if (error != 0) {
        fprintf(stderr, "error %d: %s\n", error, heddle_last_error());
        exit(1);
    }
}

static void *fib(void *argument) {
    uintptr_t n = (uintptr_t)argument;
    heddle_fiber_t half;
    void *a, *b;

    if (n < 2) {
        return argument;
    }
    must(heddle_fiber_create(&half, NULL, fib, (void *)(n - 1)));
    b = fib((void *)(n - 2));
    must(heddle_fiber_join(half, &a));
    return (void *)((uintptr_t)a + (uintptr_t)b);
}

enum { FIBERS = 1000, ROUNDS = 10 };

/* In each, whether it is that one's turn. */
static heddle_semaphore_t turns[FIBERS];
static unsigned long passed;

static void *pass(void *place) {
    heddle_semaphore_t *own = place, *next = own + 1 == turns + FIBERS ? turns : own + 1;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        must(heddle_semaphore_wait(own));
        passed++;
        must(heddle_semaphore_post(next, 1));
    }
    return NULL;
}

int main(void) {
    static heddle_fiber_t ring[FIBERS];
    heddle_fiber_attr_t small = HEDDLE_FIBER_ATTR_INIT;
    heddle_fiber_t fiber;
    void *result;
    int i;

    must(heddle_start(NULL));
    /* What a fiber makes costs less than what a thread makes. */
    must(heddle_fiber_create(&fiber, NULL, fib, (void *)(uintptr_t)22));
    must(heddle_fiber_join(fiber, &result));
    printf("fib(22) = %lu\n", (unsigned long)(uintptr_t)result);

    small.stack_size = 16384;
    for (i = 0; i < FIBERS; i++) {
        must(heddle_semaphore_init(&turns[i], 0));
    }
    for (i = 0; i < FIBERS; i++) {
        must(heddle_fiber_create(&ring[i], &small, pass, &turns[i]));
    }
    must(heddle_semaphore_post(&turns[0], 1));
    for (i = 0; i < FIBERS; i++) {
        must(heddle_fiber_join(ring[i], NULL));
    }
    printf("passed on %lu times\n", passed);
    return 0;
}
