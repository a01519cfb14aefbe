/* Asserts priority-inheriting mutexes: they exclude when 8 threads fight over one, deadlock and ownership are noticed,
   timedlock gives up in time, a robust one survives its owner. */
#include "check.h"

enum { THREADS = 8, ROUNDS = 3000 };

static pthread_mutex_t mutex;
static long counter;

static void make(pthread_mutex_t *m, int kind, int robust) {
  pthread_mutexattr_t attr;
  OK(pthread_mutexattr_init(&attr));
  OK(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
  OK(pthread_mutexattr_settype(&attr, kind));
  OK(pthread_mutexattr_setrobust(&attr, robust));
  OK(pthread_mutex_init(m, &attr));
  OK(pthread_mutexattr_destroy(&attr));
}

static void *adder(void *argument) {
  (void)argument;
  for (int i = 0; i < ROUNDS; i++) {
    OK(pthread_mutex_lock(&mutex));
    long seen = counter;
    if (i % 256 == 0) sched_yield();
    counter = seen + 1;
    OK(pthread_mutex_unlock(&mutex));
  }
  return 0;
}

static void *loser(void *checks_owner) {
  CHECK_EQ(pthread_mutex_trylock(&mutex), EBUSY);
  if (checks_owner) CHECK_EQ(pthread_mutex_unlock(&mutex), EPERM);
  int64_t from = now_ms();
  struct timespec until = in_ms(CLOCK_REALTIME, 30);
  CHECK_EQ(pthread_mutex_timedlock(&mutex, &until), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 30);
  return 0;
}

static void *die_with(void *m) {
  OK(pthread_mutex_lock(m));
  sleep_ms(10);
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  make(&mutex, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED);
  for (int i = 0; i < THREADS; i++) threads[i] = start(adder, 0);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  CHECK_EQ(counter, THREADS * ROUNDS);
  OK(pthread_mutex_lock(&mutex));
  join(start(loser, 0));
  OK(pthread_mutex_unlock(&mutex));
  OK(pthread_mutex_destroy(&mutex));
  puts("ok contended");

  make(&mutex, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED);
  OK(pthread_mutex_lock(&mutex));
  CHECK_EQ(pthread_mutex_lock(&mutex), EDEADLK);
  join(start(loser, &mutex));
  OK(pthread_mutex_unlock(&mutex));
  CHECK_EQ(pthread_mutex_unlock(&mutex), EPERM);
  OK(pthread_mutex_destroy(&mutex));
  puts("ok errorcheck");

  make(&mutex, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST);
  for (int i = 0; i < 5; i++) {
    pthread_t owner = start(die_with, &mutex);
    if (i % 2) join(owner);
    else sleep_ms(5); /* most likely waits for a live owner */
    int result = pthread_mutex_lock(&mutex);
    if (i % 2) CHECK_EQ(result, EOWNERDEAD);
    if (result == EOWNERDEAD) OK(pthread_mutex_consistent(&mutex));
    else OK(result); /* locked before the owner did */
    OK(pthread_mutex_unlock(&mutex));
    if (!(i % 2)) {
      join(owner);
      result = pthread_mutex_lock(&mutex);
      CHECK(result == 0 || result == EOWNERDEAD);
      if (result) OK(pthread_mutex_consistent(&mutex));
      OK(pthread_mutex_unlock(&mutex));
    }
  }
  OK(pthread_mutex_destroy(&mutex));
  puts("ok robust");
}
