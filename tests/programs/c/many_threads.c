/* Asserts 10,000 live threads with 64 KiB stacks, all waiting on one condition variable, released by one broadcast. */
#include "check.h"

enum { THREADS = 10000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER, all = PTHREAD_COND_INITIALIZER;
static int waiting, released, woken;
static __thread int own;

static void *body(void *argument) {
  own = (int)(long)argument;
  OK(pthread_mutex_lock(&mutex));
  if (++waiting == THREADS) OK(pthread_cond_signal(&all));
  while (!released) OK(pthread_cond_wait(&cond, &mutex));
  woken++;
  OK(pthread_mutex_unlock(&mutex));
  CHECK_EQ(own, (long)argument);
  return argument;
}

int main(void) {
  static pthread_t threads[THREADS];
  pthread_attr_t attr;
  OK(pthread_attr_init(&attr));
  OK(pthread_attr_setstacksize(&attr, 64 * 1024));
  for (long i = 0; i < THREADS; i++) OK(pthread_create(&threads[i], &attr, body, (void *)i));
  OK(pthread_mutex_lock(&mutex));
  while (waiting < THREADS) OK(pthread_cond_wait(&all, &mutex));
  CHECK_EQ(woken, 0);
  released = 1;
  OK(pthread_cond_broadcast(&cond));
  OK(pthread_mutex_unlock(&mutex));
  for (long i = 0; i < THREADS; i++) CHECK_EQ((long)join(threads[i]), i);
  CHECK_EQ(woken, THREADS);
  puts("ok 10000 threads");
}
