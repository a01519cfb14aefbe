/* Fibers: what they share with threads, what is refused, and what the locks are in them. */
#include "check.h"

enum { FIBERS = 200, ROUNDS = 50 };

static const heddle_fiber_t none = HEDDLE_FIBER_INIT;

static void *nothing(void *argument) {
    return argument;
}

static void *wait_for(void *event) {
    ANSWERS(heddle_event_wait((heddle_event_t *)event), 0);
    return event;
}

/* Runs it as a fiber. */
static void *in_fiber(void *(*f)(void *), void *argument) {
    heddle_fiber_t fiber;
    void *result = NULL;
    ANSWERS(heddle_fiber_create(&fiber, NULL, f, argument), 0);
    ANSWERS(heddle_fiber_join(fiber, &result), 0);
    return result;
}

static void *join_fiber(void *fiber) {
    return (void *)(size_t)heddle_fiber_join(*(heddle_fiber_t *)fiber, NULL);
}

/* Waits until the fiber of the handle is no more. */
static void await_gone(heddle_fiber_t fiber) {
    while (heddle_fiber_detach(fiber) != ESRCH) {
        heddle_yield();
    }
}

static void *who(void *argument) {
    heddle_fiber_t me = heddle_fiber_self();
    CHECK(heddle_is_fiber());
    CHECK(heddle_fiber_equal(me, heddle_fiber_self()));
    CHECK(!heddle_fiber_equal(me, none));
    ANSWERS(heddle_fiber_join(me, NULL), EDEADLK);
    ANSWERS(heddle_fiber_join_within(me, NULL, 0, NULL), EDEADLK);
    ANSWERS(heddle_fiber_yield(), 0);
    CHECK(heddle_fiber_equal(me, heddle_fiber_self()));
    *(heddle_fiber_t *)argument = me;
    /* Its thread's affairs. */
    CHECK(heddle_thread_self() == HEDDLE_THREAD_NONE);
    ANSWERS(heddle_park(), EAGAIN);
    ANSWERS(heddle_timedpark(MILLISECOND), EAGAIN);
    return NULL;
}

static void *detach_self(void *event) {
    ANSWERS(heddle_fiber_detach(heddle_fiber_self()), 0);
    ANSWERS(heddle_fiber_detach(heddle_fiber_self()), EINVAL);
    ANSWERS(heddle_event_set((heddle_event_t *)event), 0);
    return NULL;
}

