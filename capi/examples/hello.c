/* Threads: made, named, joined; and one that is detached.
 *
 *     cc hello.c $(pkg-config --cflags --libs heddle) */
#include <heddle.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4 };

static void check(int error, const char *what) {
    if (error != 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, strerror(error), heddle_last_error());
        exit(1);
    }
}

static void *square(void *argument) {
    int *number = argument;
    heddle_sleep(1000 * 1000); /* A millisecond, in which others run. */
    *number *= *number;
    return number;
}

static void *say(void *argument) {
    char name[32];
    check(heddle_thread_name(heddle_thread_self(), name, sizeof name), "heddle_thread_name");
    printf("%s is detached\n", name);
    heddle_event_set(argument);
    return NULL;
}

int main(void) {
    heddle_thread_t threads[THREADS], other;
    heddle_attr_t attr = HEDDLE_ATTR_INIT;
    heddle_event_t said = HEDDLE_EVENT_INIT;
    int numbers[THREADS], i;

    check(heddle_start(NULL), "heddle_start");
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i + 1;
        check(heddle_thread_create(&threads[i], NULL, square, &numbers[i]), "heddle_thread_create");
    }
    for (i = 0; i < THREADS; i++) {
        void *result;
        check(heddle_thread_join(threads[i], &result), "heddle_thread_join");
        printf("%d squared is %d\n", i + 1, *(int *)result);
    }

    attr.name = "shuttle";
    attr.stack_size = 64 * 1024;
    check(heddle_thread_create(&other, &attr, say, &said), "heddle_thread_create");
    check(heddle_thread_detach(other), "heddle_thread_detach");
    check(heddle_event_wait(&said), "heddle_event_wait");
    return 0;
}
