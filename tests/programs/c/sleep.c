/* Asserts sleeping: nanosleep, usleep, sleep and clock_nanosleep, relative and to a time, on both clocks, never wake
   early, refuse nonsense; many threads sleep to different times at once. */
#include "check.h"

enum { ORDERED = 20, REPEATS = 8 };

static int woken;

static void each_way(void) {
  struct timespec t = {0, 20000000}, rest = {7, 7};
  int64_t from = now_ns(CLOCK_MONOTONIC);
  OK(nanosleep(&t, &rest));
  CHECK(now_ns(CLOCK_MONOTONIC) - from >= 20000000);
  CHECK(rest.tv_sec == 7 && rest.tv_nsec == 7); /* untouched */
  from = now_ns(CLOCK_MONOTONIC);
  OK(usleep(15000));
  CHECK(now_ns(CLOCK_MONOTONIC) - from >= 15000000);
  static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME};
  for (unsigned i = 0; i < COUNT(clocks); i++) {
    from = now_ns(clocks[i]);
    OK(clock_nanosleep(clocks[i], 0, &t, 0));
    CHECK(now_ns(clocks[i]) - from >= 20000000);
    struct timespec until = in_ms(clocks[i], 20);
    OK(clock_nanosleep(clocks[i], TIMER_ABSTIME, &until, 0));
    CHECK(now_ns(clocks[i]) >= until.tv_sec * 1000000000LL + until.tv_nsec);
    from = now_ms();
    until = in_ms(clocks[i], -100000); /* gone by */
    OK(clock_nanosleep(clocks[i], TIMER_ABSTIME, &until, 0));
    TOOK_ABOUT(now_ms() - from, 0);
  }
  t.tv_nsec = 0;
  OK(nanosleep(&t, 0));
  t.tv_nsec = 1;
  OK(nanosleep(&t, 0));
  t.tv_nsec = 1000000000;
  FAILS(nanosleep(&t, 0), EINVAL);
  CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0), EINVAL);
  t = (struct timespec){-1, 0};
  FAILS(nanosleep(&t, 0), EINVAL);
  CHECK_EQ(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &t, 0), EINVAL);
  struct timespec *volatile nowhere = (struct timespec *)8;
  FAILS(nanosleep(nowhere, 0), EFAULT);
}

static void *each_way_thread(void *argument) {
  each_way();
  return argument;
}

static void *ordered(void *argument) {
  struct timespec *until = argument;
  OK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, until, 0));
  CHECK(now_ns(CLOCK_MONOTONIC) >= until->tv_sec * 1000000000LL + until->tv_nsec);
  __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
  return 0;
}

int main(void) {
  pthread_t threads[ORDERED];
  each_way();
  puts("ok main");
  for (int i = 0; i < REPEATS; i++) threads[i] = start(each_way_thread, 0);
  for (int i = 0; i < REPEATS; i++) join(threads[i]);
  puts("ok threads");
  struct timespec times[ORDERED];
  int64_t base = now_ns(CLOCK_MONOTONIC) + 50000000;
  for (int i = 0; i < ORDERED; i++) {
    int64_t t = base + (i * 7 % ORDERED) * 15000000LL; /* 15 ms apart, started in another order */
    times[i] = (struct timespec){t / 1000000000, t % 1000000000};
    threads[i] = start(ordered, &times[i]);
  }
  for (int i = 0; i < ORDERED; i++) join(threads[i]);
  CHECK_EQ(woken, ORDERED);
  puts("ok times");
}