/* From a thread, then from a fiber. */
static void *refusals(void *argument) {
    heddle_fiber_attr_t attr = HEDDLE_FIBER_ATTR_INIT;
    heddle_fiber_t fiber, other, old, itself;
    heddle_event_t event = HEDDLE_EVENT_INIT;
    heddle_token_t *token;
    void *result;
    int i;

    ANSWERS(heddle_fiber_create(NULL, NULL, nothing, NULL), EINVAL);
    fiber = heddle_fiber_self();
    ANSWERS(heddle_fiber_create(&fiber, NULL, NULL, NULL), EINVAL);
    CHECK(strstr(heddle_last_error(), "without a function") != NULL);
    attr.stack_size = 16383;
    ANSWERS(heddle_fiber_create(&fiber, &attr, nothing, NULL), EINVAL);
    CHECK(strstr(heddle_last_error(), "16383") != NULL);
    CHECK(heddle_fiber_equal(fiber, none));
    attr.stack_size = ((size_t)1 << 30) + 1;
    ANSWERS(heddle_fiber_create(&fiber, &attr, nothing, NULL), EINVAL);
    attr.stack_size = 0;
    attr.size = 1;
    ANSWERS(heddle_fiber_create(&fiber, &attr, nothing, NULL), EINVAL);
    {
        struct {
            heddle_fiber_attr_t known;
            size_t more;
        } later = {HEDDLE_FIBER_ATTR_INIT, 1};
        later.known.size = sizeof later;
        ANSWERS(heddle_fiber_create(&fiber, &later.known, nothing, NULL), E2BIG);
        later.more = 0;
        ANSWERS(heddle_fiber_create(&fiber, &later.known, nothing, NULL), 0);
        ANSWERS(heddle_fiber_join(fiber, NULL), 0);
    }

    ANSWERS(heddle_fiber_join(none, NULL), ESRCH);
    ANSWERS(heddle_fiber_join_within(none, NULL, 0, NULL), ESRCH);
    ANSWERS(heddle_fiber_detach(none), ESRCH);

    /* Twice. */
    ANSWERS(heddle_fiber_create(&fiber, NULL, nothing, &i), 0);
    ANSWERS(heddle_fiber_join(fiber, (void **)((char *)&result + 1)), EINVAL);
    ANSWERS(heddle_fiber_join(fiber, &result), 0);
    CHECK(result == &i);
    ANSWERS(heddle_fiber_join(fiber, NULL), ESRCH);
    ANSWERS(heddle_fiber_join_within(fiber, NULL, 0, NULL), ESRCH);
    ANSWERS(heddle_fiber_detach(fiber), ESRCH);
    old = fiber;
    for (i = 0; i < 2000; i++) {
        /* The old handle stays dead when its stack is used again. */
        ANSWERS(heddle_fiber_create(&fiber, NULL, nothing, NULL), 0);
        CHECK(!heddle_fiber_equal(fiber, old));
        ANSWERS(heddle_fiber_join(old, NULL), ESRCH);
        ANSWERS(heddle_fiber_join(fiber, NULL), 0);
    }

    /* With limits. */
    ANSWERS(heddle_fiber_create(&fiber, NULL, wait_for, &event), 0);
    ANSWERS(heddle_fiber_join_within(fiber, NULL, 0, NULL), ETIMEDOUT);
    ANSWERS(heddle_fiber_join_within(fiber, NULL, MILLISECOND, NULL), ETIMEDOUT);
    ANSWERS(heddle_token_create(&token, NULL), 0);
    ANSWERS(heddle_token_cancel(token), 0);
    ANSWERS(heddle_fiber_join_within(fiber, NULL, HEDDLE_FOREVER, token), ECANCELED);
    ANSWERS(heddle_token_destroy(token), 0);

    /* One that another joins, and one that is detached. */
    ANSWERS(heddle_fiber_create(&other, NULL, join_fiber, &fiber), 0);
    ANSWERS(heddle_fiber_detach(other), 0);
    ANSWERS(heddle_fiber_detach(other), EINVAL);
    ANSWERS(heddle_fiber_join(other, NULL), EINVAL);
    heddle_sleep(20 * MILLISECOND);
    ANSWERS(heddle_fiber_join(fiber, NULL), EINVAL);
    ANSWERS(heddle_fiber_detach(fiber), EINVAL);
    ANSWERS(heddle_event_set(&event), 0);
    await_gone(fiber);
    await_gone(other);

    /* Detached before it begins or waits, while it waits, when it has ended, and by itself. */
    ANSWERS(heddle_event_reset(&event), 0);
    ANSWERS(heddle_fiber_create(&fiber, NULL, wait_for, &event), 0);
    ANSWERS(heddle_fiber_detach(fiber), 0);
    ANSWERS(heddle_fiber_create(&other, NULL, wait_for, &event), 0);
    heddle_sleep(20 * MILLISECOND);
    ANSWERS(heddle_fiber_detach(other), 0);
    ANSWERS(heddle_event_set(&event), 0);
    await_gone(fiber);
    await_gone(other);
    ANSWERS(heddle_fiber_create(&fiber, NULL, nothing, NULL), 0);
    heddle_sleep(20 * MILLISECOND);
    ANSWERS(heddle_fiber_detach(fiber), 0);
    await_gone(fiber);
    ANSWERS(heddle_event_reset(&event), 0);
    ANSWERS(heddle_fiber_create(&fiber, NULL, detach_self, &event), 0);
    ANSWERS(heddle_event_wait(&event), 0);
    await_gone(fiber);

    /* Who one is. */
    ANSWERS(heddle_fiber_create(&fiber, NULL, who, &itself), 0);
    ANSWERS(heddle_fiber_join(fiber, NULL), 0);
    CHECK(heddle_fiber_equal(fiber, itself));
    return argument;
}

