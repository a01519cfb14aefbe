/* Asserts processor-time clocks: a thread's own clock grows while it computes and hardly while it sleeps, those of other
   threads can be read, the process's holds the sum, getrusage agrees. */
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

int main(void) {
  clockid_t clocks[2];
  int64_t process = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  pthread_t threads[] = {start(computes, 0), start(sleeps, 0)};
  for (int i = 0; i < 2; i++) OK(pthread_getcpuclockid(threads[i], &clocks[i]));
  sleep_ms(200);
  int64_t other = now_ns(clocks[0]), sleeper = now_ns(clocks[1]);
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  int64_t own = (int64_t)join(threads[0]), idle = (int64_t)join(threads[1]);
  process = now_ns(CLOCK_PROCESS_CPUTIME_ID) - process;
  CHECK(other > 20000000 && other <= own);
  CHECK(sleeper < other / 2);
  CHECK(idle < own / 2);
  CHECK(process >= own);
  struct rusage usage;
  OK(getrusage(RUSAGE_SELF, &usage));
  CHECK(usage.ru_utime.tv_sec * 1000000LL + usage.ru_utime.tv_usec + usage.ru_stime.tv_sec * 1000000LL +
            usage.ru_stime.tv_usec >= own / 1000 / 2);
  puts("ok clocks");
}
