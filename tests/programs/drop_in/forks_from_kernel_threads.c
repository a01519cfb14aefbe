/* Asserts that the child of a fork by a kernel thread is an ordinary process although its parent runs user threads: its new
   threads end for who joins them, wake each other, and get signals; a handler runs; its own children are the same. The argument, if
   there is one, is the least id that a thread of the child has. While others of the parent lock, map memory and fork.

   The kernel thread is made before all others and without a thread pointer of its own, as no library makes one: it uses
   main's, and main touches nothing there meanwhile. */
#include "../c/check.h"
#include <spawn.h>

enum { BUSY = 4, FORKS = 12, THREADS = 8, ROUNDS = 40 };

extern char **environ;
static pid_t least;
static volatile int stop, go, done;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, own = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int at, handled;

static void on_signal(int signal) {
  (void)signal;
  __atomic_fetch_add(&handled, 1, __ATOMIC_SEQ_CST);
}

/* What may be locked when another thread forks. */
static void *busy(void *argument) {
  size_t size = 4096 * (1 + (intptr_t)argument);
  for (int i = 0; !stop; i++) {
    OK(pthread_mutex_lock(&mutex));
    if (i % 8 == 0) sched_yield();
    OK(pthread_mutex_unlock(&mutex));
    char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    OK(munmap(p, size));
    if (argument == 0 && i % 64 == 0) {
      pid_t pid = fork();
      CHECK(pid >= 0);
      if (pid == 0) _exit(0);
      ends_well(pid);
    }
  }
  return argument;
}

/* Each in its turn. */
static void *turns(void *argument) {
  int id = (intptr_t)argument;
  CHECK(gettid() >= least);
  for (int i = 0; i < ROUNDS; i++) {
    OK(pthread_mutex_lock(&own));
    while (at % THREADS != id) OK(pthread_cond_wait(&turn, &own));
    at++;
    OK(pthread_cond_broadcast(&turn));
    OK(pthread_mutex_unlock(&own));
  }
  return argument;
}

static void *forks_again(void *argument) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    at = 0;
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(turns, (void *)i);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    _exit(0);
  }
  ends_well(pid);
  return argument;
}

static void child(void) {
  sigset_t set;
  OK(pthread_sigmask(SIG_BLOCK, 0, &set));
  CHECK(sigismember(&set, SIGUSR2) && !sigismember(&set, SIGUSR1));
  CHECK_EQ(gettid(), getpid());
  OK(raise(SIGUSR1));
  CHECK_EQ(handled, 1);
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(turns, (void *)i);
  for (int i = 0; i < THREADS; i++) CHECK_EQ((intptr_t)join(threads[i]), i);
  CHECK_EQ(at, THREADS * ROUNDS);
  OK(kill(getpid(), SIGUSR1));
  CHECK_EQ(handled, 2);
  CHECK_EQ(gettid(), getpid());
  join(start(forks_again, 0));
  pid_t pid;
  char *argv[] = {"true", 0};
  OK(posix_spawnp(&pid, "true", 0, 0, argv, environ));
  ends_well(pid);
  _exit(0);
}

static void forks(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  OK(sigprocmask(SIG_BLOCK, &set, 0));
  for (int i = 0; i < FORKS; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) child();
    ends_well(pid);
  }
  OK(sigprocmask(SIG_BLOCK, 0, &set));
  CHECK(sigismember(&set, SIGUSR2) && !sigismember(&set, SIGUSR1));
  CHECK_EQ(handled, 0);
}

/* Touches no thread pointer, where errno is. */
static void pause_a_moment(void) {
  struct timespec t = {0, 500000};
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_nanosleep), "D"(&t), "S"(0) : "rcx", "r11", "memory");
}

static int kernel_thread(void *argument) {
  (void)argument;
  while (!go) pause_a_moment();
  forks();
  done = 1;
  for (;;) pause_a_moment();
  return 0;
}

int main(int argc, char **argv) {
  static char stack[256 << 10] __attribute__((aligned(64)));
  if (argc > 1) least = atoi(argv[1]);
  signal(SIGUSR1, on_signal);
  int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  CHECK(clone(kernel_thread, stack + sizeof stack, flags, 0) > 0);
  pthread_t others[BUSY];
  for (intptr_t i = 0; i < BUSY; i++) others[i] = start(busy, (void *)i);
  go = 1;
  while (!done) pause_a_moment();
  stop = 1;
  for (int i = 0; i < BUSY; i++) join(others[i]);
  puts("ok");
}
