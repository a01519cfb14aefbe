// pthread_create + pthread_join, one thread at a time.
//
//   create_join [SECONDS] [thread|main]
//
// create_join       called from a thread (the usual place in a program made of threads)
// create_join_main  called from main, which is the kernel's own thread of the process
#include "bench.h"

enum { BATCH = 50 };

static uint64_t runs; // written by one thread at a time: create and join order the writes

static void *body(void *argument) {
    runs++;
    return (void *)((uintptr_t)argument ^ 0x5a5a);
}

struct job {
    double seconds;
    double microseconds;
};

static void *measure(void *argument) {
    struct job *job = argument;
    const uint64_t limit = (uint64_t)(job->seconds * 1e9);
    uint64_t done = 0, start = 0, end = 0;
    runs = 0;
    // The first batch fills the caches of stacks and is not counted.
    for (int warm = 1; warm || end - start < limit; warm = 0) {
        if (done == 0) start = now_ns();
        for (int i = 0; i < BATCH; i++) {
            pthread_t thread;
            void *result;
            uintptr_t word = (uintptr_t)(done + (uint64_t)i);
            PTHREAD(pthread_create(&thread, NULL, body, (void *)word));
            PTHREAD(pthread_join(thread, &result));
            CHECK((uintptr_t)result == (word ^ 0x5a5a), "wrong result from a thread");
        }
        if (warm) {
            runs = 0;
            start = end = now_ns();
            continue;
        }
        done += BATCH;
        end = now_ns();
    }
    CHECK(runs == done, "%llu threads ran, %llu were created", (unsigned long long)runs,
          (unsigned long long)done);
    job->microseconds = (double)(end - start) / 1e3 / (double)done;
    return NULL;
}

int main(int argc, char **argv) {
    double seconds = argument(argc, argv, 1, 1.0);
    const char *where = argc > 2 ? argv[2] : "both";
    struct job job = {.seconds = seconds};
    if (strcmp(where, "main") != 0) {
        pthread_t caller;
        PTHREAD(pthread_create(&caller, NULL, measure, &job));
        PTHREAD(pthread_join(caller, NULL));
        figure("create_join", job.microseconds, "us");
    }
    if (strcmp(where, "thread") != 0) {
        measure(&job);
        figure("create_join_main", job.microseconds, "us");
    }
    return 0;
}
