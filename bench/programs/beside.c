// Threads that wait, beside four that compute without a pause.
//
//   beside SECONDS semaphores|pipes|event
//
// beside_semaphores  a round of two threads that wake each other by semaphores
// beside_pipes       the same by pipes
// beside_event       median delay from an event (a timer's descriptor, each 20 ms) to the thread that waits for it
#include "bench.h"
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/timerfd.h>

enum { COMPUTING = 4 };

static atomic_int stop;
static double seconds;
static int pipes, pair;
static sem_t semaphores[2];
static int ends[2][2];

static void *compute(void *unused) {
    while (!atomic_load_explicit(&stop, memory_order_relaxed));
    return unused;
}

static void tell(int side) {
    if (pipes)
        CHECK(write(ends[side][1], "", 1) == 1, "write failed");
    else
        CHECK(sem_post(&semaphores[side]) == 0, "sem_post failed");
}

static void hear(int side) {
    char c;
    if (pipes)
        CHECK(read(ends[side][0], &c, 1) == 1, "read failed");
    else
        CHECK(sem_wait(&semaphores[side]) == 0, "sem_wait failed");
}

static void *answer(void *unused) {
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        hear(0);
        tell(1);
    }
    return unused;
}

static void rounds(void) {
    uint64_t start = now_ns(), n = 0;
    for (; now_ns() - start < (uint64_t)(seconds * 1e9); n++) {
        tell(0);
        hear(1);
    }
    figure(pipes ? "beside_pipes" : "beside_semaphores", (double)(now_ns() - start) / (double)n / 1e3, "us");
    atomic_store(&stop, 1);
    tell(0);
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void events(void) {
    static uint64_t delays[1000];
    uint64_t expirations;
    size_t n = 0, all = (size_t)(seconds * 50);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    CHECK(timer >= 0 && all > 0 && all <= 1000, "no timer");
    for (; n < all; n++) {
        // Not in step with anybody's slices.
        uint64_t due = now_ns() + 20000000 + n * 37000;
        struct itimerspec when = {{0, 0}, {(time_t)(due / 1000000000), (long)(due % 1000000000)}};
        CHECK(timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL) == 0, "timerfd_settime failed");
        CHECK(read(timer, &expirations, sizeof expirations) == sizeof expirations, "read failed");
        delays[n] = now_ns() - due;
    }
    qsort(delays, n, sizeof *delays, by_size);
    figure("beside_event", (double)delays[n / 2] / 1e3, "us");
    atomic_store(&stop, 1);
}

static void *measure(void *unused) {
    if (pair)
        rounds();
    else
        events();
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 3, "usage: beside SECONDS semaphores|pipes|event");
    pthread_t threads[COMPUTING + 2];
    seconds = argument(argc, argv, 1, 1.0);
    pipes = strcmp(argv[2], "pipes") == 0;
    pair = strcmp(argv[2], "event") != 0;
    for (int i = 0; i < 2; i++) {
        CHECK(sem_init(&semaphores[i], 0, 0) == 0, "sem_init failed");
        CHECK(pipe(ends[i]) == 0, "pipe failed");
    }
    for (int i = 0; i < COMPUTING; i++) PTHREAD(pthread_create(&threads[i], NULL, compute, NULL));
    PTHREAD(pthread_create(&threads[COMPUTING], NULL, measure, NULL));
    if (pair) PTHREAD(pthread_create(&threads[COMPUTING + 1], NULL, answer, NULL));
    for (int i = 0; i < COMPUTING + 1 + pair; i++) PTHREAD(pthread_join(threads[i], NULL));
    return 0;
}
