// Threads that are created, cancelled, interrupted, forked from, and end in every way, chosen at random.
//
//   lives [SEED] [SECONDS] [LANES]
//
// Prints its seed first. LANES threads each start one child after the other and follow it to its end; what each child does, and
// how it is disturbed, comes from the seed (how they interleave does not). Each life checks its own outcome: the value joined, the
// clean-up handlers and key destructors that ran, the signals handled, the status of a forked process. At the end no
// descriptor may be left over and the memory must have stopped growing. Exit status 0: all as it should be.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "lives: seed %llu: %s:%d: %s: ", seed, __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static unsigned long long seed;
static pthread_key_t key;
static atomic_ulong lives, cancels, signals, forks, detached_alive;
static atomic_bool over;
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long shared_count; // under shared_lock
static atomic_ulong shared_expected;

enum ending { RETURN, EXIT, CANCEL, CANCEL_ASYNC, SIGNAL, FORK, LOCK, ENDINGS };
enum place { NAP, PIPE, CONDITION, SEMAPHORE, SOCKET, SPIN, JOIN, PLACES };

struct life {
    enum ending ending;
    enum place place;
    pthread_t thread;
    sem_t reached;                  // posted by the child when it is about to block
    int fds[2];
    pthread_mutex_t lock;
    pthread_cond_t condition;
    sem_t never;
    atomic_int cleaned, destroyed, handled;
    atomic_bool let_go;
    unsigned repeat;
};

static __thread struct life *mine;

static uint64_t next_random(uint64_t *state) { // splitmix64
    uint64_t z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static void destroy(void *life) { atomic_fetch_add(&((struct life *)life)->destroyed, 1); }
static void clean(void *life) { atomic_fetch_add(&((struct life *)life)->cleaned, 1); }
static void clean_lock(void *life) {
    clean(life);
    pthread_mutex_unlock(&((struct life *)life)->lock);
}

static void on_signal(int number) {
    (void)number;
    int kept = errno;
    if (mine != NULL) atomic_fetch_add(&mine->handled, 1);
    errno = kept;
}

static void *sleeper(void *reached) {
    sem_post(reached);
    for (;;) pause();
    return NULL;
}

static void block(struct life *life) {
    char byte;
    switch (life->place) {
    case NAP:
        sem_post(&life->reached);
        while (!atomic_load(&life->let_go)) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        break;
    case PIPE:
    case SOCKET:
        sem_post(&life->reached);
        while (read(life->fds[0], &byte, 1) < 0) CHECK(errno == EINTR, "%s", strerror(errno));
        break;
    case CONDITION:
        pthread_mutex_lock(&life->lock);
        pthread_cleanup_push(clean_lock, life);
        sem_post(&life->reached);
        while (!atomic_load(&life->let_go)) pthread_cond_wait(&life->condition, &life->lock);
        pthread_cleanup_pop(1);
        break;
    case SEMAPHORE:
        sem_post(&life->reached);
        while (sem_wait(&life->never) != 0) CHECK(errno == EINTR, "%s", strerror(errno));
        break;
    case SPIN:
        sem_post(&life->reached);
        while (!atomic_load(&life->let_go)) pthread_testcancel();
        break;
    case JOIN: {
        pthread_t other;
        int old, error = pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
        CHECK(error == 0, "%s", strerror(error));
        sem_t asleep;
        sem_init(&asleep, 0, 0);
        error = pthread_create(&other, NULL, sleeper, &asleep);
        CHECK(error == 0, "pthread_create: %s", strerror(error));
        while (sem_wait(&asleep) != 0) {}
        pthread_cancel(other);
        void *result;
        error = pthread_join(other, &result);
        CHECK(error == 0 && result == PTHREAD_CANCELED, "%s", strerror(error));
        sem_destroy(&asleep);
        pthread_setcancelstate(old, NULL);
        sem_post(&life->reached);
        while (!atomic_load(&life->let_go)) usleep(1000);
        break;
    }
    default: abort();
    }
}

static void let_go(struct life *life) {
    atomic_store(&life->let_go, true);
    switch (life->place) {
    case PIPE:
    case SOCKET: CHECK(write(life->fds[1], "x", 1) == 1, "%s", strerror(errno)); break;
    case CONDITION:
        pthread_mutex_lock(&life->lock);
        pthread_cond_signal(&life->condition);
        pthread_mutex_unlock(&life->lock);
        break;
    case SEMAPHORE: sem_post(&life->never); break;
    default: break;
    }
}

static void fork_from_here(struct life *life) {
    // `life` is on another thread's stack, which the child may use for new threads.
    int ending = (int)(40 + life->repeat % 40);
    pid_t child = fork();
    CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        pthread_t other;
        sem_t asleep;
        sem_init(&asleep, 0, 0);
        if (pthread_create(&other, NULL, sleeper, &asleep) != 0) _exit(1);
        while (sem_wait(&asleep) != 0) {}
        if (pthread_cancel(other) != 0 || pthread_join(other, NULL) != 0) _exit(2);
        _exit(ending);
    }
    int status;
    while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == ending, "status %#x", status);
    atomic_fetch_add(&forks, 1);
}

