// Many threads alive at once: created, each checks in and waits; then all are let go and joined.
//
//   live_threads [THREADS] [STACK_KIB]
//
// live_threads         create + check in + let go + join, per thread
// live_threads_create  the part until every thread is alive and has checked in, per thread
#include "bench.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_in = PTHREAD_COND_INITIALIZER;
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static size_t threads, checked_in;
static int open_gate;

static void *body(void *argument) {
    pthread_mutex_lock(&lock);
    if (++checked_in == threads) pthread_cond_signal(&all_in);
    while (!open_gate) pthread_cond_wait(&let_go, &lock);
    pthread_mutex_unlock(&lock);
    return (void *)((uintptr_t)argument * 3 + 1);
}

int main(int argc, char **argv) {
    threads = (size_t)argument(argc, argv, 1, 10000);
    size_t stack = (size_t)argument(argc, argv, 2, 64) * 1024;
    pthread_t *ids = calloc(threads, sizeof *ids);
    CHECK(ids != NULL && threads > 0, "no memory for %zu ids", threads);
    memset(ids, 1, threads * sizeof *ids);
    pthread_attr_t attr;
    small_stack(&attr, stack);

    uint64_t start = now_ns();
    for (size_t i = 0; i < threads; i++) {
        int error = pthread_create(&ids[i], &attr, body, (void *)(uintptr_t)i);
        CHECK(error == 0, "pthread_create of thread %zu: %s", i, strerror(error));
    }
    pthread_mutex_lock(&lock);
    while (checked_in < threads) pthread_cond_wait(&all_in, &lock);
    uint64_t alive = now_ns();
    open_gate = 1;
    pthread_cond_broadcast(&let_go);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < threads; i++) {
        void *result;
        PTHREAD(pthread_join(ids[i], &result));
        CHECK((uintptr_t)result == i * 3 + 1, "wrong result from thread %zu", i);
    }
    uint64_t end = now_ns();
    figure("live_threads", (double)(end - start) / 1e3 / (double)threads, "us");
    figure("live_threads_create", (double)(alive - start) / 1e3 / (double)threads, "us");
    return 0;
}
