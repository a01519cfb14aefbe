// Small questions about futexes, signals and slices.
//
//   small what=operation            the futex operation a waiting pthread mutex uses: `private 1` or `private 0`
//   small what=futex private=0|1    nanoseconds per wake-up call with nobody waiting
//   small what=signal count=N       nanoseconds to enter and leave a handler that yields
//   small what=yield count=N        nanoseconds per yield between two threads
//   small what=answer spinners=N count=N   microseconds for a byte through two pipes while others compute
#include "lab.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long count;
static _Atomic int stop;
static int there[2], back[2];
static _Atomic pid_t waiter;

static void *wait_in_mutex(void *unused) {
    (void)unused;
    atomic_store(&waiter, (pid_t)syscall(SYS_gettid));
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void *yielder(void *unused) {
    (void)unused;
    for (long i = 0; i < count; i++) sched_yield();
    return NULL;
}

static void *echo(void *unused) {
    (void)unused;
    char byte;
    while (read(there[0], &byte, 1) == 1)
        if (write(back[1], &byte, 1) != 1) break;
    return NULL;
}

static void *spin(void *unused) {
    (void)unused;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {}
    return NULL;
}

static void on_signal(int unused) {
    (void)unused;
    sched_yield();
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    count = number("count", 10000);
    pthread_t ids[2];
    if (is("what", "operation")) {
        pthread_mutex_lock(&mutex);
        PTHREAD(pthread_create(&ids[0], NULL, wait_in_mutex, NULL));
        char name[64], line[256] = "";
        // /proc says which call the thread waits in: 202 is futex; bit 128 of its second argument means private.
        for (int tries = 0; tries < 500 && strncmp(line, "202 ", 4) != 0; tries++) {
            usleep(2000);
            snprintf(name, sizeof name, "/proc/self/task/%d/syscall", (int)atomic_load(&waiter));
            FILE *file = fopen(name, "r");
            if (file == NULL || fgets(line, sizeof line, file) == NULL) line[0] = 0;
            if (file != NULL) fclose(file);
        }
        unsigned long address, operation;
        CHECK(sscanf(line, "202 %lx %lx", &address, &operation) == 2, "the waiting thread's call is not to be seen");
        figure("private", operation & 128 ? 1 : 0);
        pthread_mutex_unlock(&mutex);
        PTHREAD(pthread_join(ids[0], NULL));
    } else if (is("what", "futex")) {
        static int word;
        int operation = number("private", 0) ? 129 : 1;
        uint64_t start = now_ns();
        for (long i = 0; i < count; i++) syscall(SYS_futex, &word, operation, 1, NULL, NULL, 0);
        figure("call", (double)(now_ns() - start) / (double)count);
    } else if (is("what", "signal")) {
        signal(SIGUSR1, on_signal);
        uint64_t start = now_ns();
        for (long i = 0; i < count; i++) raise(SIGUSR1);
        figure("switch", (double)(now_ns() - start) / (double)count);
    } else if (is("what", "yield")) {
        uint64_t start = now_ns();
        for (int i = 0; i < 2; i++) PTHREAD(pthread_create(&ids[i], NULL, yielder, NULL));
        for (int i = 0; i < 2; i++) PTHREAD(pthread_join(ids[i], NULL));
        figure("switch", (double)(now_ns() - start) / (double)(2 * count));
    } else {
        long spinners = number("spinners", 2);
        pthread_t *spinning = calloc((size_t)spinners, sizeof *spinning);
        CHECK(spinning && pipe(there) == 0 && pipe(back) == 0, "pipe");
        PTHREAD(pthread_create(&ids[0], NULL, echo, NULL));
        for (long i = 0; i < spinners; i++) PTHREAD(pthread_create(&spinning[i], NULL, spin, NULL));
        uint64_t start = now_ns();
        for (long i = 0; i < count; i++) {
            char byte = 1;
            CHECK(write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1, "pipe");
        }
        figure("answer", (double)(now_ns() - start) / (double)count / 1e3);
        atomic_store(&stop, 1);
        for (long i = 0; i < spinners; i++) PTHREAD(pthread_join(spinning[i], NULL));
        close(there[1]);
        PTHREAD(pthread_join(ids[0], NULL));
    }
    return 0;
}
