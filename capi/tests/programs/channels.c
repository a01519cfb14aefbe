/* Channels: values of every size, with room, without and with any number; full and closed ones; limits. */
#include "check.h"

enum { SENDERS = 3, RECEIVERS = 2, EACH = 2000, LARGEST = 1000 };

static const size_t sizes[] = {1, 4, 8, 12, 16, 24, 40, 64, 100, 128, 129, LARGEST};

struct job {
    heddle_channel_t *channel;
    size_t size;
    unsigned number;
    uint64_t sum;
};

/* A value of any size that says, in as many of its bytes as there are, which it is. */
static void make(unsigned char *value, size_t size, unsigned n) {
    size_t i;
    for (i = 0; i < size; i++) {
        value[i] = (unsigned char)(n >> i % 4 * 8);
    }
}

static void *sends(void *argument) {
    struct job *job = argument;
    unsigned char value[LARGEST];
    unsigned n;
    for (n = 0; n < EACH; n++) {
        make(value, job->size, n);
        ANSWERS(heddle_channel_send(job->channel, value), 0);
    }
    return NULL;
}

static void *receives(void *argument) {
    struct job *job = argument;
    unsigned char value[LARGEST + 1], expected[LARGEST];
    int answer;
    for (;;) {
        value[job->size] = 0xa5;
        answer = heddle_channel_receive(job->channel, value);
        if (answer == EPIPE) {
            return NULL;
        }
        ANSWERS(answer, 0);
        CHECK(value[job->size] == 0xa5);
        if (job->size >= 4) {
            unsigned n = value[0] | (unsigned)value[1] << 8;
            make(expected, job->size, n);
            CHECK(memcmp(value, expected, job->size) == 0);
            job->sum += n;
        } else {
            job->sum += value[0];
        }
    }
}

static void many(size_t size, size_t capacity) {
    heddle_channel_t *channel;
    heddle_thread_t threads[SENDERS + RECEIVERS];
    struct job jobs[SENDERS + RECEIVERS];
    uint64_t sum = 0, expected = 0;
    unsigned n;
    int i;

    ANSWERS(heddle_channel_create(&channel, size, capacity), 0);
    for (i = 0; i < SENDERS + RECEIVERS; i++) {
        jobs[i].channel = channel;
        jobs[i].size = size;
        jobs[i].sum = 0;
        ANSWERS(heddle_thread_create(&threads[i], NULL, i < SENDERS ? sends : receives, &jobs[i]), 0);
    }
    for (i = 0; i < SENDERS; i++) {
        ANSWERS(heddle_thread_join(threads[i], NULL), 0);
    }
    CHECK(!heddle_channel_is_closed(channel));
    ANSWERS(heddle_channel_close(channel), 0);
    for (; i < SENDERS + RECEIVERS; i++) {
        ANSWERS(heddle_thread_join(threads[i], NULL), 0);
        sum += jobs[i].sum;
    }
    for (n = 0; n < EACH; n++) {
        expected += SENDERS * (uint64_t)(size >= 4 ? n : n % 256);
    }
    CHECK(sum == expected);
    CHECK(heddle_channel_is_closed(channel));
    CHECK(heddle_channel_count(channel) == 0);
    ANSWERS(heddle_channel_destroy(channel), 0);
}

static void *closes(void *channel) {
    heddle_sleep(5 * MILLISECOND);
    ANSWERS(heddle_channel_close(channel), 0);
    return NULL;
}

static void *cancels(void *token) {
    heddle_sleep(5 * MILLISECOND);
    ANSWERS(heddle_token_cancel(token), 0);
    return NULL;
}

