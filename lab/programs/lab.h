// What the lab's programs share: arguments, a clock, output, and the tree of tasks. Plain C and pthreads: nothing here
// knows Heddle.
//
// Arguments are `name=value`. Output lines: `name number` for a figure, `check name number` for what must be the same in
// every program that did the same work.
#ifndef LAB_H
#define LAB_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((noreturn, format(printf, 1, 2), unused)) static void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    fflush(NULL);
    _exit(1);
}

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) die(__VA_ARGS__);                                                        \
    } while (0)

// pthread functions return the error instead of setting errno.
#define PTHREAD(call)                                                                              \
    do {                                                                                           \
        int error_ = (call);                                                                       \
        if (error_ != 0) die("%s: %s", #call, strerror(error_));                                   \
    } while (0)

static char **lab_arguments;

__attribute__((unused)) static const char *text(const char *name, const char *otherwise) {
    size_t length = strlen(name);
    for (char **at = lab_arguments; *at != NULL; at++)
        if (strncmp(*at, name, length) == 0 && (*at)[length] == '=') return *at + length + 1;
    return otherwise;
}

__attribute__((unused)) static int is(const char *name, const char *value) {
    return strcmp(text(name, ""), value) == 0;
}

__attribute__((unused)) static long number(const char *name, long otherwise) {
    const char *given = text(name, NULL);
    if (given == NULL) return otherwise;
    char *end;
    long value = strtol(given, &end, 10);
    CHECK(end != given && *end == 0, "%s: not a number: %s", name, given);
    return value;
}

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

__attribute__((unused)) static void figure(const char *name, double value) {
    printf("%s %.9g\n", name, value);
    fflush(stdout);
}

__attribute__((unused)) static void check_value(const char *name, uint64_t value) {
    printf("check %s %llu\n", name, (unsigned long long)value);
    fflush(stdout);
}

// Memory that all tasks see, whether they are threads or processes.
__attribute__((unused)) static void *shared_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
    return memory;
}

// ---- The tree of tasks: task i starts 2i+1 and 2i+2, then works, then waits for both.
//
// kind=t: threads; kind=p: processes; kind=c: threads made by clone itself. affinity=none, interleave or group.

typedef void task_function(long id);
static task_function *task_body;
static long task_count;
static char task_kind;
static cpu_set_t task_allowed;

__attribute__((unused)) static int cpu_of(long id) {
    int allowed[CPU_SETSIZE], count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &task_allowed)) allowed[count++] = cpu;
    if (is("affinity", "interleave")) return allowed[id % count];
    if (is("affinity", "group")) {
        long small = task_count / count, large = task_count % count;
        long border = large * (small + 1);
        return allowed[id < border ? id / (small + 1) : large + (id - border) / (small ? small : 1)];
    }
    return -1;
}

static void task_run(long id);

static void *task_thread(void *id) {
    task_run((long)(intptr_t)id);
    return NULL;
}

static int task_clone(void *id) {
    task_run((long)(intptr_t)id);
    return 0;
}

struct child {
    pthread_t thread;
    pid_t process;
    _Atomic int gone; // the kernel clears it at the end of a cloned thread
    void *stack;
};

enum { CLONE_STACK = 256 * 1024 };

static void task_start(struct child *child, long id) {
    int cpu = cpu_of(id);
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= 0) CPU_SET(cpu, &set);
    if (task_kind == 'p') {
        child->process = fork();
        CHECK(child->process >= 0, "fork: %s", strerror(errno));
        if (child->process == 0) {
            task_run(id);
            _exit(0);
        }
        if (cpu >= 0) sched_setaffinity(child->process, sizeof set, &set);
    } else if (task_kind == 'c') {
        child->stack = mmap(NULL, CLONE_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(child->stack != MAP_FAILED, "mmap: %s", strerror(errno));
        atomic_store(&child->gone, 1);
        // The thread shares its maker's thread-local storage: bodies of such tasks must not use any (no errno, no malloc).
        int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                    CLONE_CHILD_CLEARTID;
        int made = clone(task_clone, (char *)child->stack + CLONE_STACK, flags, (void *)(intptr_t)id, NULL, NULL,
                         &child->gone);
        CHECK(made >= 0, "clone: %s", strerror(errno));
    } else {
        PTHREAD(pthread_create(&child->thread, NULL, task_thread, (void *)(intptr_t)id));
        if (cpu >= 0) pthread_setaffinity_np(child->thread, sizeof set, &set);
    }
}

static void task_wait(struct child *child) {
    if (task_kind == 'p') {
        int status;
        CHECK(waitpid(child->process, &status, 0) == child->process, "waitpid: %s", strerror(errno));
        CHECK(status == 0, "a task failed (status %d)", status);
    } else if (task_kind == 'c') {
        while (atomic_load(&child->gone)) syscall(SYS_futex, &child->gone, 0, 1, NULL, NULL, 0);
        munmap(child->stack, CLONE_STACK);
    } else {
        PTHREAD(pthread_join(child->thread, NULL));
    }
}

static void task_run(long id) {
    struct child children[2];
    long first = 2 * id + 1, made = 0;
    // Clones are all made by the first task: errno and the like are shared, so only one may call the library.
    if (task_kind == 'c') first = task_count;
    for (long i = first; i < first + 2 && i < task_count; i++) task_start(&children[made++], i);
    task_body(id);
    for (long i = 0; i < made; i++) task_wait(&children[i]);
}

// Runs `body` once for each id below `count` and waits for all.
__attribute__((unused)) static void run_tasks(long count, task_function *body) {
    task_kind = *text("kind", "t");
    task_count = count;
    task_body = body;
    sched_getaffinity(0, sizeof task_allowed, &task_allowed);
    fflush(NULL);
    if (task_kind == 'c') {
        struct child *children = calloc((size_t)count, sizeof *children);
        CHECK(children != NULL, "no memory");
        for (long i = 0; i < count; i++) task_start(&children[i], i);
        for (long i = 0; i < count; i++) task_wait(&children[i]);
        free(children);
        return;
    }
    struct child root;
    task_start(&root, 0);
    task_wait(&root);
}

#endif
