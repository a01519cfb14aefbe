/* Without heddle_start the first use starts; where user threads are not to be had, kernel threads do. Argument "other": the
 * process has another thread before. */
#include "check.h"

#include <pthread.h>

static heddle_event_t event = HEDDLE_EVENT_INIT;

static void *wait_for(void *argument) {
    ANSWERS(heddle_event_wait(&event), 0);
    return argument;
}

static void add(size_t begin, size_t end, void *sum) {
    __atomic_fetch_add((size_t *)sum, end - begin, __ATOMIC_RELAXED);
}

int main(int argc, char **argv) {
    bool other = argc > 1 && strcmp(argv[1], "other") == 0;
    heddle_thread_t thread;
    pthread_t pthread;
    size_t sum = 0;

    if (other) {
        heddle_options_t options = HEDDLE_OPTIONS_INIT;
        options.mode = HEDDLE_MODE_USER;
        CHECK(pthread_create(&pthread, NULL, wait_for, NULL) == 0);
        ANSWERS(heddle_start(&options), EBUSY);
        CHECK(strstr(heddle_last_error(), "2 threads") != NULL);
    }
    ANSWERS(heddle_thread_create(&thread, NULL, wait_for, &sum), 0);
    ANSWERS(heddle_start(NULL), EALREADY);
    CHECK(heddle_mode() == (other ? HEDDLE_MODE_KERNEL : asked_mode()));
    ANSWERS(heddle_for(7, 100007, 10, add, &sum), 0);
    CHECK(sum == 100000);
    ANSWERS(heddle_for(5, 5, 0, add, &sum), 0);
    ANSWERS(heddle_for(6, 5, 0, add, &sum), 0);
    CHECK(sum == 100000);
    ANSWERS(heddle_event_set(&event), 0);
    ANSWERS(heddle_thread_join(thread, NULL), 0);
    if (other) {
        CHECK(pthread_join(pthread, NULL) == 0);
    }
    puts("started");
    return 0;
}
