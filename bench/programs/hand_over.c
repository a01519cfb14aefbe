// Two threads that hand a number to and fro, and yield until it has come.
//
//   hand_over [SECONDS]
//
// hand_over  per hand-over
#include "bench.h"
#include <sched.h>
#include <stdatomic.h>

#define OVER UINT64_MAX

static _Alignas(128) atomic_uint_fast64_t number;
static _Alignas(128) uint64_t limit;
static uint64_t start, end;

static void *side(void *argument) {
    uint64_t mine = (uint64_t)(uintptr_t)argument;
    for (;; mine += 2) {
        uint64_t n;
        while ((n = atomic_load_explicit(&number, memory_order_acquire)) < mine) sched_yield();
        if (n == OVER) return NULL;
        CHECK(n == mine, "%llu came out of turn", (unsigned long long)n);
        if (mine % 256 == 0 && now_ns() - start > limit) {
            end = now_ns();
            atomic_store_explicit(&number, OVER, memory_order_release);
            return (void *)(uintptr_t)mine;
        }
        atomic_store_explicit(&number, mine + 1, memory_order_release);
    }
}

int main(int argc, char **argv) {
    limit = (uint64_t)(argument(argc, argv, 1, 1.0) * 1e9);
    start = now_ns();
    pthread_t sides[2];
    for (uintptr_t i = 0; i < 2; i++) PTHREAD(pthread_create(&sides[i], NULL, side, (void *)i));
    void *handed;
    PTHREAD(pthread_join(sides[0], &handed));
    PTHREAD(pthread_join(sides[1], NULL));
    figure("hand_over", (double)(end - start) / (double)(uintptr_t)handed, "ns");
    return 0;
}
