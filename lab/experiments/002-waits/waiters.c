// Many threads wait for one pipe, to which single bytes come: how many are woken for each?
//
//   waiters n=THREADS bytes=COUNT mode=poll|read
//
// mode=read: each blocks in read, so that whoever wakes it can hand it the byte. mode=poll: each waits in poll and then reads
// without blocking: all are woken, one gets the byte.
#include "lab.h"
#include <poll.h>

static int ends[2], answers[2];
static _Atomic long woken;
static int polling;

static void *wait_for_bytes(void *unused) {
    (void)unused;
    for (;;) {
        char byte;
        if (polling) {
            struct pollfd p = {.fd = ends[0], .events = POLLIN};
            poll(&p, 1, -1);
            atomic_fetch_add(&woken, 1);
        }
        ssize_t n = read(ends[0], &byte, 1);
        if (n < 0 && errno == EAGAIN) continue;
        if (!polling) atomic_fetch_add(&woken, 1);
        if (n == 0) return NULL;
        CHECK(n == 1 && write(answers[1], &byte, 1) == 1, "read: %s", strerror(errno));
    }
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    long n = number("n", 8), bytes = number("bytes", 200);
    polling = is("mode", "poll");
    CHECK(pipe2(ends, polling ? O_NONBLOCK : 0) == 0 && pipe(answers) == 0, "pipe");
    pthread_t *ids = calloc((size_t)n, sizeof *ids);
    CHECK(ids != NULL, "no memory");
    for (long i = 0; i < n; i++) PTHREAD(pthread_create(&ids[i], NULL, wait_for_bytes, NULL));
    usleep(20000);
    uint64_t start = now_ns();
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (long i = 0; i < bytes; i++) {
        char byte = 1;
        CHECK(write(ends[1], &byte, 1) == 1 && read(answers[0], &byte, 1) == 1, "pipe");
        // All that were woken have gone back to waiting, or nearly so.
        for (int j = 0; j < 20; j++) sched_yield();
    }
    figure("byte", (double)(now_ns() - start) / (double)bytes);
    figure("woken", (double)woken / (double)bytes);
    getrusage(RUSAGE_SELF, &after);
    figure("switches", (double)(after.ru_nvcsw - before.ru_nvcsw) / (double)bytes);
    close(ends[1]);
    for (long i = 0; i < n; i++) PTHREAD(pthread_join(ids[i], NULL));
    return 0;
}
