/* What must not be reported: the argument says which.
 *   counter    threads add to one counter
 *   lock       threads change all fields of a structure under a lock that is in it
 *   queue      a producer and a consumer, each with an index of its own beside the count, under a lock
 *   readers    threads read what main wrote
 *   ring       a producer and a consumer with their indices in lines of their own
 *   local      thread-local data
 *   stacks     many short-lived threads, one after the other, on the same stack, and on stacks of their own
 *   malloc     each thread allocates and frees blocks of its own
 *   turns      a thread at a time uses its own part of a line, from its beginning to its end
 *   reuse      a freed block goes to another thread */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define ROUNDS 50000L

static pthread_barrier_t start;
static long total;

static long counter __attribute__((aligned(64)));

static void *add(void *unused)
{
    pthread_barrier_wait(&start);
    for (long i = 0; i < ROUNDS; i++)
        __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
    return unused;
}

static struct { pthread_mutex_t mutex; long sum, last; } guarded __attribute__((aligned(64))) = { PTHREAD_MUTEX_INITIALIZER, 0, 0 };

static void *lock(void *unused)
{
    pthread_barrier_wait(&start);
    for (long i = 0; i < ROUNDS / 5; i++) {
        pthread_mutex_lock(&guarded.mutex);
        guarded.sum += guarded.last;
        guarded.last = i;
        pthread_mutex_unlock(&guarded.mutex);
    }
    return unused;
}

static struct { int count, tail, head, pad; long values[6]; } queue __attribute__((aligned(64)));
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;

static void *put(void *unused)
{
    pthread_barrier_wait(&start);
    for (long i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&queue_lock);
        while (queue.count == 6)
            pthread_cond_wait(&not_full, &queue_lock);
        queue.values[queue.tail] = i;
        queue.tail = (queue.tail + 1) % 6;
        queue.count++;
        pthread_cond_signal(&not_empty);
        pthread_mutex_unlock(&queue_lock);
    }
    return unused;
}

static void *get(void *unused)
{
    pthread_barrier_wait(&start);
    for (long i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&queue_lock);
        while (queue.count == 0)
            pthread_cond_wait(&not_empty, &queue_lock);
        total += queue.values[queue.head];
        queue.head = (queue.head + 1) % 6;
        queue.count--;
        pthread_cond_signal(&not_full);
        pthread_mutex_unlock(&queue_lock);
    }
    return unused;
}

static long table[64];

static void *reader(void *number)
{
    long sum = 0;
    pthread_barrier_wait(&start);
    for (long i = 0; i < ROUNDS; i++)
        sum += *(volatile long *)&table[(i + (long)number) % 64];
    __atomic_fetch_add(&total, sum, __ATOMIC_RELAXED);
    return NULL;
}

static struct { long head, tail_seen; char pad[112]; long tail, head_seen; char pad2[112]; } ring __attribute__((aligned(128)));
static struct { long value; char pad[120]; } slots[64] __attribute__((aligned(128)));

static void *producer(void *unused)
{
    pthread_barrier_wait(&start);
    for (long i = 0; i < ROUNDS; i++) {
        while (i - ring.tail_seen == 64) {
            ring.tail_seen = __atomic_load_n(&ring.tail, __ATOMIC_ACQUIRE);
            if (i - ring.tail_seen == 64)
                sched_yield();
        }
        slots[i % 64].value = i;
        __atomic_store_n(&ring.head, i + 1, __ATOMIC_RELEASE);
    }
    return unused;
}

static void *consumer(void *unused)
{
    pthread_barrier_wait(&start);
    for (long i = 0; i < ROUNDS; i++) {
        while (ring.head_seen == i) {
            ring.head_seen = __atomic_load_n(&ring.head, __ATOMIC_ACQUIRE);
            if (ring.head_seen == i)
                sched_yield();
        }
        total += slots[i % 64].value;
        __atomic_store_n(&ring.tail, i + 1, __ATOMIC_RELEASE);
    }
    return unused;
}

static __thread long mine[4];

static void *local(void *unused)
{
    pthread_barrier_wait(&start);
    for (long i = 0; i < ROUNDS; i++)
        *(volatile long *)&mine[i % 4] += 1;
    return unused;
}

static void *stacked(void *unused)
{
    volatile long words[64];
    for (long i = 0; i < 500; i++)
        words[i % 64] = i;
    return words[0] ? NULL : unused;
}

static void *blocks(void *unused)
{
    pthread_barrier_wait(&start);
    for (long i = 0; i < ROUNDS / 10; i++) {
        long *block = malloc(24);
        for (int j = 0; j < 30; j++)
            ((volatile long *)block)[j % 3] = i;
        free(block);
    }
    return unused;
}

static long parts[8] __attribute__((aligned(64)));

static void *turn(void *number)
{
    for (long i = 0; i < ROUNDS; i++)
        *(volatile long *)&parts[(long)number] += 1;
    return NULL;
}

static void *reuse(void *unused)
{
    long *block = malloc(64);
    for (long i = 0; i < 300; i++)
        ((volatile long *)block)[i % 8] = i;
    free(block);
    return unused;
}

static void run(int count, void *(*function)(void *), void *(*other)(void *))
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, count);
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, i == 0 ? function : other, (void *)i) != 0)
            abort();
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    for (int i = 0; i < 64; i++)
        table[i] = i;
    if (strcmp(what, "counter") == 0)
        run(THREADS, add, add);
    else if (strcmp(what, "lock") == 0)
        run(THREADS, lock, lock);
    else if (strcmp(what, "queue") == 0)
        run(2, put, get);
    else if (strcmp(what, "readers") == 0)
        run(THREADS, reader, reader);
    else if (strcmp(what, "ring") == 0)
        run(2, producer, consumer);
    else if (strcmp(what, "local") == 0)
        run(THREADS, local, local);
    else if (strcmp(what, "stacks") == 0)
        for (int i = 0; i < 300; i++)
            run(1 + i % THREADS, stacked, stacked);
    else if (strcmp(what, "malloc") == 0)
        run(THREADS, blocks, blocks);
    else if (strcmp(what, "turns") == 0)
        for (long i = 0; i < 400; i++) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, turn, (void *)(i % 8)) != 0)
                abort();
            pthread_join(thread, NULL);
        }
    else if (strcmp(what, "reuse") == 0)
        for (int i = 0; i < 300; i++)
            run(2, reuse, reuse);
    else
        return 2;
    return 0;
}
