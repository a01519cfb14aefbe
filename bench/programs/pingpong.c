// Condition-variable ping-pong: two threads hand a turn to each other under one mutex.
//
//   pingpong [SECONDS] [threads|main]
//
// pingpong       between two threads
// pingpong_main  between main, which is the kernel's own thread, and a thread
#include "bench.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed[2] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};
static int turn, stop;
static uint64_t hand_overs;
static uint64_t limit, elapsed;

static void *side(void *argument) {
    int me = (int)(uintptr_t)argument;
    uint64_t mine = 0, start = now_ns();
    pthread_mutex_lock(&lock);
    for (;;) {
        while (turn != me && !stop) pthread_cond_wait(&changed[me], &lock);
        if (stop) break;
        CHECK(turn == me, "woke up out of turn");
        CHECK(hand_overs % 2 == (uint64_t)me, "hand-over %llu came to side %d",
              (unsigned long long)hand_overs, me);
        hand_overs++;
        mine++;
        turn = !me;
        if (me == 0 && mine % 256 == 0 && now_ns() - start > limit) {
            stop = 1;
            elapsed = now_ns() - start;
        }
        pthread_cond_signal(&changed[!me]);
        if (stop) break;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static double run(double seconds, int with_main) {
    pthread_t sides[2];
    turn = stop = 0;
    hand_overs = elapsed = 0;
    limit = (uint64_t)(seconds * 1e9);
    PTHREAD(pthread_create(&sides[1], NULL, side, (void *)1));
    if (with_main) {
        side((void *)0);
    } else {
        PTHREAD(pthread_create(&sides[0], NULL, side, (void *)0));
        PTHREAD(pthread_join(sides[0], NULL));
    }
    PTHREAD(pthread_join(sides[1], NULL));
    CHECK(hand_overs > 0 && elapsed > 0, "nothing was handed over");
    return (double)elapsed / (double)hand_overs;
}

int main(int argc, char **argv) {
    double seconds = argument(argc, argv, 1, 1.0);
    const char *which = argc > 2 ? argv[2] : "both";
    if (strcmp(which, "main") != 0) figure("pingpong", run(seconds, 0), "ns");
    if (strcmp(which, "threads") != 0) figure("pingpong_main", run(seconds, 1), "ns");
    return 0;
}
