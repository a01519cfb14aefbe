/* Asserts in which order threads that wait on the same word are woken: those with real-time priority first, the highest
   before the others, and of one priority who came first; on a semaphore, a futex, one that they were moved to, and a mutex
   with priority inheritance. Where real-time priorities are not allowed, the order in which they came. */
#include "check.h"
#include <linux/futex.h>
#include <semaphore.h>

enum { THREADS = 7 };
enum kind { SEMAPHORE, FUTEX, MOVED, MUTEX };

static const int priorities[THREADS] = {0, 1, 5, 3, 5, 0, 99};
static int order[THREADS];
static int allowed;

static sem_t semaphore;
static uint32_t word, other;
static pthread_mutex_t mutex;

static int log_[THREADS], logged;
static pid_t tids[THREADS];
static enum kind kind;

static long futex(uint32_t *at, int op, uint32_t value, long more, uint32_t *to) {
  return syscall(SYS_futex, at, op | FUTEX_PRIVATE_FLAG, value, more, to, 0);
}

static void *waits(void *argument) {
  int number = (intptr_t)argument;
  __atomic_store_n(&tids[number], gettid(), __ATOMIC_SEQ_CST);
  if (kind == SEMAPHORE) OK(sem_wait(&semaphore));
  if (kind == FUTEX || kind == MOVED) OK(futex(&word, FUTEX_WAIT, 0, 0, 0));
  if (kind == MUTEX) OK(pthread_mutex_lock(&mutex));
  log_[__atomic_fetch_add(&logged, 1, __ATOMIC_SEQ_CST)] = number;
  if (kind == MUTEX) OK(pthread_mutex_unlock(&mutex));
  return 0;
}

/* The thread has said who it is, and sleeps: where it is to wait. */
static void wait_until_asleep(int number) {
  pid_t tid;
  while (!(tid = __atomic_load_n(&tids[number], __ATOMIC_SEQ_CST))) sched_yield();
  for (;;) {
    char path[64], text[2048];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    CHECK(n > 0);
    text[n] = 0;
    OK(close(fd));
    if (strstr(text, "State:\tS")) return;
    sched_yield();
  }
}

static pthread_t start_with(int priority, void *argument) {
  if (!allowed || !priority) return start(waits, argument);
  pthread_attr_t attributes;
  struct sched_param param = {priority};
  pthread_t thread;
  OK(pthread_attr_init(&attributes));
  OK(pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED));
  OK(pthread_attr_setschedpolicy(&attributes, priority % 2 ? SCHED_FIFO : SCHED_RR));
  OK(pthread_attr_setschedparam(&attributes, &param));
  OK(pthread_create(&thread, &attributes, waits, argument));
  OK(pthread_attr_destroy(&attributes));
  return thread;
}

static void wake_one(void) {
  if (kind == SEMAPHORE) OK(sem_post(&semaphore));
  if (kind == FUTEX) CHECK_EQ(futex(&word, FUTEX_WAKE, 1, 0, 0), 1);
  if (kind == MOVED) CHECK_EQ(futex(&other, FUTEX_WAKE, 1, 0, 0), 1);
}

static void wakes_in_order(enum kind of) {
  pthread_t threads[THREADS];
  kind = of;
  logged = 0;
  memset(tids, 0, sizeof tids);
  if (kind == MUTEX) OK(pthread_mutex_lock(&mutex));
  for (int i = 0; i < THREADS; i++) {
    threads[i] = start_with(priorities[i], (void *)(intptr_t)i);
    wait_until_asleep(i);
  }
  if (kind == MOVED) CHECK_EQ(futex(&word, FUTEX_REQUEUE, 0, THREADS, &other), THREADS);
  if (kind == MUTEX) OK(pthread_mutex_unlock(&mutex)); /* each gives it to the next */
  for (int i = 0; i < THREADS; i++) {
    wake_one();
    while (__atomic_load_n(&logged, __ATOMIC_SEQ_CST) <= i) sched_yield();
  }
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  for (int i = 0; i < THREADS; i++) CHECK_EQ(log_[i], order[i]);
}

static void *has_priority(void *argument) {
  struct sched_param param = {1};
  *(int *)argument = pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) == 0;
  return 0;
}

int main(void) {
  join(start(has_priority, &allowed));
  int n = 0;
  for (int p = allowed ? 99 : 0; p >= 0; p--)
    for (int i = 0; i < THREADS; i++)
      if (!allowed || priorities[i] == p) order[n++] = i;
  CHECK_EQ(n, THREADS);
  OK(sem_init(&semaphore, 0, 0));
  pthread_mutexattr_t attributes;
  OK(pthread_mutexattr_init(&attributes));
  OK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
  OK(pthread_mutex_init(&mutex, &attributes));
  wakes_in_order(SEMAPHORE);
  wakes_in_order(FUTEX);
  wakes_in_order(MOVED);
  wakes_in_order(MUTEX);
  puts("ok order");
}