static void ends(void) {
    heddle_channel_t *full, *empty, *meeting;
    heddle_token_t *token;
    heddle_thread_t thread;
    int value = 1, i;

    ANSWERS(heddle_channel_create(&full, sizeof value, 2), 0);
    ANSWERS(heddle_channel_create(&empty, sizeof value, HEDDLE_UNBOUNDED), 0);
    ANSWERS(heddle_channel_create(&meeting, sizeof value, 0), 0);
    ANSWERS(heddle_channel_trysend(meeting, &value), EAGAIN);
    ANSWERS(heddle_channel_tryreceive(meeting, &value), EAGAIN);
    ANSWERS(heddle_channel_timedsend(meeting, &value, MILLISECOND), ETIMEDOUT);
    ANSWERS(heddle_channel_tryreceive(empty, &value), EAGAIN);
    ANSWERS(heddle_channel_timedreceive(empty, &value, MILLISECOND), ETIMEDOUT);
    for (i = 10; i < 12; i++) {
        ANSWERS(heddle_channel_trysend(full, &i), 0);
    }
    CHECK(heddle_channel_count(full) == 2);
    ANSWERS(heddle_channel_trysend(full, &value), EAGAIN);
    ANSWERS(heddle_channel_timedsend(full, &value, MILLISECOND), ETIMEDOUT);

    ANSWERS(heddle_token_create(&token, NULL), 0);
    ANSWERS(heddle_thread_create(&thread, NULL, cancels, token), 0);
    ANSWERS(heddle_channel_send_within(full, &value, HEDDLE_FOREVER, token), ECANCELED);
    ANSWERS(heddle_channel_receive_within(empty, &value, HEDDLE_FOREVER, token), ECANCELED);
    ANSWERS(heddle_thread_join(thread, NULL), 0);

    /* Who waits is told that it is closed; what is in it can be had, also with a token that is cancelled. */
    ANSWERS(heddle_thread_create(&thread, NULL, closes, full), 0);
    ANSWERS(heddle_channel_send(full, &value), EPIPE);
    ANSWERS(heddle_thread_join(thread, NULL), 0);
    ANSWERS(heddle_channel_close(full), EALREADY);
    ANSWERS(heddle_channel_trysend(full, &value), EPIPE);
    ANSWERS(heddle_channel_receive_within(full, &value, 0, token), 0);
    CHECK(value == 10);
    ANSWERS(heddle_channel_receive(full, &value), 0);
    CHECK(value == 11);
    ANSWERS(heddle_channel_receive(full, &value), EPIPE);
    ANSWERS(heddle_channel_tryreceive(full, &value), EPIPE);
    ANSWERS(heddle_thread_create(&thread, NULL, closes, empty), 0);
    ANSWERS(heddle_channel_receive(empty, &value), EPIPE);
    ANSWERS(heddle_thread_join(thread, NULL), 0);
    CHECK(value == 11);
    ANSWERS(heddle_channel_destroy(full), 0);
    ANSWERS(heddle_channel_destroy(empty), 0);
    ANSWERS(heddle_channel_destroy(meeting), 0);
    ANSWERS(heddle_token_destroy(token), 0);
}

static void refused(void) {
    heddle_channel_t *channel;
    char value = 0;

    ANSWERS(heddle_channel_create(NULL, 1, 1), EINVAL);
    ANSWERS(heddle_channel_create(&channel, 0, 1), EINVAL);
    CHECK(channel == NULL);
    ANSWERS(heddle_channel_create(&channel, HEDDLE_CHANNEL_VALUE_MAX + 1, 1), EINVAL);
    ANSWERS(heddle_channel_create(&channel, 8, SIZE_MAX / 8), ENOMEM);
    ANSWERS(heddle_channel_create(&channel, 8, SIZE_MAX - 1), ENOMEM);
    ANSWERS(heddle_channel_create(&channel, 1, 1), 0);
    ANSWERS(heddle_channel_send(NULL, &value), EINVAL);
    ANSWERS(heddle_channel_send(channel, NULL), EINVAL);
    ANSWERS(heddle_channel_receive(NULL, &value), EINVAL);
    ANSWERS(heddle_channel_receive(channel, NULL), EINVAL);
    ANSWERS(heddle_channel_close(NULL), EINVAL);
    ANSWERS(heddle_channel_destroy(NULL), EINVAL);
    CHECK(heddle_channel_is_closed(NULL));
    CHECK(heddle_channel_count(NULL) == 0);
    ANSWERS(heddle_channel_send(channel, &value), 0);
    ANSWERS(heddle_channel_destroy(channel), 0);
}

int main(void) {
    size_t i;
    ANSWERS(heddle_start(NULL), 0);
    refused();
    ends();
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        many(sizes[i], HEDDLE_UNBOUNDED);
        many(sizes[i], 7);
        many(sizes[i], 0);
    }
    printf("%d sizes\n", (int)i);
    return 0;
}
