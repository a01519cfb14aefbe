/* Asserts that robust mutexes in memory that processes share are handed on when a process with threads ends while its
   threads hold them: by exit, by a signal that it sends itself, by a fault, and when just the thread ends; with and
   without priority inheritance. And that priority-inheritance mutexes exclude threads of different processes. */
#include "check.h"
#include <sys/resource.h>

enum { HOLDERS = 3, ROUNDS = 200, THREADS = 3 };

struct shared {
  pthread_mutex_t held[HOLDERS];
  pthread_mutex_t counted;
  volatile int holding, inside;
  volatile long count;
};

static struct shared *shared;

static void make(pthread_mutex_t *mutex, int robust, int protocol) {
  pthread_mutexattr_t attr;
  OK(pthread_mutexattr_init(&attr));
  OK(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
  if (robust) OK(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
  OK(pthread_mutexattr_setprotocol(&attr, protocol));
  OK(pthread_mutex_init(mutex, &attr));
}

static void *holder(void *argument) {
  int i = (int)(intptr_t)argument;
  OK(pthread_mutex_lock(&shared->held[i]));
  __atomic_add_fetch(&shared->holding, 1, __ATOMIC_SEQ_CST);
  if (i == 0) {
    for (;;) pause();
  }
  for (volatile int spin = 0;; spin++) {
  }
  return 0;
}

static void *leaver(void *argument) {
  int i = (int)(intptr_t)argument;
  OK(pthread_mutex_lock(&shared->held[i]));
  __atomic_add_fetch(&shared->holding, 1, __ATOMIC_SEQ_CST);
  while (shared->holding != HOLDERS) sched_yield();
  return 0;
}

static void ends(const char *way, int protocol) {
  for (int i = 0; i < HOLDERS; i++) make(&shared->held[i], 1, protocol);
  shared->holding = 0;
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    int leaves = strcmp(way, "thread") == 0;
    pthread_t threads[HOLDERS];
    for (int i = 0; i < HOLDERS; i++) threads[i] = start(leaves ? leaver : holder, (void *)(intptr_t)i);
    while (shared->holding != HOLDERS) sleep_ms(1);
    if (leaves) {
      for (int i = 0; i < HOLDERS; i++) join(threads[i]);
    }
    if (strcmp(way, "abort") == 0) abort();
    if (strcmp(way, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(way, "raise") == 0) raise(SIGTERM);
    if (strcmp(way, "fault") == 0) {
      signal(SIGSEGV, SIG_DFL);
      *(volatile int *)(intptr_t)strlen(way) = 1;
    }
    _exit(0);
  }
  while (shared->holding != HOLDERS) sleep_ms(1);
  for (int i = 0; i < HOLDERS; i++) {
    CHECK_EQ(pthread_mutex_lock(&shared->held[i]), EOWNERDEAD); /* while the child still lives, perhaps */
    OK(pthread_mutex_consistent(&shared->held[i]));
    OK(pthread_mutex_unlock(&shared->held[i]));
    OK(pthread_mutex_lock(&shared->held[i]));
    OK(pthread_mutex_unlock(&shared->held[i]));
  }
  int status;
  CHECK_EQ(waitpid(child, &status, 0), child);
  int expected = strcmp(way, "abort") == 0   ? SIGABRT
                 : strcmp(way, "kill") == 0  ? SIGKILL
                 : strcmp(way, "raise") == 0 ? SIGTERM
                 : strcmp(way, "fault") == 0 ? SIGSEGV
                                             : 0;
  CHECK_EQ(status & 0x7f, expected);
  for (int i = 0; i < HOLDERS; i++) OK(pthread_mutex_destroy(&shared->held[i]));
  printf("ok %s, protocol %d\n", way, protocol);
}

static void *counter(void *argument) {
  for (int i = 0; i < ROUNDS; i++) {
    OK(pthread_mutex_lock(&shared->counted));
    CHECK_EQ(__atomic_fetch_add(&shared->inside, 1, __ATOMIC_SEQ_CST), 0);
    shared->count = shared->count + 1;
    if (i % 16 == 0) sched_yield();
    CHECK_EQ(__atomic_fetch_sub(&shared->inside, 1, __ATOMIC_SEQ_CST), 1);
    OK(pthread_mutex_unlock(&shared->counted));
  }
  return argument;
}

static void counts(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) threads[i] = start(counter, 0);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
}

int main(void) {
  shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  const char *ways[] = {"thread", "exit", "abort", "raise", "kill", "fault"};
  for (int with_threads = 0; with_threads < 2; with_threads++) {
    for (size_t i = 0; i < COUNT(ways); i++) {
      ends(ways[i], PTHREAD_PRIO_NONE);
      ends(ways[i], PTHREAD_PRIO_INHERIT);
    }
    make(&shared->counted, 0, PTHREAD_PRIO_INHERIT);
    shared->count = 0;
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
      children[i] = fork();
      CHECK(children[i] >= 0);
      if (children[i] == 0) {
        if (i == 0) counts();
        else counter(0); /* a process without threads */
        _exit(0);
      }
    }
    counts(); /* the second time round the parent has had threads */
    for (int i = 0; i < 2; i++) {
      int status;
      CHECK_EQ(waitpid(children[i], &status, 0), children[i]);
      CHECK_EQ(status, 0);
    }
    CHECK_EQ(shared->count, (2 * THREADS + 1) * ROUNDS);
    puts("ok counted");
  }
}
