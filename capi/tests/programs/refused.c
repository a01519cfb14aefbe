/* Bad input is answered by an error, and changes nothing. */
#include "check.h"

static void *nothing(void *argument) {
    return argument;
}

static void nothing_void(void *argument) {
    (void)argument;
}

static void *wait_for(void *event) {
    ANSWERS(heddle_event_wait((heddle_event_t *)event), 0);
    return NULL;
}

static void *join_self(void *argument) {
    (void)argument;
    ANSWERS(heddle_thread_join(heddle_thread_self(), NULL), EDEADLK);
    return NULL;
}

static void *join_other(void *thread) {
    return (void *)(size_t)heddle_thread_join(*(heddle_thread_t *)thread, NULL);
}

static void start(void) {
    heddle_options_t options = HEDDLE_OPTIONS_INIT;

    CHECK(strcmp(heddle_last_error(), "") == 0);
    options.workers = 0;
    ANSWERS(heddle_start(&options), EINVAL);
    CHECK(strstr(heddle_last_error(), "0 workers") != NULL);
    options.workers = 1025;
    ANSWERS(heddle_start(&options), EINVAL);
    options.workers = -2;
    ANSWERS(heddle_start(&options), EINVAL);
    options.workers = 2;
    options.mode = 77;
    ANSWERS(heddle_start(&options), EINVAL);
    options.mode = HEDDLE_MODE_DEFAULT;
    options.slice_ms = 10001;
    ANSWERS(heddle_start(&options), EINVAL);
    options.slice_ms = 0;
    options.helper_stack = 100;
    ANSWERS(heddle_start(&options), EINVAL);
    options.helper_stack = 1 << 20;
    options.size = 1;
    ANSWERS(heddle_start(&options), EINVAL);
    options.size = 1 << 20;
    ANSWERS(heddle_start(&options), EINVAL);
    ANSWERS(heddle_start((const heddle_options_t *)((const char *)&options + 1)), EINVAL);
    {
        /* A program of a later version: what it sets besides must be known. */
        struct {
            heddle_options_t known;
            size_t more[2];
        } later = {HEDDLE_OPTIONS_INIT, {0, 1}};
        later.known.size = sizeof later;
        later.known.workers = 2;
        ANSWERS(heddle_start(&later.known), E2BIG);
        later.more[1] = 0;
        ANSWERS(heddle_start(&later.known), 0);
    }
    options.size = sizeof options;
    ANSWERS(heddle_start(&options), EALREADY);
    CHECK(strstr(heddle_last_error(), "already") != NULL);
    ANSWERS(heddle_start(NULL), EALREADY);
    CHECK(heddle_mode() == asked_mode());
    CHECK(heddle_workers() == 2);
}

