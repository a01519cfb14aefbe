// One mutex, THREADS threads, ITERATIONS lock/unlock each, around a plain counter.
//
//   mutex [THREADS] [ITERATIONS]
//
// mutex        seconds from the common start to the last thread's end
// mutex_op     the same per lock/unlock
// mutex_alone  per lock/unlock with one thread and nobody else
#include "bench.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t start_line;
static uint64_t counter, iterations;

struct lane {
    pthread_t id;
    uint64_t start, end;
};

static void *body(void *argument) {
    struct lane *lane = argument;
    pthread_barrier_wait(&start_line);
    lane->start = now_ns();
    for (uint64_t i = 0; i < iterations; i++) {
        pthread_mutex_lock(&lock);
        counter++;
        pthread_mutex_unlock(&lock);
    }
    lane->end = now_ns();
    return NULL;
}

static double run(size_t threads) {
    struct lane *lanes = calloc(threads, sizeof *lanes);
    CHECK(lanes != NULL, "no memory");
    counter = 0;
    PTHREAD(pthread_barrier_init(&start_line, NULL, (unsigned)threads));
    for (size_t i = 0; i < threads; i++) PTHREAD(pthread_create(&lanes[i].id, NULL, body, &lanes[i]));
    uint64_t start = UINT64_MAX, end = 0;
    for (size_t i = 0; i < threads; i++) {
        PTHREAD(pthread_join(lanes[i].id, NULL));
        if (lanes[i].start < start) start = lanes[i].start;
        if (lanes[i].end > end) end = lanes[i].end;
    }
    PTHREAD(pthread_barrier_destroy(&start_line));
    CHECK(counter == threads * iterations, "counted %llu instead of %llu",
          (unsigned long long)counter, (unsigned long long)(threads * iterations));
    free(lanes);
    return (double)(end - start);
}

int main(int argc, char **argv) {
    size_t threads = (size_t)argument(argc, argv, 1, 5);
    iterations = (uint64_t)argument(argc, argv, 2, 1000000);
    CHECK(threads > 0 && iterations > 0, "nothing to do");
    double alone = run(1);
    double together = run(threads);
    figure("mutex", together / 1e9, "s");
    figure("mutex_op", together / (double)(threads * iterations), "ns");
    figure("mutex_alone", alone / (double)iterations, "ns");
    return 0;
}
