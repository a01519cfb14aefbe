/* Asserts that threads which spin for work, and one that spins until they have done it, more of them than CPUs, all get
   their turn soon: how long a round takes is counted in the CPU time of the process, which other load does not change. */
#include "check.h"

enum { HELPERS = 3, ROUNDS = 31, MOST_MS = 35 };

static volatile int wanted[HELPERS], stop;

static void *helps(void *argument) {
  volatile int *mine = argument;
  while (!stop)
    if (*mine) *mine = 0;
  return 0;
}

static int compare(const void *left, const void *right) {
  long a = *(const long *)left, b = *(const long *)right;
  return (a > b) - (a < b);
}

static long cpu_time(void) {
  struct timespec time;
  OK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time));
  return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

int main(void) {
  pthread_t threads[HELPERS];
  long took[ROUNDS];
  for (int i = 0; i < HELPERS; i++) OK(pthread_create(&threads[i], 0, helps, (void *)&wanted[i]));
  for (int round = 0; round < ROUNDS; round++) {
    long begin = cpu_time();
    for (int i = 0; i < HELPERS; i++) wanted[i] = 1;
    for (int i = 0; i < HELPERS; i++)
      while (wanted[i]) {
      }
    took[round] = cpu_time() - begin;
  }
  stop = 1;
  for (int i = 0; i < HELPERS; i++) OK(pthread_join(threads[i], 0));
  qsort(took, ROUNDS, sizeof took[0], compare);
  CHECK(took[ROUNDS / 2] <= MOST_MS * 1000);
  puts("each round was over soon");
  return 0;
}
