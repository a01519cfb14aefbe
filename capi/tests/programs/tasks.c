/* Tasks: data there and back, in every mode; in process mode deaths of every kind, and who is told. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 200, LARGE = 100000 };

struct range {
    uint64_t from, to;
};

struct sums {
    uint64_t sum, squares;
    long pid;
};

static void adds(const void *argument, void *result) {
    const struct range *range = argument;
    struct sums *sums = result;
    uint64_t n;
    CHECK((size_t)argument % 16 == 0 && (size_t)result % 16 == 0);
    CHECK(sums->sum == 0 && sums->squares == 0);
    for (n = range->from; n < range->to; n++) {
        sums->sum += n;
        sums->squares += n * n;
    }
    sums->pid = (long)getpid();
}

/* Bytes of no size in particular, the other way round. */
static void turns(const void *argument, void *result) {
    const unsigned char *from = argument;
    unsigned char *to = result;
    size_t i;
    for (i = 0; i < LARGE; i++) {
        to[i] = from[LARGE - 1 - i];
    }
}

static void nothing(const void *argument, void *result) {
    CHECK(argument == NULL && result == NULL);
}

static void place(const void *argument, void *result) {
    CHECK(argument == NULL);
    *(size_t *)result = heddle_process_place();
}

/* A task sends tasks itself. */
static void nested(const void *argument, void *result) {
    struct range half = *(const struct range *)argument;
    heddle_task_t tasks[2];
    struct sums sums[2];
    struct range halves[2];
    int i;
    halves[0].from = half.from;
    halves[0].to = halves[1].from = (half.from + half.to) / 2;
    halves[1].to = half.to;
    for (i = 0; i < 2; i++) {
        ANSWERS(heddle_task_create(&tasks[i], HEDDLE_MODE_DEFAULT, adds, &halves[i], sizeof half, sizeof *sums), 0);
    }
    for (i = 0; i < 2; i++) {
        ANSWERS(heddle_task_join(tasks[i], &sums[i], NULL), 0);
    }
    *(uint64_t *)result = sums[0].sum + sums[1].sum;
}

static void sleeps(const void *argument, void *result) {
    (void)result;
    heddle_sleep(*(const uint64_t *)argument);
}

static void dies(const void *argument, void *result) {
    *(int *)result = 7;
    switch (*(const int *)argument) {
    case 0:
        abort();
    case 1:
        exit(3);
    default:
        raise(*(const int *)argument);
    }
}

static void deaths(void) {
    static const int kinds[] = {0, 1, SIGKILL, SIGSEGV, SIGTERM};
    heddle_task_t task;
    size_t i;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int status = -1, result = 5;
        ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, dies, &kinds[i], sizeof *kinds, sizeof result), 0);
        ANSWERS(heddle_task_join(task, &result, &status), EOWNERDEAD);
        CHECK(result == 5);
        CHECK(strstr(heddle_last_error(), "process died") != NULL);
        if (kinds[i] == 1) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
        } else {
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == (kinds[i] == 0 ? SIGABRT : kinds[i]));
        }
        ANSWERS(heddle_task_join(task, NULL, NULL), ESRCH);
    }
}

/* Code that came after the start is in no other process. */
static void later(void) {
    void (*function)(const void *, void *);
    heddle_task_t task;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    memcpy(&function, &page, sizeof function);
    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, function, NULL, 0, 0), EFAULT);
    CHECK(munmap(page, 4096) == 0);
}

static heddle_task_t tasks[MANY];
static unsigned char bytes[LARGE], turned[LARGE];

static void *joins(void *task) {
    return (void *)(size_t)heddle_task_join(*(heddle_task_t *)task, NULL, NULL);
}

static void refused(void) {
    heddle_task_t task = 12;
    uint64_t nanoseconds = 50 * MILLISECOND;
    heddle_token_t *token;
    heddle_thread_t thread;
    void *answer;
    int own, other;

    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, NULL, NULL, 0, 0), EINVAL);
    ANSWERS(heddle_task_create(NULL, HEDDLE_MODE_DEFAULT, nothing, NULL, 0, 0), EINVAL);
    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, nothing, NULL, 1, 0), EINVAL);
    ANSWERS(heddle_task_create(&task, 99, nothing, NULL, 0, 0), EINVAL);
    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, nothing, NULL, 0, (size_t)1 << 40), ENOMEM);
    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, nothing, NULL, 0, SIZE_MAX), ENOMEM);
    CHECK(task == HEDDLE_TASK_NONE);
    ANSWERS(heddle_task_join(task, NULL, NULL), ESRCH);
    ANSWERS(heddle_task_detach(77), ESRCH);

    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, sleeps, &nanoseconds, sizeof nanoseconds, 0), 0);
    ANSWERS(heddle_task_join_within(task, NULL, NULL, 0, NULL), ETIMEDOUT);
    ANSWERS(heddle_token_create(&token, NULL), 0);
    ANSWERS(heddle_token_cancel(token), 0);
    ANSWERS(heddle_task_join_within(task, NULL, NULL, HEDDLE_FOREVER, token), ECANCELED);
    /* Of two threads that join it one does. */
    ANSWERS(heddle_thread_create(&thread, NULL, joins, &task), 0);
    own = heddle_task_join(task, NULL, NULL);
    ANSWERS(heddle_thread_join(thread, &answer), 0);
    other = (int)(size_t)answer;
    CHECK((own == 0) != (other == 0));
    CHECK(own + other == EINVAL || own + other == ESRCH);
    ANSWERS(heddle_task_join(task, NULL, NULL), ESRCH);
    ANSWERS(heddle_token_destroy(token), 0);
}

