/* Asserts semaphores, unnamed and named: counting, waiting, trywait, time-outs on both clocks, overflow, and a pool of 3
   that 16 threads never exceed. */
#include "check.h"
#include <semaphore.h>

enum { THREADS = 16, ROUNDS = 2000, POOL = 3 };

static sem_t pool, ping, pong;
static int inside, most;

static void *user(void *argument) {
  (void)argument;
  for (int i = 0; i < ROUNDS; i++) {
    OK(sem_wait(&pool));
    int now = __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    CHECK(now >= 1 && now <= POOL);
    int seen = __atomic_load_n(&most, __ATOMIC_RELAXED);
    while (now > seen && !__atomic_compare_exchange_n(&most, &seen, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    if (i % 64 == 0) sched_yield();
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    OK(sem_post(&pool));
  }
  return 0;
}

static void *ponger(void *argument) {
  (void)argument;
  for (int i = 0; i < ROUNDS; i++) {
    OK(sem_wait(&ping));
    OK(sem_post(&pong));
  }
  return 0;
}

static void limits(sem_t *s) {
  int value;
  FAILS(sem_trywait(s), EAGAIN);
  OK(sem_post(s));
  OK(sem_post(s));
  OK(sem_getvalue(s, &value));
  CHECK_EQ(value, 2);
  OK(sem_trywait(s));
  struct timespec until = in_ms(CLOCK_REALTIME, -5000);
  OK(sem_timedwait(s, &until)); /* there is one: the time does not matter */
  FAILS(sem_timedwait(s, &until), ETIMEDOUT);
  int64_t from = now_ms();
  until = in_ms(CLOCK_REALTIME, 40);
  FAILS(sem_timedwait(s, &until), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 40);
  from = now_ms();
  until = in_ms(CLOCK_MONOTONIC, 40);
  FAILS(sem_clockwait(s, CLOCK_MONOTONIC, &until), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 40);
  until.tv_nsec = -1;
  FAILS(sem_timedwait(s, &until), EINVAL);
}

static void *limits_thread(void *s) {
  limits(s);
  return 0;
}

static void *late_post(void *s) {
  sleep_ms(20);
  OK(sem_post(s));
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  OK(sem_init(&pool, 0, POOL));
  OK(sem_init(&ping, 0, 0));
  OK(sem_init(&pong, 0, 0));
  for (int i = 0; i < THREADS; i++) threads[i] = start(user, 0);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  CHECK(most >= 1 && most <= POOL);
  puts("ok pool");

  threads[0] = start(ponger, 0);
  for (int i = 0; i < ROUNDS; i++) {
    OK(sem_post(&ping));
    OK(sem_wait(&pong));
  }
  join(threads[0]);
  puts("ok ping-pong with main");

  limits(&ping);
  join(start(limits_thread, &ping));
  sem_t *mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  OK(sem_init(mapped, 1, 0));
  limits(mapped);
  join(start(limits_thread, mapped));
  OK(sem_init(mapped, 1, SEM_VALUE_MAX));
  FAILS(sem_post(mapped), EOVERFLOW);
  puts("ok limits and time-outs");

  char name[64];
  snprintf(name, sizeof name, "/heddle-test-%d", getpid());
  sem_t *named = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
  CHECK(named != SEM_FAILED);
  CHECK(sem_open(name, O_CREAT | O_EXCL, 0600, 0) == SEM_FAILED && errno == EEXIST);
  CHECK(sem_open(name, 0) == named); /* one mapping per process */
  OK(sem_close(named));
  limits(named);
  threads[0] = start(late_post, named);
  OK(sem_wait(named)); /* a shared futex within one process */
  join(threads[0]);
  threads[0] = start(late_post, named);
  struct timespec until = in_ms(CLOCK_REALTIME, 20000);
  OK(sem_timedwait(named, &until));
  join(threads[0]);
  OK(sem_unlink(name));
  OK(sem_close(named));
  puts("ok named");
}