/* A fiber that is joined by as many fibers and threads as there are here: one of them gets it. */
static void one_joins(void) {
    heddle_fiber_t fiber, fibers[4];
    heddle_thread_t threads[4];
    heddle_event_t event = HEDDLE_EVENT_INIT;
    int i, round, joined;
    void *answer;

    for (round = 0; round < ROUNDS; round++) {
        ANSWERS(heddle_event_reset(&event), 0);
        ANSWERS(heddle_fiber_create(&fiber, NULL, wait_for, &event), 0);
        for (i = 0; i < 4; i++) {
            ANSWERS(heddle_fiber_create(&fibers[i], NULL, join_fiber, &fiber), 0);
            ANSWERS(heddle_thread_create(&threads[i], NULL, join_fiber, &fiber), 0);
        }
        ANSWERS(heddle_event_set(&event), 0);
        for (i = joined = 0; i < 4; i++) {
            ANSWERS(heddle_fiber_join(fibers[i], &answer), 0);
            CHECK(answer == NULL || (size_t)answer == EINVAL || (size_t)answer == ESRCH);
            joined += answer == NULL;
            ANSWERS(heddle_thread_join(threads[i], &answer), 0);
            CHECK(answer == NULL || (size_t)answer == EINVAL || (size_t)answer == ESRCH);
            joined += answer == NULL;
        }
        CHECK(joined == 1);
    }
}

/* Stacks that have lost their memory, which very many leave behind: old handles stay dead. */
static void *very_many(void *argument) {
    enum { MANY = 3000 };
    static heddle_fiber_t first[MANY], second[MANY];
    heddle_event_t event = HEDDLE_EVENT_INIT;
    heddle_fiber_t *handles[2];
    int i, round;
    handles[0] = first;
    handles[1] = second;
    for (round = 0; round < 2; round++) {
        ANSWERS(heddle_event_reset(&event), 0);
        for (i = 0; i < MANY; i++) {
            ANSWERS(heddle_fiber_create(&handles[round][i], NULL, wait_for, &event), 0);
        }
        for (i = 0; round == 1 && i < MANY; i++) {
            ANSWERS(heddle_fiber_detach(first[i]), ESRCH);
        }
        ANSWERS(heddle_event_set(&event), 0);
        for (i = 0; i < MANY; i++) {
            ANSWERS(heddle_fiber_join(handles[round][i], NULL), 0);
        }
    }
    return argument;
}

static heddle_mutex_t mutex = HEDDLE_MUTEX_INIT;
static heddle_rwlock_t lock = HEDDLE_RWLOCK_INIT;
static heddle_cond_t cond = HEDDLE_COND_INIT;
static heddle_once_t once = HEDDLE_ONCE_INIT;
static unsigned long count, arrived;

static void first_time(void *argument) {
    (void)argument;
    heddle_sleep(MILLISECOND);
    ANSWERS(heddle_once(&once, first_time, NULL), EDEADLK);
}

/* What holds a lock is the fiber, not the thread that carries it. */
static void *uses_locks(void *argument) {
    int i;
    ANSWERS(heddle_once(&once, first_time, NULL), 0);
    for (i = 0; i < ROUNDS; i++) {
        unsigned long before;
        ANSWERS(heddle_mutex_lock(&mutex), 0);
        ANSWERS(heddle_mutex_lock(&mutex), EDEADLK);
        before = count;
        if (i % 8 == 0) {
            heddle_yield();
        }
        count = before + 1;
        ANSWERS(heddle_mutex_unlock(&mutex), 0);
        ANSWERS(heddle_mutex_unlock(&mutex), EPERM);
        ANSWERS(heddle_rwlock_wrlock(&lock), 0);
        ANSWERS(heddle_rwlock_rdlock(&lock), EDEADLK);
        if (i % 8 == 1) {
            heddle_sleep(1000);
        }
        ANSWERS(heddle_rwlock_unlock(&lock), 0);
    }
    ANSWERS(heddle_mutex_lock(&mutex), 0);
    arrived++;
    if (arrived == 2 * FIBERS) {
        ANSWERS(heddle_cond_broadcast(&cond), 0);
    }
    while (arrived < 2 * FIBERS) {
        ANSWERS(heddle_cond_wait(&cond, &mutex), 0);
    }
    ANSWERS(heddle_mutex_unlock(&mutex), 0);
    return argument;
}

