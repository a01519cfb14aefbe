/* Asserts a bounded queue between many producers and consumers, one mutex and two condition variables: every item arrives
   once; and a pipeline of stages. Prints checksums. */
#include "check.h"

enum { PRODUCERS = 12, CONSUMERS = 12, ITEMS = 3000, BOUND = 16, STAGES = 20, TOKENS = 500 };

struct queue {
  pthread_mutex_t mutex;
  pthread_cond_t not_empty, not_full;
  uint64_t items[BOUND];
  unsigned head, count;
};

static struct queue queues[STAGES + 1];

static void put(struct queue *q, uint64_t item) {
  OK(pthread_mutex_lock(&q->mutex));
  while (q->count == BOUND) OK(pthread_cond_wait(&q->not_full, &q->mutex));
  q->items[(q->head + q->count++) % BOUND] = item;
  OK(pthread_cond_signal(&q->not_empty));
  OK(pthread_mutex_unlock(&q->mutex));
}

static uint64_t take(struct queue *q) {
  OK(pthread_mutex_lock(&q->mutex));
  while (q->count == 0) OK(pthread_cond_wait(&q->not_empty, &q->mutex));
  uint64_t item = q->items[q->head++ % BOUND];
  q->count--;
  OK(pthread_cond_signal(&q->not_full));
  OK(pthread_mutex_unlock(&q->mutex));
  return item;
}

static void *producer(void *argument) {
  for (uint64_t i = 0; i < ITEMS; i++) put(&queues[0], ((uint64_t)(long)argument << 32 | i) + 1);
  return 0;
}

static uint64_t sum, squares, count;

static void *consumer(void *argument) {
  uint64_t item, s = 0, q = 0, n = 0;
  while ((item = take(&queues[0]))) s += item, q += item * item, n++;
  __atomic_add_fetch(&sum, s, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&squares, q, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&count, n, __ATOMIC_SEQ_CST);
  return argument;
}

static void *stage(void *argument) {
  long i = (long)argument;
  for (int n = 0; n < TOKENS; n++) put(&queues[i + 1], take(&queues[i]) * 31 + i);
  return 0;
}

static void *feed(void *argument) {
  for (uint64_t n = 0; n < TOKENS; n++) put(&queues[0], n);
  return argument;
}

int main(void) {
  pthread_t producers[PRODUCERS], consumers[CONSUMERS], stages[STAGES];
  for (unsigned i = 0; i < COUNT(queues); i++) {
    OK(pthread_mutex_init(&queues[i].mutex, 0));
    OK(pthread_cond_init(&queues[i].not_empty, 0));
    OK(pthread_cond_init(&queues[i].not_full, 0));
  }
  for (int i = 0; i < CONSUMERS; i++) consumers[i] = start(consumer, 0);
  for (long i = 0; i < PRODUCERS; i++) producers[i] = start(producer, (void *)i);
  for (int i = 0; i < PRODUCERS; i++) join(producers[i]);
  for (int i = 0; i < CONSUMERS; i++) put(&queues[0], 0);
  for (int i = 0; i < CONSUMERS; i++) join(consumers[i]);
  uint64_t expected = 0;
  for (uint64_t p = 0; p < PRODUCERS; p++)
    for (uint64_t i = 0; i < ITEMS; i++) expected += (p << 32 | i) + 1;
  CHECK_EQ(count, PRODUCERS * ITEMS);
  CHECK_EQ(sum, expected);
  printf("ok queue: sum %lu, squares %lu\n", sum, squares);
  pthread_t feeder = start(feed, 0);
  for (long i = 0; i < STAGES; i++) stages[i] = start(stage, (void *)i);
  uint64_t mixed = 0;
  for (int n = 0; n < TOKENS; n++) mixed = mixed * 1000003 + take(&queues[STAGES]); /* in order, too */
  join(feeder);
  for (int i = 0; i < STAGES; i++) join(stages[i]);
  printf("ok pipeline: %lu\n", mixed);
}
