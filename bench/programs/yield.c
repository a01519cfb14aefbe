// sched_yield in a loop, THREADS threads on CORES cores.
//
//   yield [SECONDS] [THREADS] [CORES]
//
// yield  core time per call: elapsed * min(THREADS, CORES) / calls
#include "bench.h"
#include <sched.h>
#include <stdatomic.h>

static pthread_barrier_t start_line;
static atomic_int stop;

struct lane {
    pthread_t id;
    uint64_t calls;
    char pad[128 - sizeof(pthread_t) - sizeof(uint64_t)];
};

static void *body(void *argument) {
    struct lane *lane = argument;
    uint64_t calls = 0;
    pthread_barrier_wait(&start_line);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        for (int i = 0; i < 16; i++) CHECK(sched_yield() == 0, "sched_yield failed");
        calls += 16;
    }
    lane->calls = calls;
    return NULL;
}

int main(int argc, char **argv) {
    double seconds = argument(argc, argv, 1, 1.0);
    size_t threads = (size_t)argument(argc, argv, 2, 4);
    size_t cores = (size_t)argument(argc, argv, 3, 2);
    struct lane *lanes = calloc(threads, sizeof *lanes);
    CHECK(lanes != NULL && threads > 0 && cores > 0, "nothing to do");
    PTHREAD(pthread_barrier_init(&start_line, NULL, (unsigned)threads + 1));
    for (size_t i = 0; i < threads; i++) PTHREAD(pthread_create(&lanes[i].id, NULL, body, &lanes[i]));
    pthread_barrier_wait(&start_line);
    uint64_t start = now_ns();
    struct timespec pause = {.tv_sec = (time_t)seconds,
                             .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&pause, &pause) != 0) CHECK(errno == EINTR, "nanosleep failed");
    atomic_store(&stop, 1);
    uint64_t end = now_ns();
    uint64_t calls = 0;
    for (size_t i = 0; i < threads; i++) {
        PTHREAD(pthread_join(lanes[i].id, NULL));
        CHECK(lanes[i].calls > 0, "thread %zu never ran", i);
        calls += lanes[i].calls;
    }
    size_t busy = threads < cores ? threads : cores;
    figure("yield", (double)(end - start) * (double)busy / (double)calls, "ns");
    return 0;
}
