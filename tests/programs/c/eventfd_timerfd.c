/* Asserts eventfd (counter and semaphore, blocking both ways) and timerfd (relative, absolute, periodic, disarmed) read
   by waiting threads. */
#include "check.h"
#include <sys/eventfd.h>
#include <sys/timerfd.h>

enum { THREADS = 16, ROUNDS = 500 };

static int event, echo;

static void *ponger(void *argument) {
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t value;
    CHECK_EQ(read(event, &value, 8), 8);
    CHECK_EQ(value, i + 1);
    CHECK_EQ(write(echo, &value, 8), 8);
  }
  return argument;
}

static void *taker(void *argument) {
  uint64_t value, sum = 0;
  for (int i = 0; i < ROUNDS; i++) {
    CHECK_EQ(read(event, &value, 8), 8);
    sum += value;
  }
  CHECK_EQ(sum, ROUNDS); /* a semaphore gives ones */
  return argument;
}

static int written;

static void *fills(void *argument) {
  uint64_t much = 10;
  CHECK_EQ(write(event, &much, 8), 8); /* would overflow: waits for a reader */
  __atomic_store_n(&written, 1, __ATOMIC_SEQ_CST);
  return argument;
}

static void *timers(void *argument) {
  int relative = (long)argument % 2;
  static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME};
  for (unsigned i = 0; i < COUNT(clocks); i++) {
    int fd = timerfd_create(clocks[i], TFD_CLOEXEC);
    uint64_t ticks, total = 0;
    CHECK(fd >= 0);
    int64_t from = now_ms();
    struct itimerspec t = {.it_value = in_ms(clocks[i], 20)};
    if (relative) t.it_value = (struct timespec){0, 20000000};
    OK(timerfd_settime(fd, relative ? 0 : TFD_TIMER_ABSTIME, &t, 0));
    CHECK_EQ(read(fd, &ticks, 8), 8);
    CHECK_EQ(ticks, 1);
    TOOK_ABOUT(now_ms() - from, 20);
    t = (struct itimerspec){.it_value.tv_nsec = 5000000, .it_interval.tv_nsec = 5000000};
    from = now_ms();
    OK(timerfd_settime(fd, 0, &t, 0));
    while (total < 8) {
      CHECK_EQ(read(fd, &ticks, 8), 8);
      total += ticks;
    }
    CHECK(now_ms() - from >= 39);
    OK(timerfd_settime(fd, 0, &(struct itimerspec){0}, 0));
    OK(fcntl(fd, F_SETFL, O_NONBLOCK));
    while (read(fd, &ticks, 8) == 8) {
    }
    CHECK_EQ(errno, EAGAIN);
    OK(close(fd));
  }
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  event = eventfd(0, 0);
  echo = eventfd(0, EFD_CLOEXEC);
  CHECK(event >= 0 && echo >= 0);
  threads[0] = start(ponger, 0);
  for (uint64_t i = 1; i <= ROUNDS; i++) {
    uint64_t value;
    CHECK_EQ(write(event, &i, 8), 8);
    CHECK_EQ(read(echo, &value, 8), 8);
    CHECK_EQ(value, i);
  }
  join(threads[0]);
  puts("ok counter");

  uint64_t much = UINT64_MAX - 1;
  CHECK_EQ(write(event, &much, 8), 8);
  threads[0] = start(fills, 0);
  sleep_ms(30);
  CHECK_EQ(__atomic_load_n(&written, __ATOMIC_SEQ_CST), 0);
  CHECK_EQ(read(event, &much, 8), 8);
  CHECK_EQ(much, UINT64_MAX - 1);
  join(threads[0]);
  CHECK_EQ(read(event, &much, 8), 8);
  CHECK_EQ(much, 10);
  FAILS(read(event, &much, 7), EINVAL);
  much = UINT64_MAX;
  FAILS(write(event, &much, 8), EINVAL);
  OK(close(event));
  event = eventfd(0, EFD_NONBLOCK);
  FAILS(read(event, &much, 8), EAGAIN);
  OK(close(event));
  puts("ok full and empty");

  event = eventfd(0, EFD_SEMAPHORE);
  for (int i = 0; i < THREADS; i++) threads[i] = start(taker, 0);
  for (uint64_t i = 0; i < ROUNDS; i++) CHECK_EQ(write(event, &(uint64_t){THREADS}, 8), 8);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok semaphore");

  for (long i = 0; i < THREADS; i++) threads[i] = start(timers, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok timers");
}
