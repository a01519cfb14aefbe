/* Asserts condition variables: ping-pong by signal, broadcast wakes everyone, a signal without a waiter is lost, timed
   waits on both clocks end at their time (not before, not seconds after) with the mutex held, past and invalid times. */
#include "check.h"

enum { WAITERS = 50, SWITCHES = 20000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER, other = PTHREAD_COND_INITIALIZER;
static int turn, waiting, generation, woken;

static void *pong(void *argument) {
  long me = (long)argument;
  OK(pthread_mutex_lock(&mutex));
  for (int i = 0; i < SWITCHES; i++) {
    while (turn % 2 != me) OK(pthread_cond_wait(me ? &cond : &other, &mutex));
    turn++;
    OK(pthread_cond_signal(me ? &other : &cond));
  }
  OK(pthread_mutex_unlock(&mutex));
  return 0;
}

static void *waiter(void *argument) {
  (void)argument;
  OK(pthread_mutex_lock(&mutex));
  int mine = generation;
  waiting++;
  while (generation == mine) OK(pthread_cond_wait(&cond, &mutex));
  woken++;
  OK(pthread_mutex_unlock(&mutex));
  return 0;
}

/* Waits that must end by time-out, on a condition variable of the given clock. */
static void *timeouts(void *argument) {
  clockid_t clock = *(clockid_t *)argument;
  pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
  pthread_condattr_t attr;
  pthread_cond_t c;
  OK(pthread_condattr_init(&attr));
  OK(pthread_condattr_setclock(&attr, clock));
  OK(pthread_cond_init(&c, &attr));
  OK(pthread_cond_signal(&c)); /* nobody waits: lost */
  OK(pthread_mutex_lock(&own));
  static const int times[] = {40, 1, 0, -1000, 100};
  for (unsigned i = 0; i < COUNT(times); i++) {
    int64_t from = now_ms();
    struct timespec until = in_ms(clock, times[i]);
    int result;
    do result = pthread_cond_timedwait(&c, &own, &until);
    while (result == 0); /* spurious wake-ups are allowed */
    CHECK_EQ(result, ETIMEDOUT);
    TOOK_ABOUT(now_ms() - from, times[i] > 0 ? times[i] : 0);
    CHECK_EQ(pthread_mutex_trylock(&own), EBUSY); /* we hold it again */
  }
  clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME};
  for (unsigned i = 0; i < COUNT(clocks); i++) {
    int64_t from = now_ms();
    struct timespec until = in_ms(clocks[i], 40);
    int result;
    do result = pthread_cond_clockwait(&c, &own, clocks[i], &until);
    while (result == 0);
    CHECK_EQ(result, ETIMEDOUT);
    TOOK_ABOUT(now_ms() - from, 40);
  }
  struct timespec bad = {now_ms() / 1000 + 10, 1000000000};
  CHECK_EQ(pthread_cond_timedwait(&c, &own, &bad), EINVAL);
  OK(pthread_mutex_unlock(&own));
  OK(pthread_cond_destroy(&c));
  return 0;
}

/* Is woken long before its time-out. */
static void *in_time(void *argument) {
  (void)argument;
  struct timespec until = in_ms(CLOCK_REALTIME, 30000);
  OK(pthread_mutex_lock(&mutex));
  waiting++;
  int mine = generation;
  while (generation == mine) OK(pthread_cond_timedwait(&cond, &mutex, &until));
  OK(pthread_mutex_unlock(&mutex));
  return 0;
}

static void wait_for_waiters(int count) {
  for (;;) {
    OK(pthread_mutex_lock(&mutex));
    int now = waiting;
    OK(pthread_mutex_unlock(&mutex));
    if (now == count) return;
    sleep_ms(1);
  }
}

static void release(void) {
  OK(pthread_mutex_lock(&mutex));
  generation++;
  OK(pthread_cond_broadcast(&cond));
  OK(pthread_mutex_unlock(&mutex));
}

int main(void) {
  pthread_t threads[WAITERS];
  threads[0] = start(pong, (void *)0L);
  threads[1] = start(pong, (void *)1L);
  join(threads[0]);
  join(threads[1]);
  CHECK_EQ(turn, 2 * SWITCHES);
  puts("ok ping-pong");

  for (int i = 0; i < WAITERS; i++) threads[i] = start(waiter, 0);
  wait_for_waiters(WAITERS);
  CHECK_EQ(woken, 0);
  release();
  for (int i = 0; i < WAITERS; i++) join(threads[i]);
  CHECK_EQ(woken, WAITERS);
  puts("ok broadcast");

  static clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC};
  for (int i = 0; i < 8; i++) threads[i] = start(timeouts, &clocks[i % 2]);
  for (int i = 0; i < 8; i++) join(threads[i]);
  timeouts(&clocks[0]); /* and on the main thread */
  puts("ok timeouts");

  waiting = 0;
  int64_t from = now_ms();
  for (int i = 0; i < WAITERS; i++) threads[i] = start(in_time, 0);
  wait_for_waiters(WAITERS);
  release();
  for (int i = 0; i < WAITERS; i++) join(threads[i]);
  CHECK(now_ms() - from < 20000);
  puts("ok woken before the time-out");
}