static void *child(void *argument) {
    struct life *life = argument;
    mine = life;
    CHECK(pthread_setspecific(key, life) == 0, "pthread_setspecific");
    pthread_cleanup_push(clean, life);
    switch (life->ending) {
    case RETURN: break;
    case EXIT: pthread_exit((void *)(uintptr_t)(1000 + life->repeat));
    case CANCEL: block(life); break;
    case CANCEL_ASYNC:
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
        sem_post(&life->reached);
        for (volatile unsigned i = 0;; i++) {}
    case SIGNAL: block(life); break;
    case FORK: fork_from_here(life); break;
    case LOCK:
        for (unsigned i = 0; i < 1 + life->repeat; i++) {
            pthread_mutex_lock(&shared_lock);
            shared_count++;
            pthread_mutex_unlock(&shared_lock);
        }
        atomic_fetch_add(&shared_expected, 1 + life->repeat);
        break;
    default: abort();
    }
    pthread_cleanup_pop(1);
    mine = NULL;
    return (void *)(uintptr_t)(1000 + life->repeat);
}

static void *detached(void *alive) {
    usleep(100);
    atomic_fetch_sub((atomic_ulong *)alive, 1);
    return NULL;
}

static void live(uint64_t *random) {
    struct life life = {.ending = next_random(random) % ENDINGS, .place = next_random(random) % PLACES,
                        .repeat = next_random(random) % 100, .fds = {-1, -1}};
    if (life.ending == FORK && next_random(random) % 8 != 0) life.ending = LOCK; // forks are slow
    sem_init(&life.reached, 0, 0);
    sem_init(&life.never, 0, 0);
    pthread_mutex_init(&life.lock, NULL);
    pthread_cond_init(&life.condition, NULL);
    if (life.place == PIPE) CHECK(pipe(life.fds) == 0, "pipe: %s", strerror(errno));
    if (life.place == SOCKET)
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, life.fds) == 0, "socketpair: %s", strerror(errno));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (next_random(random) % 3 == 0) pthread_attr_setstacksize(&attributes, 64 * 1024 << next_random(random) % 5);
    if (next_random(random) % 5 == 0) pthread_attr_setguardsize(&attributes, 4096 * (next_random(random) % 4));

    int error = pthread_create(&life.thread, &attributes, child, &life);
    CHECK(error == 0, "pthread_create: %s", strerror(error));
    void *expected = (void *)(uintptr_t)(1000 + life.repeat);
    int handled = 0;
    bool blocks = life.ending == CANCEL || life.ending == CANCEL_ASYNC || life.ending == SIGNAL;
    if (blocks) {
        while (sem_wait(&life.reached) != 0) CHECK(errno == EINTR, "%s", strerror(errno));
        if (next_random(random) % 2) usleep(next_random(random) % 300); // let it really block, or not
    }
    switch (life.ending) {
    case CANCEL:
    case CANCEL_ASYNC:
        error = pthread_cancel(life.thread);
        CHECK(error == 0, "pthread_cancel: %s", strerror(error));
        expected = PTHREAD_CANCELED;
        atomic_fetch_add(&cancels, 1);
        break;
    case SIGNAL:
        for (unsigned i = 0; i < 1 + life.repeat % 3; i++) {
            error = pthread_kill(life.thread, SIGUSR1);
            CHECK(error == 0, "pthread_kill: %s", strerror(error));
            handled++;
            // The next one is sent when this one has been handled: none is merged.
            while (atomic_load(&life.handled) < handled) sched_yield();
            atomic_fetch_add(&signals, 1);
        }
        let_go(&life);
        break;
    default: break;
    }
    void *result;
    if (next_random(random) % 4 == 0) {
        struct timespec far;
        clock_gettime(CLOCK_MONOTONIC, &far);
        far.tv_sec += 60;
        error = pthread_clockjoin_np(life.thread, &result, CLOCK_MONOTONIC, &far);
    } else {
        error = pthread_join(life.thread, &result);
    }
    CHECK(error == 0, "join: %s (ending %d, place %d)", strerror(error), life.ending, life.place);
    CHECK(result == expected, "joined %p instead of %p (ending %d, place %d)", result, expected, life.ending, life.place);
    // The outer handler always; the condition's whenever its wait was entered.
    int cleaned = 1 + ((life.ending == CANCEL || life.ending == SIGNAL) && life.place == CONDITION);
    CHECK(atomic_load(&life.cleaned) == cleaned, "%d clean-ups instead of %d (ending %d, place %d)", life.cleaned, cleaned,
          life.ending, life.place);
    CHECK(atomic_load(&life.destroyed) == 1, "%d destructors (ending %d, place %d)", life.destroyed, life.ending, life.place);
    CHECK(atomic_load(&life.handled) == handled, "%d signals instead of %d", life.handled, handled);
    if (next_random(random) % 6 == 0) {
        pthread_t other;
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        atomic_fetch_add(&detached_alive, 1);
        error = pthread_create(&other, &attributes, detached, &detached_alive);
        CHECK(error == 0, "pthread_create: %s", strerror(error));
    }
    pthread_attr_destroy(&attributes);
    if (life.fds[0] >= 0) {
        close(life.fds[0]);
        close(life.fds[1]);
    }
    pthread_cond_destroy(&life.condition);
    pthread_mutex_destroy(&life.lock);
    sem_destroy(&life.reached);
    sem_destroy(&life.never);
    atomic_fetch_add(&lives, 1);
}

