// What threads wait for when they share: a compare-and-swap, a spinlock, a mutex, an allocation freed by another.
//
//   primitives what=cas|spin|mutex|malloc n=THREADS count=COUNT
#include "lab.h"

static long threads, count;
static _Atomic uint64_t shared_value;
static _Atomic int held;
static uint64_t guarded;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char what;

static void *work(void *unused) {
    (void)unused;
    for (long i = 0; i < count; i++) {
        if (what == 'c') {
            uint64_t old = atomic_load_explicit(&shared_value, memory_order_relaxed);
            while (!atomic_compare_exchange_weak(&shared_value, &old, old + 1)) {}
        } else if (what == 's') {
            while (atomic_exchange_explicit(&held, 1, memory_order_acquire))
                while (atomic_load_explicit(&held, memory_order_relaxed)) sched_yield();
            guarded++;
            atomic_store_explicit(&held, 0, memory_order_release);
        } else {
            pthread_mutex_lock(&mutex);
            guarded++;
            pthread_mutex_unlock(&mutex);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    threads = number("n", 2);
    count = number("count", 1000);
    what = *text("what", "cas");
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    CHECK(ids != NULL, "no memory");
    uint64_t start = now_ns();
    for (long i = 0; i < threads; i++) PTHREAD(pthread_create(&ids[i], NULL, work, NULL));
    for (long i = 0; i < threads; i++) PTHREAD(pthread_join(ids[i], NULL));
    figure("price", (double)(now_ns() - start) / (double)(threads * count));
    CHECK(guarded + shared_value == (uint64_t)(threads * count), "operations were lost");
    return 0;
}
