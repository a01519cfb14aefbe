// Threads that wait for each other by yielding: two that pass a number to and fro, while a third hears of events; then the
// two compute. What is passed, heard and computed must be what it should be, and nobody may wait for long.
#include "check.h"
#include <sched.h>
#include <stdatomic.h>
#include <poll.h>

enum { ROUNDS = 300000, EVENTS = 20 };

static _Alignas(128) atomic_long ball;
static int ends[2];

static void *player(void *argument) {
    long me = (long)argument, seen = 0;
    for (long i = 0; i < ROUNDS; i++) {
        while (atomic_load_explicit(&ball, memory_order_acquire) % 2 != me) sched_yield();
        seen += atomic_load_explicit(&ball, memory_order_relaxed);
        atomic_fetch_add_explicit(&ball, 1, memory_order_release);
    }
    // Both compute at the same time now: who was without a CPU of its own gets one back.
    volatile unsigned long sum = 0;
    for (unsigned long i = 0; i < 40000000; i++) sum += i;
    CHECK(sum == 40000000ul * 39999999ul / 2);
    return (void *)seen;
}

static double now(void) {
    struct timespec t;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// Hears of events from a pipe, and sleeps.
static void *listener(void *argument) {
    (void)argument;
    long heard = 0;
    for (double sent; read(ends[0], &sent, sizeof sent) == sizeof sent; heard++) {
        CHECK(now() - sent < 2);
        struct timespec pause = {.tv_nsec = 1000000};
        CHECK(nanosleep(&pause, NULL) == 0);
    }
    return (void *)heard;
}

int main(void) {
    CHECK(pipe(ends) == 0);
    pthread_t players[2], third;
    CHECK(pthread_create(&third, NULL, listener, NULL) == 0);
    for (long i = 0; i < 2; i++) CHECK(pthread_create(&players[i], NULL, player, (void *)i) == 0);
    for (int i = 0; i < EVENTS; i++) {
        double sent = now();
        CHECK(write(ends[1], &sent, sizeof sent) == sizeof sent);
        struct timespec pause = {.tv_nsec = 2000000};
        CHECK(nanosleep(&pause, NULL) == 0);
    }
    close(ends[1]);
    for (long i = 0; i < 2; i++) {
        void *seen;
        CHECK(pthread_join(players[i], &seen) == 0);
        CHECK((long)seen == (long)ROUNDS * (ROUNDS - 1) + i * ROUNDS);
    }
    void *heard;
    CHECK(pthread_join(third, &heard) == 0);
    CHECK((long)heard == EVENTS && atomic_load(&ball) == 2 * ROUNDS);
    puts("passed, heard and computed");
    return 0;
}