static void threads(void) {
    heddle_attr_t attr = HEDDLE_ATTR_INIT;
    heddle_thread_t thread = 1, other = 2, old;
    heddle_event_t event = HEDDLE_EVENT_INIT;
    char name[8];
    void *result;
    int i;

    ANSWERS(heddle_thread_create(NULL, NULL, nothing, NULL), EINVAL);
    ANSWERS(heddle_thread_create(&thread, NULL, NULL, NULL), EINVAL);
    attr.stack_size = 16383;
    ANSWERS(heddle_thread_create(&thread, &attr, nothing, NULL), EINVAL);
    CHECK(strstr(heddle_last_error(), "16383") != NULL);
    attr.stack_size = (size_t)1 << 60;
    i = heddle_thread_create(&thread, &attr, nothing, NULL);
    CHECK(i == EAGAIN || i == ENOMEM || i == EINVAL);
    attr.stack_size = 0;
    attr.mode = -1;
    ANSWERS(heddle_thread_create(&thread, &attr, nothing, NULL), EINVAL);
    if (heddle_mode() == HEDDLE_MODE_KERNEL) {
        attr.mode = HEDDLE_MODE_USER;
        ANSWERS(heddle_thread_create(&thread, &attr, nothing, NULL), ENOTSUP);
    }
    CHECK(thread == HEDDLE_THREAD_NONE);

    ANSWERS(heddle_thread_join(HEDDLE_THREAD_NONE, NULL), ESRCH);
    ANSWERS(heddle_thread_join(12345, NULL), ESRCH);
    ANSWERS(heddle_thread_join(~(heddle_thread_t)0, NULL), ESRCH);
    ANSWERS(heddle_thread_detach(HEDDLE_THREAD_NONE), ESRCH);
    ANSWERS(heddle_unpark(HEDDLE_THREAD_NONE), ESRCH);

    /* Twice. */
    ANSWERS(heddle_thread_create(&thread, NULL, nothing, &i), 0);
    ANSWERS(heddle_thread_join(thread, &result), 0);
    CHECK(result == &i);
    ANSWERS(heddle_thread_join(thread, NULL), ESRCH);
    ANSWERS(heddle_thread_detach(thread), ESRCH);
    ANSWERS(heddle_unpark(thread), ESRCH);
    old = thread;
    for (i = 0; i < 100; i++) {
        /* The old handle stays dead when its place is used again. */
        ANSWERS(heddle_thread_create(&thread, NULL, nothing, NULL), 0);
        CHECK(!heddle_thread_equal(thread, old));
        ANSWERS(heddle_thread_join(old, NULL), ESRCH);
        ANSWERS(heddle_thread_join(thread, NULL), 0);
    }

    /* Itself. */
    ANSWERS(heddle_thread_create(&thread, NULL, join_self, NULL), 0);
    ANSWERS(heddle_thread_join(thread, NULL), 0);
    ANSWERS(heddle_thread_join(heddle_thread_self(), NULL), EDEADLK);
    ANSWERS(heddle_thread_detach(heddle_thread_self()), EINVAL);

    /* One that another joins, and one that is detached. */
    ANSWERS(heddle_thread_create(&thread, NULL, wait_for, &event), 0);
    ANSWERS(heddle_thread_create(&other, NULL, join_other, &thread), 0);
    ANSWERS(heddle_thread_detach(other), 0);
    ANSWERS(heddle_thread_detach(other), EINVAL);
    ANSWERS(heddle_thread_join(other, NULL), EINVAL);
    /* `other` joins `thread` some time. */
    heddle_sleep(20 * MILLISECOND);
    i = heddle_thread_detach(thread);
    CHECK(i == EINVAL || i == 0);
    ANSWERS(heddle_thread_join(thread, NULL), EINVAL);
    ANSWERS(heddle_event_set(&event), 0);
    while (heddle_unpark(thread) != ESRCH || heddle_unpark(other) != ESRCH) {
        heddle_yield();
    }
    /* Detached when it has ended. */
    ANSWERS(heddle_thread_create(&thread, NULL, nothing, NULL), 0);
    heddle_sleep(20 * MILLISECOND);
    ANSWERS(heddle_thread_detach(thread), 0);
    while (heddle_unpark(thread) != ESRCH) {
        heddle_yield();
    }

    /* Names. */
    attr.mode = HEDDLE_MODE_DEFAULT;
    attr.name = "1234567";
    ANSWERS(heddle_event_reset(&event), 0);
    ANSWERS(heddle_thread_create(&thread, &attr, wait_for, &event), 0);
    ANSWERS(heddle_thread_name(thread, NULL, 8), EINVAL);
    ANSWERS(heddle_thread_name(thread, name, 7), ERANGE);
    ANSWERS(heddle_thread_name(thread, name, 8), 0);
    CHECK(strcmp(name, "1234567") == 0);
    ANSWERS(heddle_event_set(&event), 0);
    ANSWERS(heddle_thread_join(thread, NULL), 0);
    ANSWERS(heddle_thread_name(thread, name, 8), ESRCH);
}

static void *lock_states(void *argument) {
    void **locks = argument;
    heddle_mutex_t *mutex = locks[0];
    heddle_rwlock_t *lock = locks[1];
    heddle_cond_t cond = HEDDLE_COND_INIT;
    ANSWERS(heddle_mutex_unlock(mutex), EPERM);
    ANSWERS(heddle_mutex_trylock(mutex), EBUSY);
    ANSWERS(heddle_mutex_timedlock(mutex, MILLISECOND), ETIMEDOUT);
    ANSWERS(heddle_cond_wait(&cond, mutex), EPERM);
    ANSWERS(heddle_cond_timedwait(&cond, mutex, MILLISECOND), EPERM);
    ANSWERS(heddle_rwlock_unlock(lock), EPERM);
    ANSWERS(heddle_rwlock_tryrdlock(lock), EBUSY);
    ANSWERS(heddle_rwlock_trywrlock(lock), EBUSY);
    return NULL;
}

static void call_itself(void *once) {
    ANSWERS(heddle_once((heddle_once_t *)once, call_itself, once), EDEADLK);
}

