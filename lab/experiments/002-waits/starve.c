// One thread computes and never waits; another waits for a pipe that has data from the beginning. How long until it runs?
//
//   starve ms=MILLISECONDS
#include "lab.h"

static int ends[2], ready[2];
static uint64_t got_at;
static _Atomic int spinning;

static void *reader(void *unused) {
    (void)unused;
    char byte;
    CHECK(write(ready[1], "", 1) == 1, "write");
    CHECK(read(ends[0], &byte, 1) == 1, "read");
    got_at = now_ns();
    return NULL;
}

static void *spinner(void *argument) {
    uint64_t until = now_ns() + *(uint64_t *)argument;
    char byte = 1;
    // The reader waits by now; the data comes while this thread keeps its CPU.
    CHECK(write(ends[1], &byte, 1) == 1, "write");
    atomic_store(&spinning, 1);
    while (now_ns() < until) {}
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    uint64_t length = (uint64_t)number("ms", 200) * 1000000;
    pthread_t one, two;
    char byte;
    CHECK(pipe(ends) == 0 && pipe(ready) == 0, "pipe");
    PTHREAD(pthread_create(&one, NULL, reader, NULL));
    CHECK(read(ready[0], &byte, 1) == 1, "read");
    usleep(20000);
    uint64_t start = now_ns();
    PTHREAD(pthread_create(&two, NULL, spinner, &length));
    PTHREAD(pthread_join(one, NULL));
    PTHREAD(pthread_join(two, NULL));
    figure("delay", (double)(got_at - start) / (double)length);
    return 0;
}