int main(void) {
    heddle_options_t options = HEDDLE_OPTIONS_INIT;
    const char *mode = getenv("HEDDLE_MODE");
    int in_processes = mode != NULL && strcmp(mode, "process") == 0, i;
    heddle_attr_t attr = HEDDLE_ATTR_INIT;
    heddle_thread_t thread;
    heddle_task_t task;
    struct range range = {0, 1000};
    struct sums sums;
    uint64_t sum = 0;
    size_t where = 99;

    options.processes = 0;
    options.mode = HEDDLE_MODE_PROCESS;
    ANSWERS(heddle_start(&options), EINVAL);
    options.processes = 201;
    ANSWERS(heddle_start(&options), EINVAL);
    options.processes = 2;
    options.arena = 4096;
    ANSWERS(heddle_start(&options), EINVAL);
    options.arena = 64 << 20;
    options.reserved = 1;
    ANSWERS(heddle_start(&options), E2BIG);
    options.reserved = 0;
    options.mode = HEDDLE_MODE_DEFAULT;
    ANSWERS(heddle_start(&options), 0);
    CHECK(heddle_processes() == (in_processes ? 2u : 0u));
    CHECK(heddle_task_mode() == (in_processes ? HEDDLE_MODE_PROCESS : heddle_mode()));
    CHECK(heddle_process_place() == 0);

    attr.mode = HEDDLE_MODE_PROCESS;
    ANSWERS(heddle_thread_create(&thread, &attr, joins, &task), EINVAL);

    for (i = 0; i < MANY; i++) {
        ANSWERS(heddle_task_create(&tasks[i], HEDDLE_MODE_DEFAULT, adds, &range, sizeof range, sizeof sums), 0);
        range.to++;
    }
    for (i = 0; i < MANY; i++) {
        uint64_t n = 1000 + (uint64_t)i;
        ANSWERS(heddle_task_join(tasks[i], &sums, NULL), 0);
        CHECK(sums.sum == n * (n - 1) / 2 && sums.squares == n * (n - 1) * (2 * n - 1) / 6);
        CHECK((sums.pid == (long)getpid()) == !in_processes);
    }
    for (i = 0; i < LARGE; i++) {
        bytes[i] = (unsigned char)(i * 7);
    }
    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, turns, bytes, LARGE, LARGE), 0);
    ANSWERS(heddle_task_join(task, turned, NULL), 0);
    for (i = 0; i < LARGE; i++) {
        CHECK(turned[i] == bytes[LARGE - 1 - i]);
    }
    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, nothing, NULL, 0, 0), 0);
    ANSWERS(heddle_task_join_within(task, NULL, NULL, HEDDLE_FOREVER, NULL), 0);
    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, place, NULL, 0, sizeof where), 0);
    ANSWERS(heddle_task_join(task, &where, NULL), 0);
    CHECK(in_processes ? where == 1 || where == 2 : where == 0);
    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, nested, &range, sizeof range, sizeof sum), 0);
    ANSWERS(heddle_task_join(task, &sum, NULL), 0);
    CHECK(sum == range.to * (range.to - 1) / 2);
    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, nothing, NULL, 0, 0), 0);
    ANSWERS(heddle_task_detach(task), 0);
    ANSWERS(heddle_task_detach(task), ESRCH);
    refused();
    if (in_processes) {
        deaths();
        later();
        /* On a thread of this process, where asked for. */
        where = 99;
        ANSWERS(heddle_task_create(&task, heddle_mode(), place, NULL, 0, sizeof where), 0);
        ANSWERS(heddle_task_join(task, &where, NULL), 0);
        CHECK(where == 0);
    } else {
        ANSWERS(heddle_task_create(&task, HEDDLE_MODE_PROCESS, nothing, NULL, 0, 0), ENOTSUP);
    }
    printf("%d tasks in %s\n", MANY, in_processes ? "processes" : "threads");
    return 0;
}
