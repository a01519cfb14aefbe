/* Asserts what each kind of mutex returns (normal, recursive, errorcheck, adaptive, shared between processes), that
   trylock, timedlock and clocklock give up when they should, and that each kind excludes: 8 threads add to a counter. */
#include "check.h"

enum { THREADS = 8, ROUNDS = 5000 };

static pthread_mutex_t *contended;
static long counter;

static void *adder(void *argument) {
  long depth = (long)argument;
  for (int i = 0; i < ROUNDS; i++) {
    if (i % 3 == 0)
      while (pthread_mutex_trylock(contended)) sched_yield();
    else
      OK(pthread_mutex_lock(contended));
    for (long d = 1; d < depth; d++) OK(pthread_mutex_lock(contended));
    long seen = counter;
    if (i % 512 == 0) sched_yield();
    counter = seen + 1;
    for (long d = 0; d < depth; d++) OK(pthread_mutex_unlock(contended));
  }
  return 0;
}

static void exclusion(pthread_mutex_t *mutex, long depth) {
  pthread_t threads[THREADS];
  contended = mutex;
  counter = 0;
  for (int i = 0; i < THREADS; i++) threads[i] = start(adder, (void *)depth);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  CHECK_EQ(counter, THREADS * ROUNDS);
}

static pthread_mutex_t *make(pthread_mutex_t *mutex, int kind, int pshared) {
  pthread_mutexattr_t attr;
  OK(pthread_mutexattr_init(&attr));
  OK(pthread_mutexattr_settype(&attr, kind));
  OK(pthread_mutexattr_setpshared(&attr, pshared));
  OK(pthread_mutex_init(mutex, &attr));
  OK(pthread_mutexattr_destroy(&attr));
  return mutex;
}

static void *other_thread(void *mutex) {
  int kind_checks_owner = *(long *)((void **)mutex)[1];
  pthread_mutex_t *m = ((void **)mutex)[0];
  CHECK_EQ(pthread_mutex_trylock(m), EBUSY);
  if (kind_checks_owner) CHECK_EQ(pthread_mutex_unlock(m), EPERM);
  int64_t from = now_ms();
  struct timespec until = in_ms(CLOCK_REALTIME, 30);
  CHECK_EQ(pthread_mutex_timedlock(m, &until), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 30);
  from = now_ms();
  until = in_ms(CLOCK_MONOTONIC, 30);
  CHECK_EQ(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &until), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 30);
  until = in_ms(CLOCK_REALTIME, -1000); /* in the past: no waiting at all */
  from = now_ms();
  CHECK_EQ(pthread_mutex_timedlock(m, &until), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 0);
  until.tv_nsec = 1000000000;
  CHECK_EQ(pthread_mutex_timedlock(m, &until), EINVAL);
  return 0;
}

static void held_elsewhere(pthread_mutex_t *mutex, long checks_owner) {
  void *argument[2] = {mutex, &checks_owner};
  OK(pthread_mutex_lock(mutex));
  join(start(other_thread, argument));
  OK(pthread_mutex_unlock(mutex));
}

static void *timed_winner(void *mutex) {
  struct timespec until = in_ms(CLOCK_REALTIME, 20000);
  OK(pthread_mutex_timedlock(mutex, &until)); /* released after 20 ms: far from the deadline */
  OK(pthread_mutex_unlock(mutex));
  return 0;
}

int main(void) {
  static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, m;
  static pthread_mutex_t recursive_init = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  static pthread_mutex_t errorcheck_init = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
  static pthread_mutex_t adaptive_init = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
  exclusion(&plain, 1);
  held_elsewhere(&plain, 0);
  OK(pthread_mutex_lock(&plain));
  CHECK_EQ(pthread_mutex_trylock(&plain), EBUSY);
  CHECK_EQ(pthread_mutex_destroy(&plain), EBUSY);
  pthread_t winner = start(timed_winner, &plain);
  sleep_ms(20);
  OK(pthread_mutex_unlock(&plain));
  join(winner);
  OK(pthread_mutex_destroy(&plain));
  puts("ok normal");

  exclusion(&recursive_init, 3);
  make(&m, PTHREAD_MUTEX_RECURSIVE, PTHREAD_PROCESS_PRIVATE);
  for (int i = 0; i < 5; i++) OK(i % 2 ? pthread_mutex_trylock(&m) : pthread_mutex_lock(&m));
  held_elsewhere(&m, 1);
  for (int i = 0; i < 5; i++) OK(pthread_mutex_unlock(&m));
  CHECK_EQ(pthread_mutex_unlock(&m), EPERM);
  OK(pthread_mutex_destroy(&m));
  puts("ok recursive");

  exclusion(&errorcheck_init, 1);
  make(&m, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PROCESS_PRIVATE);
  CHECK_EQ(pthread_mutex_unlock(&m), EPERM);
  OK(pthread_mutex_lock(&m));
  CHECK_EQ(pthread_mutex_lock(&m), EDEADLK);
  CHECK_EQ(pthread_mutex_trylock(&m), EBUSY);
  OK(pthread_mutex_unlock(&m));
  held_elsewhere(&m, 1);
  OK(pthread_mutex_destroy(&m));
  puts("ok errorcheck");

  exclusion(&adaptive_init, 1);
  held_elsewhere(&adaptive_init, 0);
  puts("ok adaptive");

  pthread_mutex_t *on_heap = malloc(sizeof *on_heap);
  exclusion(make(on_heap, PTHREAD_MUTEX_NORMAL, PTHREAD_PROCESS_SHARED), 1);
  held_elsewhere(on_heap, 0);
  OK(pthread_mutex_destroy(on_heap));
  free(on_heap);
  puts("ok process-shared, private memory");

  pthread_mutex_t *mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  exclusion(make(mapped, PTHREAD_MUTEX_NORMAL, PTHREAD_PROCESS_SHARED), 1);
  held_elsewhere(mapped, 0);
  OK(pthread_mutex_destroy(mapped));
  exclusion(make(mapped, PTHREAD_MUTEX_RECURSIVE, PTHREAD_PROCESS_SHARED), 2);
  OK(pthread_mutex_destroy(mapped));
  puts("ok process-shared, shared memory");
}
