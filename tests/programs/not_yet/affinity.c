/* Asserts that the processors a thread asks for are its own: what it sets it reads back, new threads inherit it, other
   threads keep theirs, and it runs there. */
#include "check.h"

enum { THREADS = 8 };

static pthread_barrier_t barrier;
static cpu_set_t all;
static int cpus[1024], count;

static void *child(void *argument) {
  cpu_set_t set;
  OK(pthread_getaffinity_np(pthread_self(), sizeof set, &set));
  CHECK(CPU_EQUAL(&set, (cpu_set_t *)argument));
  return 0;
}

static void *body(void *argument) {
  int id = (int)(long)argument, mine = cpus[id % count];
  cpu_set_t set, now;
  OK(pthread_getaffinity_np(pthread_self(), sizeof now, &now));
  CHECK(CPU_EQUAL(&now, &all));
  pthread_barrier_wait(&barrier);
  if (id < THREADS / 2) {
    CPU_ZERO(&set);
    CPU_SET(mine, &set);
    OK(pthread_setaffinity_np(pthread_self(), sizeof set, &set));
    for (int i = 0; i < 20; i++) {
      CHECK_EQ(sched_getcpu(), mine);
      if (i % 2) usleep(100);
      else sched_yield();
    }
    join(start(child, &set));
  } else {
    set = all;
  }
  pthread_barrier_wait(&barrier);
  OK(sched_getaffinity(0, sizeof now, &now));
  CHECK(CPU_EQUAL(&now, &set));
  CPU_ZERO(&set);
  FAILS(sched_setaffinity(0, sizeof set, &set), EINVAL);
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  cpu_set_t now;
  OK(sched_getaffinity(0, sizeof all, &all));
  for (int c = 0; c < CPU_SETSIZE; c++)
    if (CPU_ISSET(c, &all)) cpus[count++] = c;
  OK(pthread_barrier_init(&barrier, 0, THREADS));
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  OK(sched_getaffinity(0, sizeof now, &now));
  CHECK(CPU_EQUAL(&now, &all));
  puts("ok affinity");
}
