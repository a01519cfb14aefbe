// What waiting costs: THREADS threads parked in mixed waits for SECONDS.
//
//   idle [SECONDS] [THREADS]
//
// A quarter each: pthread_cond_wait; read of an empty pipe (a pipe each); nanosleep; poll.
// idle_cpu     processor time of the whole process in that time, per cent of one core
// idle_cpu_ms  the same in milliseconds
#include "bench.h"
#include <poll.h>
#include <sys/resource.h>

enum { KINDS = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_in = PTHREAD_COND_INITIALIZER;
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static size_t threads, checked_in;
static int open_gate;
static double nap_seconds;
static int poll_pipe[2];

struct waiter {
    pthread_t id;
    size_t kind;
    int pipe[2];
};

static struct timespec span(double seconds) {
    time_t whole = (time_t)seconds;
    return (struct timespec){.tv_sec = whole, .tv_nsec = (long)((seconds - (double)whole) * 1e9)};
}

static void check_in(void) {
    pthread_mutex_lock(&lock);
    if (++checked_in == threads) pthread_cond_signal(&all_in);
    pthread_mutex_unlock(&lock);
}

static void *body(void *argument) {
    struct waiter *me = argument;
    check_in();
    if (me->kind == 0) {
        pthread_mutex_lock(&lock);
        while (!open_gate) pthread_cond_wait(&let_go, &lock);
        pthread_mutex_unlock(&lock);
    } else if (me->kind == 1) {
        char byte = 0;
        CHECK(read(me->pipe[0], &byte, 1) == 1 && byte == 'x', "read of a pipe");
    } else if (me->kind == 2) {
        uint64_t start = now_ns();
        struct timespec left = span(nap_seconds);
        while (nanosleep(&left, &left) != 0) CHECK(errno == EINTR, "nanosleep: %s", strerror(errno));
        CHECK((double)(now_ns() - start) >= nap_seconds * 1e9, "nanosleep came back early");
    } else {
        struct pollfd poll_for = {.fd = poll_pipe[0], .events = POLLIN};
        int ready;
        while ((ready = poll(&poll_for, 1, -1)) < 0 && errno == EINTR) {}
        CHECK(ready == 1 && (poll_for.revents & POLLIN) != 0, "poll");
    }
    return NULL;
}

static double cpu_ms(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

static void pause_for(double seconds) {
    struct timespec left = span(seconds);
    while (nanosleep(&left, &left) != 0) CHECK(errno == EINTR, "nanosleep");
}

int main(int argc, char **argv) {
    double seconds = argument(argc, argv, 1, 5);
    threads = (size_t)argument(argc, argv, 2, 1000);
    nap_seconds = seconds + 3; // past the end of the measurement
    struct waiter *waiters = calloc(threads, sizeof *waiters);
    CHECK(waiters != NULL && threads > 0, "nothing to do");
    pthread_attr_t attr;
    small_stack(&attr, 64 * 1024);
    CHECK(pipe(poll_pipe) == 0, "pipe: %s", strerror(errno));
    uint64_t first = now_ns();
    for (size_t i = 0; i < threads; i++) {
        waiters[i].kind = i % KINDS;
        if (waiters[i].kind == 1) CHECK(pipe(waiters[i].pipe) == 0, "pipe: %s", strerror(errno));
        PTHREAD(pthread_create(&waiters[i].id, &attr, body, &waiters[i]));
    }
    pthread_mutex_lock(&lock);
    while (checked_in < threads) pthread_cond_wait(&all_in, &lock);
    pthread_mutex_unlock(&lock);
    pause_for(0.5); // let everybody get into the wait

    uint64_t start = now_ns();
    double before = cpu_ms();
    pause_for(seconds);
    double used = cpu_ms() - before;
    uint64_t end = now_ns();
    CHECK((double)(end - first) < nap_seconds * 1e9, "the sleepers woke up during the measurement");
    figure("idle_cpu", used * 1e6 / (double)(end - start) * 100, "%");
    figure("idle_cpu_ms", used, "ms");

    pthread_mutex_lock(&lock);
    open_gate = 1;
    pthread_cond_broadcast(&let_go);
    pthread_mutex_unlock(&lock);
    CHECK(write(poll_pipe[1], "x", 1) == 1, "write");
    for (size_t i = 0; i < threads; i++)
        if (waiters[i].kind == 1) CHECK(write(waiters[i].pipe[1], "x", 1) == 1, "write");
    for (size_t i = 0; i < threads; i++) PTHREAD(pthread_join(waiters[i].id, NULL));
    return 0;
}
