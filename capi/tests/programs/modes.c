/* Options count; kernel threads beside user threads; many threads; stacks of the asked size. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 2000 };

static heddle_event_t event = HEDDLE_EVENT_INIT;
static int running;

static void *mode(void *mode_of_thread) {
    *(heddle_mode_t *)mode_of_thread = heddle_current_mode();
    return NULL;
}

static void *waits(void *argument) {
    __atomic_fetch_add(&running, 1, __ATOMIC_RELAXED);
    ANSWERS(heddle_event_wait(&event), 0);
    return argument;
}

static void *deep(void *argument) {
    volatile char bytes[200 * 1024];
    size_t i;
    for (i = 0; i < sizeof bytes; i += 1024) {
        bytes[i] = (char)i;
    }
    return (void *)(size_t)(argument != NULL && bytes[1024] == 0);
}

/* A kernel thread makes a thread of the process's mode. */
static void *makes(void *mode_of_thread) {
    heddle_thread_t thread;
    CHECK(heddle_current_mode() == HEDDLE_MODE_KERNEL);
    ANSWERS(heddle_thread_create(&thread, NULL, mode, mode_of_thread), 0);
    ANSWERS(heddle_thread_join(thread, NULL), 0);
    return NULL;
}

static heddle_thread_t threads[THREADS];

int main(void) {
    heddle_options_t options = HEDDLE_OPTIONS_INIT;
    heddle_attr_t attr = HEDDLE_ATTR_INIT;
    heddle_thread_t thread;
    heddle_mode_t found = HEDDLE_MODE_DEFAULT;
    pthread_t pthread;
    void *result;
    int i;

    options.workers = 3;
    options.mode = asked_mode();
    options.slice_ms = 5;
    options.helper_stack = 256 * 1024;
    ANSWERS(heddle_start(&options), 0);
    CHECK(heddle_mode() == asked_mode());
    CHECK(heddle_current_mode() == asked_mode());
    CHECK(heddle_workers() == 3);
    CHECK(strcmp(heddle_version(), "0.1.0") == 0);

    ANSWERS(heddle_thread_create(&thread, NULL, mode, &found), 0);
    ANSWERS(heddle_thread_join(thread, NULL), 0);
    CHECK(found == asked_mode());
    CHECK(pthread_create(&pthread, NULL, mode, &found) == 0);
    CHECK(pthread_join(pthread, NULL) == 0);
    CHECK(found == asked_mode());
    attr.mode = HEDDLE_MODE_KERNEL;
    ANSWERS(heddle_thread_create(&thread, &attr, mode, &found), 0);
    ANSWERS(heddle_thread_join(thread, NULL), 0);
    CHECK(found == HEDDLE_MODE_KERNEL);
    ANSWERS(heddle_thread_create(&thread, &attr, makes, &found), 0);
    ANSWERS(heddle_thread_join(thread, NULL), 0);
    CHECK(found == asked_mode());

    attr.mode = HEDDLE_MODE_DEFAULT;
    attr.stack_size = 64 * 1024;
    for (i = 0; i < THREADS; i++) {
        ANSWERS(heddle_thread_create(&threads[i], &attr, waits, &threads[i]), 0);
    }
    while (__atomic_load_n(&running, __ATOMIC_RELAXED) < THREADS) {
        heddle_yield();
    }
    ANSWERS(heddle_event_set(&event), 0);
    for (i = 0; i < THREADS; i++) {
        ANSWERS(heddle_thread_join(threads[i], &result), 0);
        CHECK(result == &threads[i]);
    }

    attr.stack_size = 300 * 1024;
    ANSWERS(heddle_thread_create(&thread, &attr, deep, &thread), 0);
    ANSWERS(heddle_thread_join(thread, &result), 0);
    CHECK(result != NULL);
    printf("%s mode, %d workers\n", asked_mode() == HEDDLE_MODE_USER ? "user" : "kernel", (int)heddle_workers());
    return 0;
}
