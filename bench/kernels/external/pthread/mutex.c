// With one more argument: the number of threads.
#define NO_SETUP
#include "bench.h"
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile uint64_t count;
static size_t threads;

static void *body(void *each) {
    for (size_t i = 0; i < (size_t)each; i++) {
        pthread_mutex_lock(&mutex);
        count = count + 1;
        pthread_mutex_unlock(&mutex);
    }
    return 0;
}

static uint64_t kernel(size_t size) {
    pthread_t thread[threads];
    count = 0;
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&thread[i], 0, body, (void *)(size / threads))) abort();
    for (size_t i = 0; i < threads; i++) pthread_join(thread[i], 0);
    return count;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    threads = strtoull(argv[4], 0, 10);
    return bench_main(argc, argv);
}
