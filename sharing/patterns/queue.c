/* A singly linked queue with a dummy node: a writer appends while a reader removes. It is filled before they start, so
 * that the reader never meets the writer. The two ends lie in one line (packed) or in two (-DMENDED=1), or each side works on
 * its end in thread-local memory and stores it once (-DMENDED=3).
 * -DBODY=1: the ends are plain pointers; 2: each side also counts in a word beside its end; 3: the counts are atomic. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "body.h"

struct node { struct node *next; long value; char pad[112]; } __attribute__((aligned(128)));

struct end { struct node *at; long count; };

static struct {
    struct end head;
#if MENDED == 1
    char pad[128 - sizeof(struct end)];
#endif
    struct end tail;
} queue __attribute__((aligned(128)));

#if MENDED == 3
static _Thread_local struct end own;
#define HEAD own
#define TAIL own
#define BEGIN(end) (own = (end))
#define END(end) ((end) = own)
#else
#define HEAD queue.head
#define TAIL queue.tail
#define BEGIN(end) ((void)0)
#define END(end) ((void)0)
#endif

#define NODES (ROUNDS / 4)

static struct node *nodes;
static pthread_barrier_t start;

#if BODY == 3
#define COUNT(end) __atomic_fetch_add(&(end).count, 1, __ATOMIC_RELAXED)
#elif BODY == 2
#define COUNT(end) (*(volatile long *)&(end).count += 1)
#else
#define COUNT(end) ((void)0)
#endif

static void *reader(void *sum)
{
    BEGIN(queue.head);
    pthread_barrier_wait(&start);
    for (long i = 0; i < NODES; i++) {
        struct node *next = HEAD.at->next;
        *(long *)sum += next->value;
        *(struct node *volatile *)&HEAD.at = next; /* remove */
        COUNT(HEAD); /* removed */
    }
    END(queue.head);
    return NULL;
}

static void *writer(void *unused)
{
    BEGIN(queue.tail);
    pthread_barrier_wait(&start);
    for (long i = NODES + 1; i <= 2 * NODES; i++) {
        struct node *node = &nodes[i];
        node->value = i;
        TAIL.at->next = node;
        *(struct node *volatile *)&TAIL.at = node; /* append */
        COUNT(TAIL); /* appended */
    }
    END(queue.tail);
    return unused;
}

int main(void)
{
    pthread_t threads[2];
    long sum = 0;
    nodes = (struct node *)aligned_alloc(128, (2 * NODES + 1) * sizeof *nodes);
    for (long i = 0; i <= NODES; i++) {
        nodes[i].value = i;
        nodes[i].next = i < NODES ? &nodes[i + 1] : NULL;
    }
    queue.head.at = &nodes[0];
    queue.tail.at = &nodes[NODES];
    pthread_barrier_init(&start, NULL, 2);
    if (pthread_create(&threads[0], NULL, reader, &sum) != 0 || pthread_create(&threads[1], NULL, writer, NULL) != 0)
        abort();
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    free(nodes);
    printf("%ld\n", sum);
    return sum == NODES * (NODES + 1) / 2 ? 0 : 1;
}
