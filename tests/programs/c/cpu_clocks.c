/* Asserts processor-time clocks: a thread's own clock grows while it computes and hardly while it sleeps, those of other
   threads can be read and slept on, the process's holds the sum, getrusage agrees, what a thread has used before anybody
   asks is not lost. */
#include "check.h"
#include <sys/resource.h>

static int stop;
static volatile uint64_t work;

static void *computes(void *argument) {
  while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST))
    for (int i = 0; i < 1000; i++) work += (uint64_t)i;
  return (void *)now_ns(CLOCK_THREAD_CPUTIME_ID);
  (void)argument;
}

static void *sleeps(void *argument) {
  int64_t before = now_ns(CLOCK_THREAD_CPUTIME_ID);
  while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) sleep_ms(10);
  CHECK(now_ns(CLOCK_THREAD_CPUTIME_ID) >= before);
  return (void *)now_ns(CLOCK_THREAD_CPUTIME_ID);
  (void)argument;
}

static int64_t usage_us(int who) {
  struct rusage usage;
  OK(getrusage(who, &usage));
  return usage.ru_utime.tv_sec * 1000000LL + usage.ru_utime.tv_usec + usage.ru_stime.tv_sec * 1000000LL +
         usage.ru_stime.tv_usec;
}

/* Uses so much of the process's time that some of it must be this thread's: only sleepers are about. */
static void compute(int ms) {
  int64_t until = now_ns(CLOCK_PROCESS_CPUTIME_ID) + ms * 1000000LL;
  while (now_ns(CLOCK_PROCESS_CPUTIME_ID) < until)
    for (int i = 0; i < 1000; i++) work += (uint64_t)i;
}

static void *asks_late(void *argument) {
  int64_t before = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  compute(150);
  int64_t own = now_ns(CLOCK_THREAD_CPUTIME_ID);
  CHECK(own > 100000000);
  CHECK(own < now_ns(CLOCK_PROCESS_CPUTIME_ID) - before + 50000000);
  return argument;
}

static void *measures(void *argument) {
  int64_t clock = now_ns(CLOCK_THREAD_CPUTIME_ID), usage = usage_us(RUSAGE_THREAD);
  compute(50);
  clock = now_ns(CLOCK_THREAD_CPUTIME_ID) - clock;
  usage = usage_us(RUSAGE_THREAD) - usage;
  CHECK(clock > 20000000 && clock < 500000000);
  CHECK(usage > clock / 1000 / 2 && usage < clock / 1000 * 2);
  return argument;
}

static void others(clockid_t computing, clockid_t ended) {
  struct timespec t;
  OK(clock_getres(computing, &t));
  CHECK(t.tv_sec == 0 && t.tv_nsec >= 1 && t.tv_nsec <= 10000000);
  OK(clock_getres(CLOCK_THREAD_CPUTIME_ID, 0));
  int64_t from = now_ns(computing);
  t = (struct timespec){0, 20000000};
  OK(clock_nanosleep(computing, 0, &t, 0));
  CHECK(now_ns(computing) >= from + 20000000);
  from = now_ns(computing) + 10000000;
  t = (struct timespec){from / 1000000000, from % 1000000000};
  OK(clock_nanosleep(computing, TIMER_ABSTIME, &t, 0));
  CHECK(now_ns(computing) >= from);
  CHECK_EQ(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &t, 0), EINVAL);
  FAILS(clock_settime(computing, &t), EPERM);
  FAILS(clock_gettime(ended, &t), EINVAL);
  FAILS(clock_getres(ended, &t), EINVAL);
  FAILS(clock_gettime((computing & ~7) | 3, &t), EINVAL);
}

static pid_t ended_tid;

static void *ends(void *argument) {
  ended_tid = gettid();
  OK(pthread_getcpuclockid(pthread_self(), argument));
  return 0;
}

/* Many threads have lived before: their ids are of all kinds. */
static void *reads_own(void *argument) {
  clockid_t clock;
  struct timespec t;
  OK(pthread_getcpuclockid(pthread_self(), &clock));
  OK(clock_gettime(clock, &t));
  return argument;
}

int main(void) {
  int64_t main_used = now_ns(CLOCK_THREAD_CPUTIME_ID); /* the kernel's: there is one thread */
  for (int i = 0; i < 300; i++) join(start(reads_own, 0));
  join(start(asks_late, 0));
  CHECK(now_ns(CLOCK_THREAD_CPUTIME_ID) >= main_used);
  join(start(measures, 0));
  clockid_t ended;
  join(start(ends, &ended));
  gone(ended_tid);
  clockid_t clocks[2];
  int64_t process = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  pthread_t threads[] = {start(computes, 0), start(sleeps, 0)};
  for (int i = 0; i < 2; i++) OK(pthread_getcpuclockid(threads[i], &clocks[i]));
  sleep_ms(200);
  others(clocks[0], ended);
  int64_t other = now_ns(clocks[0]), sleeper = now_ns(clocks[1]);
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  int64_t own = (int64_t)join(threads[0]), idle = (int64_t)join(threads[1]);
  process = now_ns(CLOCK_PROCESS_CPUTIME_ID) - process;
  CHECK(other > 20000000 && other <= own);
  CHECK(sleeper < other / 2);
  CHECK(idle < own / 2);
  CHECK(process >= own);
  CHECK(usage_us(RUSAGE_SELF) >= own / 1000 / 2);
  puts("ok clocks");
}