static void locks(void) {
    heddle_mutex_t mutex = HEDDLE_MUTEX_INIT;
    heddle_rwlock_t lock = HEDDLE_RWLOCK_INIT;
    heddle_cond_t cond = HEDDLE_COND_INIT;
    heddle_barrier_t barrier = HEDDLE_BARRIER_INIT(0);
    heddle_semaphore_t semaphore = HEDDLE_SEMAPHORE_INIT(1);
    heddle_once_t once = HEDDLE_ONCE_INIT;
    heddle_event_t event = HEDDLE_EVENT_INIT;
    heddle_wait_group_t group = HEDDLE_WAIT_GROUP_INIT;
    heddle_thread_t thread;
    void *both[2];
    bool leader;

    ANSWERS(heddle_mutex_init(NULL), EINVAL);
    ANSWERS(heddle_mutex_lock(NULL), EINVAL);
    ANSWERS(heddle_mutex_lock((heddle_mutex_t *)((char *)&mutex + 1)), EINVAL);
    ANSWERS(heddle_mutex_unlock(&mutex), EPERM);
    ANSWERS(heddle_mutex_lock(&mutex), 0);
    ANSWERS(heddle_mutex_lock(&mutex), EDEADLK);
    ANSWERS(heddle_mutex_trylock(&mutex), EBUSY);
    ANSWERS(heddle_mutex_timedlock(&mutex, MILLISECOND), EDEADLK);

    ANSWERS(heddle_rwlock_init(NULL), EINVAL);
    ANSWERS(heddle_rwlock_unlock(&lock), EPERM);
    ANSWERS(heddle_rwlock_wrlock(&lock), 0);
    ANSWERS(heddle_rwlock_wrlock(&lock), EDEADLK);
    ANSWERS(heddle_rwlock_rdlock(&lock), EDEADLK);

    both[0] = &mutex;
    both[1] = &lock;
    ANSWERS(heddle_thread_create(&thread, NULL, lock_states, both), 0);
    ANSWERS(heddle_thread_join(thread, NULL), 0);
    ANSWERS(heddle_rwlock_unlock(&lock), 0);
    ANSWERS(heddle_rwlock_unlock(&lock), EPERM);
    ANSWERS(heddle_cond_wait(NULL, &mutex), EINVAL);
    ANSWERS(heddle_cond_wait(&cond, NULL), EINVAL);
    ANSWERS(heddle_cond_timedwait(&cond, &mutex, MILLISECOND), ETIMEDOUT);
    ANSWERS(heddle_cond_timedwait(&cond, &mutex, 0), ETIMEDOUT);
    ANSWERS(heddle_mutex_unlock(&mutex), 0);
    ANSWERS(heddle_mutex_unlock(&mutex), EPERM);

    ANSWERS(heddle_barrier_init(&barrier, 0), EINVAL);
    ANSWERS(heddle_barrier_wait(&barrier, NULL), EINVAL);
    ANSWERS(heddle_barrier_init(&barrier, 1), 0);
    ANSWERS(heddle_barrier_wait(&barrier, &leader), 0);
    CHECK(leader);

    ANSWERS(heddle_semaphore_wait(&semaphore), 0);
    ANSWERS(heddle_semaphore_trywait(&semaphore), EAGAIN);
    ANSWERS(heddle_semaphore_timedwait(&semaphore, MILLISECOND), ETIMEDOUT);
    ANSWERS(heddle_semaphore_post(&semaphore, UINT32_MAX), 0);
    ANSWERS(heddle_semaphore_post(&semaphore, 1), EOVERFLOW);
    ANSWERS(heddle_semaphore_wait(&semaphore), 0);

    ANSWERS(heddle_once(NULL, nothing_void, NULL), EINVAL);
    ANSWERS(heddle_once(&once, NULL, NULL), EINVAL);
    ANSWERS(heddle_once(&once, call_itself, &once), 0);

    ANSWERS(heddle_event_set(NULL), EINVAL);
    ANSWERS(heddle_event_timedwait(&event, MILLISECOND), ETIMEDOUT);
    ANSWERS(heddle_event_timedwait(&event, 0), ETIMEDOUT);
    ANSWERS(heddle_event_set(&event), 0);
    ANSWERS(heddle_event_timedwait(&event, 0), 0);

    ANSWERS(heddle_wait_group_done(&group), EPERM);
    ANSWERS(heddle_wait_group_wait(&group), 0);
    ANSWERS(heddle_wait_group_add(&group, UINT32_MAX), 0);
    ANSWERS(heddle_wait_group_add(&group, 1), EOVERFLOW);

    ANSWERS(heddle_timedpark(MILLISECOND), ETIMEDOUT);
}

static void jobs(void) {
    ANSWERS(heddle_fork_join(NULL, NULL, nothing_void, NULL), EINVAL);
    ANSWERS(heddle_fork_join(nothing_void, NULL, NULL, NULL), EINVAL);
    ANSWERS(heddle_scope(NULL, NULL), EINVAL);
    ANSWERS(heddle_scope_spawn(NULL, nothing_void, NULL), EINVAL);
    ANSWERS(heddle_for(0, 1, 1, NULL, NULL), EINVAL);
}

int main(void) {
    start();
    threads();
    locks();
    jobs();
    puts("all refused");
    return 0;
}