static void locks(void) {
    static heddle_fiber_t fibers[FIBERS];
    static heddle_thread_t threads[FIBERS];
    int i;
    for (i = 0; i < FIBERS; i++) {
        ANSWERS(heddle_fiber_create(&fibers[i], NULL, uses_locks, NULL), 0);
        ANSWERS(heddle_thread_create(&threads[i], NULL, uses_locks, NULL), 0);
    }
    for (i = 0; i < FIBERS; i++) {
        ANSWERS(heddle_fiber_join(fibers[i], NULL), 0);
        ANSWERS(heddle_thread_join(threads[i], NULL), 0);
    }
    CHECK(count == 2 * FIBERS * ROUNDS);
}

static void *send(void *channel) {
    int i;
    for (i = 0; i < ROUNDS; i++) {
        ANSWERS(heddle_channel_send((heddle_channel_t *)channel, &i), 0);
    }
    return NULL;
}

static void *receive(void *channel) {
    size_t sum = 0;
    int i, value;
    for (i = 0; i < ROUNDS; i++) {
        ANSWERS(heddle_channel_receive((heddle_channel_t *)channel, &value), 0);
        sum += (size_t)value;
    }
    return (void *)sum;
}

static void channels(void) {
    heddle_fiber_t sender;
    heddle_channel_t *channel;
    ANSWERS(heddle_channel_create(&channel, sizeof(int), 0), 0);
    ANSWERS(heddle_fiber_create(&sender, NULL, send, channel), 0);
    CHECK((size_t)in_fiber(receive, channel) == ROUNDS * (ROUNDS - 1) / 2);
    ANSWERS(heddle_fiber_join(sender, NULL), 0);
    ANSWERS(heddle_channel_destroy(channel), 0);
}

/* As much of the stack as it says is there. */
static void *fill(void *bytes) {
    volatile char room[200 * 1024];
    size_t i;
    for (i = 0; i < sizeof room; i += 512) {
        room[i] = (char)i;
    }
    return room[512] == 0 ? bytes : NULL;
}

static void stacks(void) {
    heddle_fiber_attr_t attr = HEDDLE_FIBER_ATTR_INIT;
    heddle_fiber_t fiber;
    void *result;
    attr.stack_size = 256 * 1024;
    ANSWERS(heddle_fiber_create(&fiber, &attr, fill, &attr), 0);
    ANSWERS(heddle_fiber_join(fiber, &result), 0);
    CHECK(result == &attr);
    attr.stack_size = 16384;
    ANSWERS(heddle_fiber_create(&fiber, &attr, nothing, &attr), 0);
    ANSWERS(heddle_fiber_join(fiber, &result), 0);
    CHECK(result == &attr);
}

int main(void) {
    /* Nothing has started yet. */
    CHECK(!heddle_is_fiber());
    CHECK(heddle_fiber_equal(heddle_fiber_self(), none));
    ANSWERS(heddle_fiber_yield(), EPERM);
    ANSWERS(heddle_fiber_join(none, NULL), ESRCH);
    CHECK(in_fiber(nothing, &count) == &count);
    ANSWERS(heddle_start(NULL), EALREADY);
    CHECK(heddle_mode() == asked_mode());

    CHECK(refusals(&count) == &count);
    CHECK(in_fiber(refusals, &count) == &count);
    one_joins();
    CHECK(very_many(&count) == &count);
    CHECK(in_fiber(very_many, &count) == &count);
    locks();
    channels();
    stacks();
    CHECK(heddle_thread_self() != HEDDLE_THREAD_NONE);
    puts("fibers");
    return 0;
}
