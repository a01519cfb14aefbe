/* Asserts that 10,000 threads with 64 KiB stacks can sleep until the same moment, all wake after it, and end. */
#include "check.h"

enum { THREADS = 10000 };

static struct timespec moment;
static int awake;

static void *sleeper(void *argument) {
  OK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, 0));
  CHECK(now_ns(CLOCK_MONOTONIC) >= moment.tv_sec * 1000000000LL + moment.tv_nsec);
  __atomic_add_fetch(&awake, 1, __ATOMIC_SEQ_CST);
  return argument;
}

int main(void) {
  static pthread_t threads[THREADS];
  pthread_attr_t attr;
  OK(pthread_attr_init(&attr));
  OK(pthread_attr_setstacksize(&attr, 64 * 1024));
  moment = in_ms(CLOCK_MONOTONIC, 1000);
  for (long i = 0; i < THREADS; i++) OK(pthread_create(&threads[i], &attr, sleeper, (void *)i));
  for (long i = 0; i < THREADS; i++) CHECK_EQ((long)join(threads[i]), i);
  CHECK_EQ(awake, THREADS);
  int64_t late = now_ns(CLOCK_MONOTONIC) - (moment.tv_sec * 1000000000LL + moment.tv_nsec);
  CHECK(late < 10000000000LL); /* the last of them */
  puts("ok sleepers");
}
