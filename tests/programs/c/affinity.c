/* Asserts that the processors a thread asks for are its own: what it sets it reads back, new threads inherit it, other
   threads keep theirs, and it runs there; that another thread can set them; that main may have narrowed its own before
   there were threads. */
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

static int stop;
static pid_t moved_tid;

/* Moved by main while it runs, waits and sleeps. */
static void *moved(void *argument) {
  moved_tid = gettid();
  pthread_barrier_wait(&barrier);
  for (int i = 0; !__atomic_load_n(&stop, __ATOMIC_SEQ_CST); i++)
    if (i % 1000 == 0) usleep(100);
  return argument;
}

static void *runs_on(void *argument) {
  CHECK_EQ(sched_getcpu(), (int)(long)argument);
  return 0;
}

static void by_another(void) {
  cpu_set_t set, now;
  OK(pthread_barrier_init(&barrier, 0, 2));
  pthread_t thread = start(moved, 0);
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < 20; i++) {
    CPU_ZERO(&set);
    CPU_SET(cpus[i % count], &set);
    OK(pthread_setaffinity_np(thread, sizeof set, &set));
    OK(pthread_getaffinity_np(thread, sizeof now, &now));
    CHECK(CPU_EQUAL(&now, &set));
    OK(sched_getaffinity(0, sizeof now, &now));
    CHECK(CPU_EQUAL(&now, &all));
  }
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  join(thread);
  gone(moved_tid);
  FAILS(sched_setaffinity(moved_tid, sizeof all, &all), ESRCH);
  FAILS(sched_getaffinity(moved_tid, sizeof all, &all), ESRCH);

  pthread_attr_t attr;
  OK(pthread_attr_init(&attr));
  for (int i = 0; i < 8; i++) {
    CPU_ZERO(&set);
    CPU_SET(cpus[i % count], &set);
    OK(pthread_attr_setaffinity_np(&attr, sizeof set, &set));
    OK(pthread_create(&thread, &attr, runs_on, (void *)(long)cpus[i % count]));
    join(thread);
  }
  CPU_ZERO(&set);
  OK(pthread_attr_setaffinity_np(&attr, sizeof set, &set));
  CHECK_EQ(pthread_create(&thread, &attr, runs_on, 0), EINVAL);
  OK(pthread_attr_destroy(&attr));
}

static void *widens(void *argument) {
  cpu_set_t now;
  OK(sched_getaffinity(0, sizeof now, &now));
  CHECK(CPU_EQUAL(&now, (cpu_set_t *)argument));
  CHECK_EQ(sched_getcpu(), cpus[0]);
  OK(sched_setaffinity(0, sizeof all, &all));
  OK(sched_getaffinity(0, sizeof now, &now));
  CHECK(CPU_EQUAL(&now, &all));
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  cpu_set_t now;
  OK(sched_getaffinity(0, sizeof all, &all));
  for (int c = 0; c < CPU_SETSIZE; c++)
    if (CPU_ISSET(c, &all)) cpus[count++] = c;
  CPU_ZERO(&now);
  CPU_SET(cpus[0], &now);
  OK(sched_setaffinity(0, sizeof now, &now));
  join(start(widens, &now));
  for (int i = 0; i < 10; i++) {
    CHECK_EQ(sched_getcpu(), cpus[0]);
    usleep(100);
  }
  OK(sched_setaffinity(0, sizeof all, &all));
  by_another();
  OK(pthread_barrier_init(&barrier, 0, THREADS));
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  OK(sched_getaffinity(0, sizeof now, &now));
  CHECK(CPU_EQUAL(&now, &all));
  puts("ok affinity");
}