static void *lane(void *number) {
    uint64_t random = seed * 1000003 + (uintptr_t)number;
    while (!atomic_load(&over)) live(&random);
    return NULL;
}

static unsigned open_descriptors(void) {
    unsigned n = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory) != NULL) n++;
    closedir(directory);
    return n;
}

static unsigned long resident_kib(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%*u %lu", &pages) == 1, "/proc/self/statm");
    fclose(file);
    return pages * 4;
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (unsigned long long)time(NULL) ^ (unsigned long long)getpid() << 20;
    double seconds = argc > 2 ? atof(argv[2]) : 5;
    long lanes = argc > 3 ? atol(argv[3]) : 8;
    printf("seed %llu\n", seed);
    fflush(stdout);
    pthread_key_create(&key, destroy);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    unsigned before = open_descriptors();
    // The first cancellation loads libgcc_s, and glibc cannot fork in the middle of that.
    pthread_t first;
    sem_t asleep;
    sem_init(&asleep, 0, 0);
    CHECK(pthread_create(&first, NULL, sleeper, &asleep) == 0, "pthread_create");
    sem_wait(&asleep);
    CHECK(pthread_cancel(first) == 0 && pthread_join(first, NULL) == 0, "the first cancellation");
    pthread_t *threads = calloc((size_t)lanes, sizeof *threads);
    CHECK(threads != NULL && lanes > 0, "usage: lives [SEED] [SECONDS] [LANES]");
    for (long i = 0; i < lanes; i++) CHECK(pthread_create(&threads[i], NULL, lane, (void *)(uintptr_t)i) == 0, "lane %ld", i);
    // A third of the time to warm up; what is resident then may grow by a fifth and 16 MiB.
    usleep((useconds_t)(seconds / 3 * 1e6));
    unsigned long early = resident_kib();
    usleep((useconds_t)(seconds / 3 * 2e6));
    atomic_store(&over, true);
    for (long i = 0; i < lanes; i++) CHECK(pthread_join(threads[i], NULL) == 0, "lane %ld", i);
    while (atomic_load(&detached_alive) != 0) usleep(1000);
    unsigned long late = resident_kib();
    CHECK(shared_count == shared_expected, "%lu of %lu counted", shared_count, (unsigned long)shared_expected);
    CHECK(late <= early + early / 5 + 16 * 1024, "resident: %lu KiB, then %lu KiB", early, late);
    // What the runtime holds.
    unsigned left = open_descriptors();
    CHECK(left <= before + 3, "%u descriptors, %u at the beginning", left, before);
    printf("%lu lives, %lu cancelled, %lu signals, %lu forks; %lu KiB resident, then %lu KiB\n", lives, cancels, signals, forks,
           early, late);
    return 0;
}
