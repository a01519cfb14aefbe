/* Asserts that synchronisation on shared memory reaches other processes: semaphores, mutexes, condition variables and
   plain futexes between a process's threads and its forked children, over an anonymous mapping and a file. */
#include "check.h"
#include <linux/futex.h>
#include <semaphore.h>

enum { CHILDREN = 4, THREADS = 4, ROUNDS = 500 };

struct shared {
  sem_t ping, pong;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  long counter, turn;
  uint32_t word;
};

static struct shared *s;

static void init(void) {
  pthread_mutexattr_t ma;
  pthread_condattr_t ca;
  OK(pthread_mutexattr_init(&ma));
  OK(pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED));
  OK(pthread_condattr_init(&ca));
  OK(pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED));
  OK(pthread_mutex_init(&s->mutex, &ma));
  OK(pthread_cond_init(&s->cond, &ca));
  OK(sem_init(&s->ping, 1, 0));
  OK(sem_init(&s->pong, 1, 0));
}

static void *adder(void *argument) {
  for (int i = 0; i < ROUNDS; i++) {
    OK(pthread_mutex_lock(&s->mutex));
    long seen = s->counter;
    if (i % 50 == 0) sched_yield();
    s->counter = seen + 1;
    OK(pthread_mutex_unlock(&s->mutex));
  }
  return argument;
}

static void add_in_threads(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) threads[i] = start(adder, 0);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
}

/* Takes every turn that is `me` modulo `of`. */
static void take_turns(long me, long of) {
  OK(pthread_mutex_lock(&s->mutex));
  for (int i = 0; i < 200; i++) {
    while (s->turn % of != me) OK(pthread_cond_wait(&s->cond, &s->mutex));
    s->turn++;
    OK(pthread_cond_broadcast(&s->cond));
  }
  OK(pthread_mutex_unlock(&s->mutex));
}

static void *turns(void *argument) {
  take_turns((long)argument, CHILDREN + THREADS);
  return 0;
}

static void *ping_pong(void *argument) {
  for (int i = 0; i < ROUNDS; i++) {
    OK(sem_post(&s->ping));
    OK(sem_wait(&s->pong));
  }
  return argument;
}

static void *wait_word(void *argument) {
  while (__atomic_load_n(&s->word, __ATOMIC_SEQ_CST) == 0) syscall(SYS_futex, &s->word, FUTEX_WAIT, 0, 0, 0, 0);
  return argument;
}

static void reap(int count) {
  int status;
  while (count--) {
    CHECK(wait(&status) > 0);
    CHECK_EQ(status, 0);
  }
}

static void everything(const char *name) {
  pthread_t threads[THREADS];
  init();
  for (int c = 0; c < CHILDREN; c++)
    if (fork() == 0) {
      if (c % 2) adder(0);
      else add_in_threads();
      _exit(0);
    }
  add_in_threads();
  reap(CHILDREN);
  CHECK_EQ(s->counter, (THREADS + CHILDREN / 2 + CHILDREN / 2 * THREADS) * ROUNDS);

  for (int c = 0; c < CHILDREN; c++)
    if (fork() == 0) {
      take_turns(c, CHILDREN + THREADS);
      _exit(0);
    }
  for (long i = 0; i < THREADS; i++) threads[i] = start(turns, (void *)(CHILDREN + i));
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  reap(CHILDREN);
  CHECK_EQ(s->turn, 200 * (CHILDREN + THREADS));

  if (fork() == 0) {
    for (int i = 0; i < ROUNDS; i++) {
      OK(sem_wait(&s->ping));
      OK(sem_post(&s->pong));
    }
    _exit(0);
  }
  join(start(ping_pong, 0));
  reap(1);

  for (int i = 0; i < THREADS; i++) threads[i] = start(wait_word, 0);
  if (fork() == 0) { /* the child wakes the parent's threads */
    sleep_ms(30);
    __atomic_store_n(&s->word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &s->word, FUTEX_WAKE, INT_MAX, 0, 0, 0);
    _exit(0);
  }
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  reap(1);
  printf("ok %s\n", name);
  fflush(stdout);
}

int main(void) {
  s = mmap(0, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(s != MAP_FAILED);
  everything("anonymous shared memory");
  int fd = open("shared-file", O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0);
  OK(ftruncate(fd, sizeof *s));
  s = mmap(0, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(s != MAP_FAILED);
  OK(close(fd));
  everything("shared file");
  OK(unlink("shared-file"));
}
