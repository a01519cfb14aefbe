/* Each kind of lock between threads of all kinds: those of the process's mode, kernel threads, and pthreads. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 6, ROUNDS = 300 };

static heddle_mutex_t mutex;
static heddle_rwlock_t rwlock = HEDDLE_RWLOCK_INIT;
static heddle_cond_t cond = HEDDLE_COND_INIT;
static heddle_barrier_t barrier = HEDDLE_BARRIER_INIT(THREADS);
static heddle_semaphore_t semaphore = HEDDLE_SEMAPHORE_INIT(2), turn = HEDDLE_SEMAPHORE_INIT(0);
static heddle_once_t once = HEDDLE_ONCE_INIT;
static heddle_event_t event = HEDDLE_EVENT_INIT;
static heddle_wait_group_t group = HEDDLE_WAIT_GROUP_INIT;
static int count, written, again, leaders, made, held, next_turn;

static void make(void *argument) {
    heddle_sleep(MILLISECOND);
    *(int *)argument += 1;
}

static void *all(void *argument) {
    int number = *(int *)argument, i;
    bool leader;

    ANSWERS(heddle_once(&once, make, &made), 0);
    CHECK(made == 1);
    for (i = 0; i < ROUNDS; i++) {
        int before;
        if (i % 3 == 0) {
            while (heddle_mutex_trylock(&mutex) != 0) {
                heddle_yield();
            }
        } else if (i % 3 == 1) {
            ANSWERS(heddle_mutex_timedlock(&mutex, HEDDLE_FOREVER), 0);
        } else {
            ANSWERS(heddle_mutex_lock(&mutex), 0);
        }
        before = count;
        if (i % 16 == 0) {
            heddle_yield();
        }
        count = before + 1;
        ANSWERS(heddle_mutex_unlock(&mutex), 0);

        if (i % 8 == number) {
            ANSWERS(heddle_rwlock_wrlock(&rwlock), 0);
            written++;
            again++;
            ANSWERS(heddle_rwlock_unlock(&rwlock), 0);
        } else {
            ANSWERS(heddle_rwlock_rdlock(&rwlock), 0);
            CHECK(written == again);
            ANSWERS(heddle_rwlock_unlock(&rwlock), 0);
        }

        ANSWERS(heddle_semaphore_wait(&semaphore), 0);
        CHECK(__atomic_fetch_add(&held, 1, __ATOMIC_RELAXED) < 2);
        if (i % 16 == 0) {
            heddle_yield();
        }
        __atomic_fetch_sub(&held, 1, __ATOMIC_RELAXED);
        ANSWERS(heddle_semaphore_post(&semaphore, 1), 0);

        if (i % 30 == 0) {
            ANSWERS(heddle_barrier_wait(&barrier, &leader), 0);
            if (leader) {
                leaders++;
            }
            ANSWERS(heddle_barrier_wait(&barrier, NULL), 0);
            CHECK(leaders == i / 30 + 1);
        }
    }
    ANSWERS(heddle_event_wait(&event), 0);

    /* One after the other. */
    ANSWERS(heddle_mutex_lock(&mutex), 0);
    while (next_turn != number) {
        ANSWERS(heddle_cond_wait(&cond, &mutex), 0);
    }
    next_turn++;
    ANSWERS(heddle_cond_broadcast(&cond), 0);
    ANSWERS(heddle_mutex_unlock(&mutex), 0);
    ANSWERS(heddle_semaphore_timedwait(&turn, HEDDLE_FOREVER), 0);
    ANSWERS(heddle_wait_group_done(&group), 0);
    return argument;
}

/* Parks until it is told to end. */
static void *parked(void *argument) {
    volatile int *stage = argument;
    while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) < 50) {
        int before = __atomic_load_n(stage, __ATOMIC_ACQUIRE);
        ANSWERS(heddle_park(), 0);
        CHECK(__atomic_load_n(stage, __ATOMIC_ACQUIRE) >= before);
    }
    return NULL;
}

static heddle_thread_t main_thread;

static void *foreign(void *argument) {
    heddle_thread_t self = heddle_thread_self();
    CHECK(self != HEDDLE_THREAD_NONE && heddle_thread_equal(self, heddle_thread_self()));
    CHECK(!heddle_thread_equal(self, main_thread));
    *(heddle_thread_t *)argument = self;
    ANSWERS(heddle_unpark(main_thread), 0);
    return NULL;
}

int main(void) {
    heddle_attr_t kernel = HEDDLE_ATTR_INIT;
    heddle_thread_t threads[THREADS], thread, self;
    pthread_t pthread;
    int numbers[THREADS], i, stage = 0;

    ANSWERS(heddle_start(NULL), 0);
    CHECK(heddle_mode() == asked_mode());
    CHECK(heddle_current_mode() == heddle_mode());
    kernel.mode = HEDDLE_MODE_KERNEL;
    main_thread = heddle_thread_self();

    memset(&mutex, 0xff, sizeof mutex);
    ANSWERS(heddle_mutex_init(&mutex), 0);
    ANSWERS(heddle_wait_group_add(&group, THREADS), 0);
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (i == 2) {
            CHECK(pthread_create(&pthread, NULL, all, &numbers[i]) == 0);
        } else {
            ANSWERS(heddle_thread_create(&threads[i], i % 2 == 0 ? NULL : &kernel, all, &numbers[i]), 0);
        }
    }
    heddle_sleep(5 * MILLISECOND);
    ANSWERS(heddle_event_set(&event), 0);
    ANSWERS(heddle_semaphore_post(&turn, THREADS), 0);
    ANSWERS(heddle_wait_group_wait(&group), 0);
    for (i = 0; i < THREADS; i++) {
        void *result = NULL;
        if (i == 2) {
            CHECK(pthread_join(pthread, &result) == 0);
        } else {
            ANSWERS(heddle_thread_join(threads[i], &result), 0);
        }
        CHECK(result == &numbers[i]);
    }
    CHECK(count == THREADS * ROUNDS && leaders == ROUNDS / 30 && next_turn == THREADS);

    ANSWERS(heddle_thread_create(&thread, NULL, parked, &stage), 0);
    while (stage < 50) {
        __atomic_fetch_add(&stage, 1, __ATOMIC_RELEASE);
        ANSWERS(heddle_unpark(thread), 0);
        heddle_yield();
    }
    ANSWERS(heddle_thread_join(thread, NULL), 0);

    /* A thread that Heddle has not made has a handle while it lives. */
    CHECK(pthread_create(&pthread, NULL, foreign, &self) == 0);
    ANSWERS(heddle_park(), 0);
    CHECK(pthread_join(pthread, NULL) == 0);
    ANSWERS(heddle_unpark(self), ESRCH);

    printf("%d rounds by %d threads\n", ROUNDS, THREADS);
    return 0;
}
