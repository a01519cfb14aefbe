// Threads that lock and unlock one mutex: lock n=THREADS each=COUNT lock=pthread|own|shared
//
// own: a mutex that spins a little and then waits in a private futex. shared: pthread's, made for use between processes.
#include "lab.h"

static long each;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int word; // 0 free, 1 held, 2 held and somebody may wait
static uint64_t counter;

static void own_lock(void) {
    for (int i = 0; i < 100; i++) {
        int expected = 0;
        if (atomic_load_explicit(&word, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&word, &expected, 1, memory_order_acquire, memory_order_relaxed))
            return;
        __builtin_ia32_pause();
    }
    while (atomic_exchange_explicit(&word, 2, memory_order_acquire) != 0)
        syscall(SYS_futex, &word, 128 /* FUTEX_WAIT_PRIVATE */, 2, NULL, NULL, 0);
}

static void own_unlock(void) {
    if (atomic_exchange_explicit(&word, 0, memory_order_release) == 2)
        syscall(SYS_futex, &word, 129 /* FUTEX_WAKE_PRIVATE */, 1, NULL, NULL, 0);
}

static void *pthread_user(void *unused) {
    (void)unused;
    for (long i = 0; i < each; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void *own_user(void *unused) {
    (void)unused;
    for (long i = 0; i < each; i++) {
        own_lock();
        counter++;
        own_unlock();
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    long n = number("n", 5);
    each = number("each", 1000000);
    if (is("lock", "shared")) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutex_init(&mutex, &attributes);
    }
    pthread_t *ids = calloc((size_t)n, sizeof *ids);
    CHECK(ids != NULL, "no memory");
    uint64_t start = now_ns();
    for (long i = 0; i < n; i++) PTHREAD(pthread_create(&ids[i], NULL, is("lock", "own") ? own_user : pthread_user, NULL));
    for (long i = 0; i < n; i++) PTHREAD(pthread_join(ids[i], NULL));
    double took = (double)(now_ns() - start);
    CHECK(counter == (uint64_t)(n * each), "%llu of %ld increments", (unsigned long long)counter, n * each);
    figure("pair", took / (double)(n * each));
    figure("time", took / 1e9);
    return 0;
}
