/* Asserts robust mutexes: a thread that ends holding one leaves EOWNERDEAD to the next locker, waiting or not;
   pthread_mutex_consistent repairs it, unlocking without makes it ENOTRECOVERABLE; also with several held at once, on
   shared memory, with timedlock, with the owner being a process that died. */
#include "check.h"

enum { MANY = 20 };

static pthread_mutex_t *make(pthread_mutex_t *mutex, int pshared, int kind) {
  pthread_mutexattr_t attr;
  OK(pthread_mutexattr_init(&attr));
  OK(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
  OK(pthread_mutexattr_setpshared(&attr, pshared));
  OK(pthread_mutexattr_settype(&attr, kind));
  OK(pthread_mutex_init(mutex, &attr));
  OK(pthread_mutexattr_destroy(&attr));
  return mutex;
}

static void *die_with(void *mutex) {
  OK(pthread_mutex_lock(mutex));
  return 0;
}

static void *die_with_many(void *mutexes) {
  for (int i = 0; i < MANY; i++) OK(pthread_mutex_lock((pthread_mutex_t *)mutexes + i));
  OK(pthread_mutex_unlock((pthread_mutex_t *)mutexes + MANY / 2)); /* one leaves the list in the middle */
  pthread_exit(0);
}

static pthread_barrier_t locked;

static void *die_late(void *mutex) {
  OK(pthread_mutex_lock(mutex));
  pthread_barrier_wait(&locked);
  sleep_ms(30); /* the others are waiting by now */
  return 0;
}

static int heirs;

static void *heir(void *mutex) {
  int result = pthread_mutex_lock(mutex);
  if (result == EOWNERDEAD) {
    __atomic_add_fetch(&heirs, 1, __ATOMIC_SEQ_CST);
    OK(pthread_mutex_consistent(mutex));
    result = 0;
  }
  OK(result);
  OK(pthread_mutex_unlock(mutex));
  return 0;
}

static void one(pthread_mutex_t *mutex) {
  join(start(die_with, mutex));
  CHECK_EQ(pthread_mutex_lock(mutex), EOWNERDEAD);
  OK(pthread_mutex_consistent(mutex));
  OK(pthread_mutex_unlock(mutex));
  OK(pthread_mutex_lock(mutex));
  CHECK_EQ(pthread_mutex_consistent(mutex), EINVAL); /* nothing to repair */
  OK(pthread_mutex_unlock(mutex));

  join(start(die_with, mutex));
  struct timespec until = in_ms(CLOCK_REALTIME, 5000);
  CHECK_EQ(pthread_mutex_timedlock(mutex, &until), EOWNERDEAD);
  OK(pthread_mutex_consistent(mutex));
  OK(pthread_mutex_unlock(mutex));

  join(start(die_with, mutex));
  CHECK_EQ(pthread_mutex_trylock(mutex), EOWNERDEAD);
  OK(pthread_mutex_unlock(mutex)); /* without consistent */
  CHECK_EQ(pthread_mutex_lock(mutex), ENOTRECOVERABLE);
  CHECK_EQ(pthread_mutex_trylock(mutex), ENOTRECOVERABLE);
  OK(pthread_mutex_destroy(mutex));
}

static void waiters(pthread_mutex_t *mutex) {
  heirs = 0;
  pthread_barrier_init(&locked, 0, 2);
  pthread_t owner = start(die_late, mutex), others[4];
  pthread_barrier_wait(&locked);
  for (int i = 0; i < 4; i++) others[i] = start(heir, mutex);
  for (int i = 0; i < 4; i++) join(others[i]);
  join(owner);
  CHECK_EQ(heirs, 1); /* exactly one learns of it */
  OK(pthread_mutex_destroy(mutex));
}

int main(void) {
  pthread_mutex_t *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  static pthread_mutex_t m, many[MANY];
  CHECK(shared != MAP_FAILED);
  one(make(&m, PTHREAD_PROCESS_PRIVATE, PTHREAD_MUTEX_NORMAL));
  one(make(&m, PTHREAD_PROCESS_PRIVATE, PTHREAD_MUTEX_RECURSIVE));
  puts("ok owner ended, private");
  one(make(shared, PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ERRORCHECK));
  puts("ok owner ended, shared");
  for (int i = 0; i < 5; i++) {
    waiters(make(&m, PTHREAD_PROCESS_PRIVATE, PTHREAD_MUTEX_NORMAL));
    waiters(make(shared, PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_NORMAL));
  }
  puts("ok owner ended while others waited");
  for (int i = 0; i < MANY; i++) make(&many[i], PTHREAD_PROCESS_PRIVATE, PTHREAD_MUTEX_NORMAL);
  join(start(die_with_many, many));
  for (int i = 0; i < MANY; i++) CHECK_EQ(pthread_mutex_lock(&many[i]), i == MANY / 2 ? 0 : EOWNERDEAD);
  puts("ok many held");
  make(shared, PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_NORMAL);
  pid_t child = fork();
  if (child == 0) {
    OK(pthread_mutex_lock(shared));
    _exit(0);
  }
  int status;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK_EQ(pthread_mutex_lock(shared), EOWNERDEAD);
  OK(pthread_mutex_consistent(shared));
  OK(pthread_mutex_unlock(shared));
  puts("ok owner process died");
}
