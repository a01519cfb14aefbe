/* Threads that yield all the time, one for each CPU and more, do not keep others from running: neither those that compute
   and are preempted, nor those that wait for a descriptor or for time to pass. */
#include "check.h"
#include <stdatomic.h>

static atomic_int over, done;
static int wires[2];

static void *yields(void *unused) {
  while (!atomic_load(&over)) sched_yield();
  return unused;
}

static void *computes(void *unused) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  long end = now.tv_sec * 1000 + now.tv_nsec / 1000000 + 60;
  for (volatile unsigned i = 0; now.tv_sec * 1000 + now.tv_nsec / 1000000 < end; i++)
    if (i % 1000 == 0) clock_gettime(CLOCK_MONOTONIC, &now);
  atomic_fetch_add(&done, 1);
  return unused;
}

static void *waits(void *unused) {
  char byte;
  for (int i = 0; i < 10; i++) CHECK(read(wires[0], &byte, 1) == 1);
  atomic_fetch_add(&done, 1);
  return unused;
}

static void round_of(int yielders) {
  pthread_t threads[8];
  int n = 0;
  over = done = 0;
  for (int i = 0; i < yielders; i++) CHECK(pthread_create(&threads[n++], 0, yields, 0) == 0);
  for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[n++], 0, computes, 0) == 0);
  CHECK(pthread_create(&threads[n++], 0, waits, 0) == 0);
  for (int i = 0; i < 10; i++) {
    struct timespec nap = {0, 2000000};
    CHECK(nanosleep(&nap, 0) == 0);
    CHECK(write(wires[1], "x", 1) == 1);
  }
  while (atomic_load(&done) < 4) {
    struct timespec nap = {0, 1000000};
    nanosleep(&nap, 0);
  }
  over = 1;
  for (int i = 0; i < n; i++) CHECK(pthread_join(threads[i], 0) == 0);
}

/* Nothing but threads that yield and threads that are preempted: no deadline and no descriptor stirs anything. */
static void nothing_else(int yielders) {
  pthread_t threads[8], busy[3];
  over = 0;
  for (int i = 0; i < yielders; i++) CHECK(pthread_create(&threads[i], 0, yields, 0) == 0);
  for (int i = 0; i < 3; i++) CHECK(pthread_create(&busy[i], 0, computes, 0) == 0);
  for (int i = 0; i < 3; i++) CHECK(pthread_join(busy[i], 0) == 0);
  over = 1;
  for (int i = 0; i < yielders; i++) CHECK(pthread_join(threads[i], 0) == 0);
}

int main(void) {
  CHECK(pipe(wires) == 0);
  for (int i = 0; i < 12; i++) nothing_else(1 + i % 4);
  for (int i = 0; i < 4; i++) round_of(1 + i);
  puts("ok all ran");
  return 0;
}
