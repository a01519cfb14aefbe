// Scripts of pthread operations from a seed, whose outcome is written down to be compared with NPTL's.
//
//   ops SEED [STEPS]
//
// THREADS threads do one operation at a time on shared objects of every kind, told by main, so that the outcome depends on the
// seed alone: each step prints the thread, the operation and what it returned. Operations that could wait for ever are only
// used in their timed form, or when a model of the object says that they will not wait. Threads end and are replaced on the way,
// some while they hold locks.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 5, MUTEXES = 7, RWLOCKS = 2, SEMAPHORES = 2, CONDITIONS = 2, KEYS = 3 };

enum operation {
    LOCK_TIMED, TRYLOCK, UNLOCK, CONSISTENT, CLOCKLOCK, READ_TIMED, WRITE_TIMED, TRY_READ, TRY_WRITE, RELEASE, SEM_POST,
    SEM_TRY, SEM_TIMED, COND_TIMED, COND_SIGNAL, COND_BROADCAST, SET_KEY, GET_KEY, MASK, PENDING, SIGNAL_SELF,
    SIGNAL_OTHER, SIGTIMED, CANCEL_STATE, TESTCANCEL, NAME, EQUAL, ONCE, SPIN, YIELD, SLEEP, END, END_EXIT, END_CANCEL,
    OPERATIONS
};
static const char *const names[] = {
    "lock_timed", "trylock", "unlock", "consistent", "clocklock", "read_timed", "write_timed", "try_read", "try_write",
    "release", "sem_post", "sem_try", "sem_timed", "cond_timed", "cond_signal", "cond_broadcast", "set_key", "get_key",
    "mask", "pending", "signal_self", "signal_other", "sigtimed", "cancel_state", "testcancel", "name", "equal", "once", "spin",
    "yield", "sleep", "end", "end_exit", "end_cancel",
};

struct slot {
    pthread_t thread;
    sem_t go, done;
    enum operation operation;
    unsigned object, other;
    long result, extra;
    bool ended;
};

static struct slot slots[THREADS];
static pthread_mutex_t mutexes[MUTEXES];
static pthread_rwlock_t rwlocks[RWLOCKS];
static sem_t semaphores[SEMAPHORES];
static pthread_cond_t conditions[CONDITIONS];
static pthread_mutex_t condition_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t keys[KEYS];
static pthread_once_t onces[2] = {PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT};
static pthread_spinlock_t spin;
static volatile int once_count, destroyed, handled;
static __thread int handled_here;

static void need(int error, const char *what) {
    if (error != 0) {
        fprintf(stderr, "ops: %s: %s\n", what, strerror(error));
        exit(1);
    }
}
static void count_once(void) { once_count++; }
static void count_destroyed(void *value) { destroyed += (int)(intptr_t)value; }
static void on_signal(int number) {
    (void)number;
    handled++;
    handled_here++;
}

static struct timespec soon(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += 2000000;
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    return t;
}

