/* The main thread allocates one block with a structure for each thread; each thread uses only its own. The structures
 * are neighbours (packed), or padded to two lines each (-DMENDED=1), or each thread allocates its own (-DMENDED=2) or has
 * it thread-local and copies it at its end (-DMENDED=3). -DBODY as in body.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "body.h"

#define THREADS 4

struct work {
    long done, seen;
    int last;
#if MENDED == 1
    char pad[128 - 2 * sizeof(long) - sizeof(int)];
#endif
};

static struct work *all[THREADS];
static pthread_barrier_t start;
#if MENDED == 3
static _Thread_local struct work own;
#endif

static void *worker(void *number)
{
#if MENDED == 2
    struct work *mine = (struct work *)calloc(1, sizeof *mine); /* own */
    all[(long)number] = mine;
#elif MENDED == 3
    struct work *mine = &own;
#else
    struct work *mine = all[(long)number];
#endif
    pthread_barrier_wait(&start);
    for (long i = 0; i < ROUNDS; i++) {
        UPDATE(mine->done, mine->seen); /* done */
        *(volatile int *)&mine->last = (int)i; /* last */
    }
#if MENDED == 3
    *all[(long)number] = own;
#endif
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    long sum = 0;
#if MENDED != 2
    struct work *block = (struct work *)aligned_alloc(128, THREADS * sizeof *block / 128 * 128 + 128); /* block */
    for (int i = 0; i < THREADS; i++) {
        block[i].done = block[i].seen = block[i].last = 0;
        all[i] = &block[i];
    }
#endif
    pthread_barrier_init(&start, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, worker, (void *)i) != 0)
            abort();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        sum += all[i]->done;
#if MENDED == 2
    for (int i = 0; i < THREADS; i++)
        free(all[i]);
#else
    free(block);
#endif
    printf("%ld\n", sum);
    return sum == THREADS * EXPECTED ? 0 : 1;
}
