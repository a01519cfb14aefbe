/* A pipeline: threads that read, work and write, with queues between them; a semaphore says how many lines are under
 * way at once. */
#include <heddle.h>

#include <stdio.h>
#include <stdlib.h>

enum { ITEMS = 10000, WORKERS = 3, ROOM = 16, UNDER_WAY = 20, END = -1 };

struct queue {
    heddle_mutex_t mutex;
    heddle_cond_t has_items, has_room;
    int items[ROOM];
    unsigned first, count;
};

#define QUEUE_INIT { HEDDLE_MUTEX_INIT, HEDDLE_COND_INIT, HEDDLE_COND_INIT, { 0 }, 0, 0 }

static struct queue raw = QUEUE_INIT, worked = QUEUE_INIT;
static heddle_semaphore_t under_way = HEDDLE_SEMAPHORE_INIT(UNDER_WAY);

static void must(int error) {
    if (error != 0) {
        abort();
    }
}

static void put(struct queue *queue, int item) {
    must(heddle_mutex_lock(&queue->mutex));
    while (queue->count == ROOM) {
        must(heddle_cond_wait(&queue->has_room, &queue->mutex));
    }
    queue->items[(queue->first + queue->count++) % ROOM] = item;
    must(heddle_mutex_unlock(&queue->mutex));
    must(heddle_cond_signal(&queue->has_items));
}

static int take(struct queue *queue) {
    int item;
    must(heddle_mutex_lock(&queue->mutex));
    while (queue->count == 0) {
        must(heddle_cond_wait(&queue->has_items, &queue->mutex));
    }
    item = queue->items[queue->first];
    queue->first = (queue->first + 1) % ROOM;
    queue->count--;
    must(heddle_mutex_unlock(&queue->mutex));
    must(heddle_cond_signal(&queue->has_room));
    return item;
}

static void *reader(void *unused) {
    int i;
    (void)unused;
    for (i = 0; i < ITEMS; i++) {
        must(heddle_semaphore_wait(&under_way));
        put(&raw, i);
    }
    for (i = 0; i < WORKERS; i++) {
        put(&raw, END);
    }
    return NULL;
}

static void *worker(void *unused) {
    int item;
    (void)unused;
    while ((item = take(&raw)) != END) {
        put(&worked, item % 10);
    }
    put(&worked, END);
    return NULL;
}

static void *writer(void *result) {
    long *sum = result;
    int item, ended = 0;
    while (ended < WORKERS) {
        if ((item = take(&worked)) == END) {
            ended++;
        } else {
            *sum += item;
            must(heddle_semaphore_post(&under_way, 1));
        }
    }
    return result;
}

int main(void) {
    heddle_thread_t threads[WORKERS + 2];
    long sum = 0;
    int i;

    must(heddle_start(NULL));
    must(heddle_thread_create(&threads[0], NULL, reader, NULL));
    for (i = 0; i < WORKERS; i++) {
        must(heddle_thread_create(&threads[1 + i], NULL, worker, NULL));
    }
    must(heddle_thread_create(&threads[WORKERS + 1], NULL, writer, &sum));
    for (i = 0; i < WORKERS + 2; i++) {
        must(heddle_thread_join(threads[i], NULL));
    }
    printf("%d items, sum %ld\n", ITEMS, sum);
    return 0;
}
