/* Each thread counts in an element of its own of one shared array. The elements are neighbours (packed), or each has a
 * line to itself (-DMENDED=1), or each thread counts in a local variable (-DMENDED=2) or a thread-local one (-DMENDED=3) and
 * stores once.
 * -DBODY=1: load, add, store; 2: store to one word of its own, load another; 3: atomic add. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "body.h"

#define THREADS 4

#if MENDED == 1
struct element { long count, seen; char pad[128 - 2 * sizeof(long)]; } __attribute__((aligned(128)));
#else
struct element { long count, seen; };
#endif

struct element results[THREADS] __attribute__((aligned(64)));
#if MENDED == 3
static _Thread_local struct element own;
#endif
static pthread_barrier_t start;

static void *worker(void *number)
{
    struct element *mine = &results[(long)number];
    pthread_barrier_wait(&start);
#if MENDED == 2
    long count = 0, seen = 0;
    for (long i = 0; i < ROUNDS; i++)
        UPDATE(count, seen); /* local */
    mine->count = count;
    mine->seen = seen;
#elif MENDED == 3
    for (long i = 0; i < ROUNDS; i++)
        UPDATE(own.count, own.seen); /* own */
    *mine = own;
#else
    for (long i = 0; i < ROUNDS; i++)
        UPDATE(mine->count, mine->seen); /* update */
#endif
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    long sum = 0;
    pthread_barrier_init(&start, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, worker, (void *)i) != 0)
            abort();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        sum += results[i].count;
    printf("%ld\n", sum);
    return sum == THREADS * EXPECTED ? 0 : 1;
}
