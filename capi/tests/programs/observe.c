/* What threads do and wait for, and counters. */
#include "check.h"

#include <unistd.h>

static heddle_event_t event = HEDDLE_EVENT_INIT;
static int ends[2];

struct look {
    const char *name;
    int found;
    heddle_mode_t mode;
    heddle_state_t state;
    int64_t object;
    uint32_t id;
};

static void each(const heddle_thread_info_t *info, void *argument) {
    struct look *look = argument;
    CHECK(info->size >= sizeof *info);
    if (strcmp(info->name, look->name) == 0) {
        look->found++;
        look->mode = info->mode;
        look->state = info->state;
        look->object = info->object;
        look->id = info->id;
    }
}

static void *waits(void *argument) {
    ANSWERS(heddle_event_wait(&event), 0);
    return argument;
}

static void *reads(void *argument) {
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    return argument;
}

static void *sleeps(void *argument) {
    ANSWERS(heddle_sleep_within(HEDDLE_FOREVER, argument), ECANCELED);
    return argument;
}

/* Until the thread of that name waits so. */
static struct look until(const char *name, heddle_state_t state) {
    struct look look;
    do {
        heddle_yield();
        memset(&look, 0, sizeof look);
        look.name = name;
        ANSWERS(heddle_threads(each, &look), 0);
    } while (look.found != 1 || look.state != state);
    return look;
}

static void job(void *argument) {
    __atomic_fetch_add((int *)argument, 1, __ATOMIC_RELAXED);
}

int main(void) {
    heddle_attr_t attr = HEDDLE_ATTR_INIT;
    heddle_counters_t before = HEDDLE_COUNTERS_INIT, after = HEDDLE_COUNTERS_INIT;
    struct {
        heddle_counters_t known;
        uint64_t newer[2];
    } larger = {HEDDLE_COUNTERS_INIT, {1, 2}};
    heddle_thread_t waiter, reader, sleeper;
    heddle_token_t *token;
    struct look look;
    int done = 0, i;

    ANSWERS(heddle_start(NULL), 0);
    ANSWERS(heddle_counters(&before), 0);
    CHECK(pipe(ends) == 0);
    ANSWERS(heddle_token_create(&token, NULL), 0);
    attr.name = "waits";
    ANSWERS(heddle_thread_create(&waiter, &attr, waits, NULL), 0);
    attr.name = "reads";
    ANSWERS(heddle_thread_create(&reader, &attr, reads, NULL), 0);
    attr.name = "sleeps";
    ANSWERS(heddle_thread_create(&sleeper, &attr, sleeps, token), 0);

    look = until("waits", HEDDLE_STATE_WAITS_FUTEX);
    CHECK(look.mode == asked_mode());
    CHECK(look.object >= (int64_t)(size_t)&event && look.object < (int64_t)(size_t)(&event + 1));
    CHECK(look.id != 0);
    look = until("reads", HEDDLE_STATE_WAITS_DESCRIPTOR);
    CHECK(look.object == ends[0]);
    until("sleeps", HEDDLE_STATE_WAITS_FUTEX);

    ANSWERS(heddle_event_set(&event), 0);
    CHECK(write(ends[1], "x", 1) == 1);
    ANSWERS(heddle_token_cancel(token), 0);
    ANSWERS(heddle_thread_join(waiter, NULL), 0);
    ANSWERS(heddle_thread_join(reader, NULL), 0);
    ANSWERS(heddle_thread_join(sleeper, NULL), 0);
    for (i = 0; i < 100; i++) {
        ANSWERS(heddle_fork_join(job, &done, job, &done), 0);
    }
    CHECK(done == 200);
    ANSWERS(heddle_counters(&after), 0);
    CHECK(after.size == sizeof after);
    CHECK(after.stolen >= before.stolen && after.helpers >= before.helpers);
    if (heddle_mode() == HEDDLE_MODE_USER) {
        CHECK(after.created >= before.created + 3 && after.parks >= before.parks + 3);
        CHECK(after.live >= 1);
    } else {
        CHECK(after.created == 0 && after.live == 0);
    }

    /* A program that was compiled with a newer header. */
    larger.known.size = sizeof larger;
    ANSWERS(heddle_counters(&larger.known), 0);
    CHECK(larger.known.size == sizeof larger && larger.known.created >= after.created);
    CHECK(larger.newer[0] == 0 && larger.newer[1] == 0);
    after.size = 8;
    ANSWERS(heddle_counters(&after), EINVAL);
    ANSWERS(heddle_counters(NULL), EINVAL);
    ANSWERS(heddle_threads(NULL, NULL), EINVAL);
    puts("seen");
    return 0;
}
