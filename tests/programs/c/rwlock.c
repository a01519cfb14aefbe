/* Asserts reader-writer locks: many readers or one writer, both preferences, try and timed variants, errors that depend
   on which thread holds the lock. */
#include "check.h"

enum { READERS = 12, WRITERS = 4, ROUNDS = 1500 };

static pthread_rwlock_t lock;
static int readers, writers;
static long a, b;
static pthread_barrier_t barrier;

static void *reader(void *argument) {
  (void)argument;
  for (int i = 0; i < ROUNDS; i++) {
    OK(pthread_rwlock_rdlock(&lock));
    __atomic_add_fetch(&readers, 1, __ATOMIC_SEQ_CST);
    CHECK_EQ(__atomic_load_n(&writers, __ATOMIC_SEQ_CST), 0);
    CHECK_EQ(a, -b);
    if (i % 128 == 0) sched_yield();
    CHECK_EQ(a, -b);
    __atomic_sub_fetch(&readers, 1, __ATOMIC_SEQ_CST);
    OK(pthread_rwlock_unlock(&lock));
  }
  return 0;
}

static void *writer(void *argument) {
  (void)argument;
  for (int i = 0; i < ROUNDS; i++) {
    if (i % 4 == 3)
      while (pthread_rwlock_trywrlock(&lock)) sched_yield();
    else
      OK(pthread_rwlock_wrlock(&lock));
    CHECK_EQ(__atomic_add_fetch(&writers, 1, __ATOMIC_SEQ_CST), 1);
    CHECK_EQ(__atomic_load_n(&readers, __ATOMIC_SEQ_CST), 0);
    a++;
    if (i % 128 == 0) sched_yield();
    b--;
    __atomic_sub_fetch(&writers, 1, __ATOMIC_SEQ_CST);
    OK(pthread_rwlock_unlock(&lock));
  }
  return 0;
}

static void *together(void *argument) {
  (void)argument;
  OK(pthread_rwlock_rdlock(&lock));
  pthread_barrier_wait(&barrier); /* all of them inside at once */
  OK(pthread_rwlock_unlock(&lock));
  return 0;
}

static void *outside_writer(void *argument) {
  (void)argument;
  CHECK_EQ(pthread_rwlock_tryrdlock(&lock), EBUSY);
  CHECK_EQ(pthread_rwlock_trywrlock(&lock), EBUSY);
  int64_t from = now_ms();
  struct timespec until = in_ms(CLOCK_REALTIME, 30);
  CHECK_EQ(pthread_rwlock_timedrdlock(&lock, &until), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 30);
  from = now_ms();
  until = in_ms(CLOCK_MONOTONIC, 30);
  CHECK_EQ(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &until), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 30);
  return 0;
}

static void *outside_reader(void *argument) {
  (void)argument;
  OK(pthread_rwlock_tryrdlock(&lock));
  OK(pthread_rwlock_unlock(&lock));
  CHECK_EQ(pthread_rwlock_trywrlock(&lock), EBUSY);
  int64_t from = now_ms();
  struct timespec until = in_ms(CLOCK_REALTIME, 30);
  CHECK_EQ(pthread_rwlock_timedwrlock(&lock, &until), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 30);
  return 0;
}

static void one_kind(int kind) {
  pthread_t threads[READERS + WRITERS];
  pthread_rwlockattr_t attr;
  OK(pthread_rwlockattr_init(&attr));
  OK(pthread_rwlockattr_setkind_np(&attr, kind));
  OK(pthread_rwlock_init(&lock, &attr));
  a = b = 0;
  for (int i = 0; i < READERS + WRITERS; i++) threads[i] = start(i % 4 == 3 ? writer : reader, 0);
  for (int i = 0; i < READERS + WRITERS; i++) join(threads[i]);
  CHECK_EQ(a, WRITERS * ROUNDS);
  for (int i = 0; i < READERS; i++) threads[i] = start(together, 0);
  for (int i = 0; i < READERS; i++) join(threads[i]);
  OK(pthread_rwlock_wrlock(&lock));
  CHECK_EQ(pthread_rwlock_wrlock(&lock), EDEADLK);
  CHECK_EQ(pthread_rwlock_rdlock(&lock), EDEADLK);
  join(start(outside_writer, 0));
  OK(pthread_rwlock_unlock(&lock));
  OK(pthread_rwlock_rdlock(&lock));
  OK(pthread_rwlock_rdlock(&lock));
  join(start(outside_reader, 0));
  OK(pthread_rwlock_unlock(&lock));
  OK(pthread_rwlock_unlock(&lock));
  OK(pthread_rwlock_destroy(&lock));
}

int main(void) {
  OK(pthread_barrier_init(&barrier, 0, READERS));
  one_kind(PTHREAD_RWLOCK_PREFER_READER_NP);
  puts("ok readers preferred");
  one_kind(PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  puts("ok writers preferred");
}