static void perform(struct slot *s) {
    struct timespec until = soon(CLOCK_REALTIME), until_monotonic = soon(CLOCK_MONOTONIC);
    pthread_mutex_t *mutex = &mutexes[s->object % MUTEXES];
    pthread_rwlock_t *rwlock = &rwlocks[s->object % RWLOCKS];
    sem_t *semaphore = &semaphores[s->object % SEMAPHORES];
    pthread_cond_t *condition = &conditions[s->object % CONDITIONS];
    sigset_t set;
    int old;
    s->result = s->extra = 0;
    switch (s->operation) {
    case LOCK_TIMED: s->result = pthread_mutex_timedlock(mutex, &until); break;
    case CLOCKLOCK: s->result = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until_monotonic); break;
    case TRYLOCK: s->result = pthread_mutex_trylock(mutex); break;
    case UNLOCK: s->result = pthread_mutex_unlock(mutex); break;
    case CONSISTENT: s->result = pthread_mutex_consistent(mutex); break;
    case READ_TIMED: s->result = pthread_rwlock_timedrdlock(rwlock, &until); break;
    case WRITE_TIMED: s->result = pthread_rwlock_clockwrlock(rwlock, CLOCK_MONOTONIC, &until_monotonic); break;
    case TRY_READ: s->result = pthread_rwlock_tryrdlock(rwlock); break;
    case TRY_WRITE: s->result = pthread_rwlock_trywrlock(rwlock); break;
    case RELEASE: s->result = pthread_rwlock_unlock(rwlock); break;
    case SEM_POST: s->result = sem_post(semaphore); break;
    case SEM_TRY: s->result = sem_trywait(semaphore) ? errno : 0; break;
    case SEM_TIMED: s->result = sem_timedwait(semaphore, &until) ? errno : 0; break;
    case COND_TIMED:
        need(pthread_mutex_lock(&condition_lock), "lock");
        s->result = s->other % 2 ? pthread_cond_timedwait(condition, &condition_lock, &until)
                                 : pthread_cond_clockwait(condition, &condition_lock, CLOCK_MONOTONIC, &until_monotonic);
        need(pthread_mutex_unlock(&condition_lock), "unlock");
        break;
    case COND_SIGNAL: s->result = pthread_cond_signal(condition); break;
    case COND_BROADCAST: s->result = pthread_cond_broadcast(condition); break;
    case SET_KEY: s->result = pthread_setspecific(keys[s->object % KEYS], (void *)(uintptr_t)(1 + s->other % 9)); break;
    case GET_KEY: s->extra = (long)pthread_getspecific(keys[s->object % KEYS]); break;
    case MASK:
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1 + (int)(s->object % 2) * (SIGUSR2 - SIGUSR1));
        s->result = pthread_sigmask(s->other % 2 ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
        s->extra = handled_here;
        break;
    case PENDING:
        s->result = sigpending(&set);
        s->extra = sigismember(&set, SIGUSR1) + 2 * sigismember(&set, SIGUSR2);
        break;
    case SIGNAL_SELF:
        s->result = pthread_kill(pthread_self(), s->object % 2 ? SIGUSR1 : SIGUSR2);
        s->extra = handled_here;
        break;
    case SIGNAL_OTHER: s->result = pthread_kill(slots[s->other % THREADS].thread, 0); break;
    case SIGTIMED:
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        s->result = sigtimedwait(&set, NULL, &(struct timespec){.tv_nsec = 1000000});
        if (s->result < 0) s->extra = errno;
        break;
    case CANCEL_STATE:
        s->result = pthread_setcancelstate(s->object % 2 ? PTHREAD_CANCEL_ENABLE : PTHREAD_CANCEL_DISABLE, &old);
        s->extra = old;
        break;
    case TESTCANCEL: pthread_testcancel(); break;
    case NAME: {
        char name[16];
        snprintf(name, sizeof name, "ops-%u", s->object % 100);
        s->result = pthread_setname_np(pthread_self(), name);
        char back[16] = "";
        pthread_getname_np(pthread_self(), back, sizeof back);
        s->extra = strcmp(name, back);
        break;
    }
    case EQUAL: s->result = pthread_equal(pthread_self(), slots[s->other % THREADS].thread) != 0; break;
    case ONCE:
        s->result = pthread_once(&onces[s->object % 2], count_once);
        s->extra = once_count;
        break;
    case SPIN:
        s->result = pthread_spin_trylock(&spin);
        if (s->result == 0) pthread_spin_unlock(&spin);
        break;
    case YIELD: s->result = sched_yield(); break;
    case SLEEP: s->result = nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); break;
    default: break;
    }
}

static void *body(void *argument) {
    struct slot *s = argument;
    for (;;) {
        while (sem_wait(&s->go) != 0) {}
        if (s->operation == END) return (void *)7;
        if (s->operation == END_EXIT) pthread_exit((void *)8);
        if (s->operation == END_CANCEL) {
            pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
            pthread_cancel(pthread_self());
            pthread_testcancel();
        }
        perform(s);
        sem_post(&s->done);
    }
}

