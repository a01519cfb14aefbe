/* Every wait ends at its time, and when its token is cancelled; priorities. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "check.h"

#include <sys/resource.h>
#include <time.h>

static heddle_mutex_t mutex = HEDDLE_MUTEX_INIT, free_mutex = HEDDLE_MUTEX_INIT;
static heddle_rwlock_t rwlock = HEDDLE_RWLOCK_INIT;
static heddle_cond_t cond = HEDDLE_COND_INIT;
static heddle_barrier_t barrier = HEDDLE_BARRIER_INIT(100);
static heddle_semaphore_t semaphore = HEDDLE_SEMAPHORE_INIT(0);
static heddle_event_t event = HEDDLE_EVENT_INIT;
static heddle_wait_group_t group = HEDDLE_WAIT_GROUP_INIT;
static heddle_thread_t sleeper;

enum { LOCK, READ, WRITE, COND, BARRIER, SEMAPHORE, EVENT, GROUP, JOIN, SLEEP, PARK, KINDS };

static int wait_within(int kind, uint64_t nanoseconds, const heddle_token_t *token) {
    int answer;
    switch (kind) {
    case LOCK:
        return heddle_mutex_lock_within(&mutex, nanoseconds, token);
    case READ:
        return heddle_rwlock_rdlock_within(&rwlock, nanoseconds, token);
    case WRITE:
        return heddle_rwlock_wrlock_within(&rwlock, nanoseconds, token);
    case COND:
        ANSWERS(heddle_mutex_lock(&free_mutex), 0);
        answer = heddle_cond_wait_within(&cond, &free_mutex, nanoseconds, token);
        ANSWERS(heddle_mutex_unlock(&free_mutex), 0);
        return answer;
    case BARRIER:
        return heddle_barrier_wait_within(&barrier, NULL, nanoseconds, token);
    case SEMAPHORE:
        return heddle_semaphore_wait_within(&semaphore, nanoseconds, token);
    case EVENT:
        return heddle_event_wait_within(&event, nanoseconds, token);
    case GROUP:
        return heddle_wait_group_wait_within(&group, nanoseconds, token);
    case JOIN:
        return heddle_thread_join_within(sleeper, NULL, nanoseconds, token);
    case SLEEP:
        return heddle_sleep_within(nanoseconds, token);
    default:
        return heddle_park_within(nanoseconds, token);
    }
}

struct waiter {
    int kind;
    const heddle_token_t *token;
};

static int waiting;

static void *waits(void *argument) {
    struct waiter *waiter = argument;
    __atomic_fetch_add(&waiting, 1, __ATOMIC_RELAXED);
    return (void *)(size_t)wait_within(waiter->kind, HEDDLE_FOREVER, waiter->token);
}

static void *sleeps(void *argument) {
    ANSWERS(heddle_event_wait((heddle_event_t *)argument), 0);
    return argument;
}

static void *nice_value(void *argument) {
    *(int *)argument = getpriority(PRIO_PROCESS, 0);
    return NULL;
}

static double now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void priorities(void) {
    heddle_attr_t attr = HEDDLE_ATTR_INIT;
    heddle_thread_t thread;
    int nice = 0, modes[2] = {HEDDLE_MODE_DEFAULT, HEDDLE_MODE_KERNEL}, i;

    attr.priority = 20;
    ANSWERS(heddle_thread_create(&thread, &attr, nice_value, &nice), EINVAL);
    attr.priority = -21;
    ANSWERS(heddle_thread_create(&thread, &attr, nice_value, &nice), EINVAL);
    attr.priority = 19;
    for (i = 0; i < 2; i++) {
        attr.mode = modes[i];
        ANSWERS(heddle_thread_create(&thread, &attr, nice_value, &nice), 0);
        ANSWERS(heddle_thread_join(thread, NULL), 0);
        CHECK(nice == 19);
    }
}

int main(void) {
    heddle_attr_t kernel = HEDDLE_ATTR_INIT;
    heddle_token_t *token, *child, *cancelled;
    heddle_thread_t threads[KINDS][2];
    struct waiter waiters[KINDS];
    heddle_event_t end = HEDDLE_EVENT_INIT;
    void *result;
    double start;
    int kind, i;

    ANSWERS(heddle_start(NULL), 0);
    kernel.mode = HEDDLE_MODE_KERNEL;
    priorities();

    ANSWERS(heddle_token_create(NULL, NULL), EINVAL);
    ANSWERS(heddle_token_cancel(NULL), EINVAL);
    ANSWERS(heddle_token_destroy(NULL), EINVAL);
    CHECK(!heddle_token_is_cancelled(NULL));
    ANSWERS(heddle_token_create(&token, NULL), 0);
    ANSWERS(heddle_token_create(&child, token), 0);
    ANSWERS(heddle_token_create(&cancelled, token), 0);
    ANSWERS(heddle_token_cancel(cancelled), 0);
    ANSWERS(heddle_token_cancel(cancelled), 0);
    CHECK(heddle_token_is_cancelled(cancelled) && !heddle_token_is_cancelled(token));

    ANSWERS(heddle_thread_create(&sleeper, NULL, sleeps, &end), 0);
    ANSWERS(heddle_wait_group_add(&group, 1), 0);

    /* Without waiting all is had, also with a token that is cancelled. */
    for (kind = LOCK; kind <= WRITE; kind++) {
        ANSWERS(wait_within(kind, 0, cancelled), 0);
        if (kind == LOCK) {
            ANSWERS(heddle_mutex_unlock(&mutex), 0);
        } else {
            ANSWERS(heddle_rwlock_unlock(&rwlock), 0);
        }
    }
    ANSWERS(heddle_semaphore_post(&semaphore, 1), 0);
    ANSWERS(wait_within(SEMAPHORE, HEDDLE_FOREVER, cancelled), 0);

    /* Held by this thread, so that others wait. */
    ANSWERS(heddle_mutex_lock(&mutex), 0);
    ANSWERS(heddle_rwlock_wrlock(&rwlock), 0);
    ANSWERS(wait_within(LOCK, 0, token), EDEADLK);
    for (kind = COND; kind < KINDS; kind++) {
        start = now();
        ANSWERS(wait_within(kind, 3 * MILLISECOND, token), kind == SLEEP ? 0 : ETIMEDOUT);
        CHECK(now() - start >= 0.002);
        ANSWERS(wait_within(kind, 3 * MILLISECOND, NULL), kind == SLEEP ? 0 : ETIMEDOUT);
        ANSWERS(wait_within(kind, HEDDLE_FOREVER, cancelled), ECANCELED);
    }

    for (kind = LOCK; kind < KINDS; kind++) {
        waiters[kind].kind = kind;
        waiters[kind].token = kind % 2 == 0 ? token : child;
        for (i = 0; i < (kind == JOIN ? 1 : 2); i++) {
            ANSWERS(heddle_thread_create(&threads[kind][i], i == 0 ? NULL : &kernel, waits, &waiters[kind]), 0);
        }
    }
    while (__atomic_load_n(&waiting, __ATOMIC_RELAXED) < 2 * KINDS - 1) {
        heddle_yield();
    }
    heddle_sleep(5 * MILLISECOND);
    ANSWERS(heddle_token_cancel(token), 0);
    for (kind = LOCK; kind < KINDS; kind++) {
        for (i = 0; i < (kind == JOIN ? 1 : 2); i++) {
            ANSWERS(heddle_thread_join(threads[kind][i], &result), 0);
            ANSWERS((int)(size_t)result, ECANCELED);
        }
    }
    CHECK(heddle_token_is_cancelled(child));

    /* A join that was given up does not count. */
    ANSWERS(heddle_event_set(&end), 0);
    ANSWERS(heddle_thread_join_within(sleeper, &result, HEDDLE_FOREVER, NULL), 0);
    CHECK(result == &end);
    ANSWERS(heddle_thread_join_within(sleeper, &result, 0, NULL), ESRCH);
    ANSWERS(heddle_mutex_unlock(&mutex), 0);
    ANSWERS(heddle_rwlock_unlock(&rwlock), 0);
    ANSWERS(heddle_token_destroy(token), 0);
    ANSWERS(heddle_token_destroy(child), 0);
    ANSWERS(heddle_token_destroy(cancelled), 0);
    printf("%d kinds of waits\n", KINDS);
    return 0;
}