static uint64_t state;
static unsigned next_random(void) { // splitmix64
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (unsigned)((z ^ (z >> 31)) >> 20);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: ops SEED [STEPS]\n");
        return 2;
    }
    state = strtoull(argv[1], NULL, 10);
    long steps = argc > 2 ? atol(argv[2]) : 400;
    static const int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_RECURSIVE};
    for (int i = 0; i < MUTEXES; i++) {
        pthread_mutexattr_t a;
        pthread_mutexattr_init(&a);
        // Unlocking a normal mutex of another thread is undefined: those that check come first.
        pthread_mutexattr_settype(&a, kinds[1 + i % 2]);
        if (i == 2 || i == 3) need(pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST), "setrobust");
        if (i == 4 || i == 5) need(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT), "setprotocol");
        if (i == 6) need(pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED), "setpshared");
        need(pthread_mutex_init(&mutexes[i], &a), "mutex_init");
    }
    for (int i = 0; i < RWLOCKS; i++) {
        pthread_rwlockattr_t a;
        pthread_rwlockattr_init(&a);
        if (i == 1) pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
        need(pthread_rwlock_init(&rwlocks[i], &a), "rwlock_init");
    }
    for (int i = 0; i < SEMAPHORES; i++) need(sem_init(&semaphores[i], i, 1), "sem_init");
    for (int i = 0; i < CONDITIONS; i++) need(pthread_cond_init(&conditions[i], NULL), "cond_init");
    for (int i = 0; i < KEYS; i++) need(pthread_key_create(&keys[i], count_destroyed), "key_create");
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    // Who holds which read-write lock how often, so that only holders release.
    int readers[RWLOCKS][THREADS] = {0}, writer[RWLOCKS] = {-1, -1};

    for (int i = 0; i < THREADS; i++) {
        sem_init(&slots[i].go, 0, 0);
        sem_init(&slots[i].done, 0, 0);
        need(pthread_create(&slots[i].thread, NULL, body, &slots[i]), "pthread_create");
    }
    for (long step = 0; step < steps; step++) {
        unsigned who = next_random() % THREADS;
        struct slot *s = &slots[who];
        s->operation = next_random() % OPERATIONS;
        s->object = next_random();
        s->other = next_random();
        unsigned lock = s->object % RWLOCKS;
        if (s->operation == EQUAL || s->operation == SPIN || s->operation == NAME)
            if (next_random() % 2) s->operation = next_random() % 2 ? UNLOCK : RELEASE; // locks must come free
        if (s->operation >= END && next_random() % 4 != 0) s->operation = YIELD; // few ends
        if (s->operation == RELEASE && writer[lock] != (int)who && readers[lock][who] == 0) s->operation = TRY_READ;
        // A thread that holds a read-write lock may not wait for the same, nor end.
        if ((s->operation == READ_TIMED || s->operation == WRITE_TIMED) && readers[lock][who] != 0) s->operation = TRY_WRITE;
        for (int i = 0; s->operation >= END && i < RWLOCKS; i++)
            if (readers[i][who] != 0 || writer[i] == (int)who) s->operation = YIELD;
        if (s->operation >= END) {
            void *result;
            sem_post(&s->go);
            need(pthread_join(s->thread, &result), "join");
            printf("%ld: %u %s -> %ld, %d destroyed, %d handled\n", step, who, names[s->operation],
                   result == PTHREAD_CANCELED ? -1 : (long)result, destroyed, handled);
            need(pthread_create(&s->thread, NULL, body, s), "pthread_create");
            continue;
        }
        sem_post(&s->go);
        while (sem_wait(&s->done) != 0) {}
        if (s->result == 0 && (s->operation == READ_TIMED || s->operation == TRY_READ)) readers[lock][who]++;
        if (s->result == 0 && (s->operation == WRITE_TIMED || s->operation == TRY_WRITE)) writer[lock] = (int)who;
        if (s->operation == RELEASE && s->result == 0) {
            if (writer[lock] == (int)who) writer[lock] = -1;
            else readers[lock][who]--;
        }
        printf("%ld: %u %s %u %u -> %ld %ld\n", step, who, names[s->operation], s->object % 210, s->other % 10, s->result,
               s->extra);
    }
    printf("%d handled, %d destroyed, %d once\n", handled, destroyed, once_count);
    return 0;
}
