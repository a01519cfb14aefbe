/* Asserts that signals arrive where no signal may be queued (RLIMIT_SIGPENDING is 0): those of standard numbers, sent to
   a thread that sleeps, waits for a mutex, a pipe or a signal, or makes calls, and to the process, by itself and by a
   child. */
#include "check.h"
#include <sys/resource.h>

enum { THREADS = 5, ROUNDS = 20 };

static pid_t tids[THREADS];
static int got[THREADS], whole, pipes[2];
static volatile int stop;
static __thread int number = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void on_signal(int signal) {
  (void)signal;
  if (number >= 0) __atomic_fetch_add(&got[number], 1, __ATOMIC_SEQ_CST);
}

static void on_whole(int signal) {
  (void)signal;
  __atomic_fetch_add(&whole, 1, __ATOMIC_SEQ_CST);
}

static void *target(void *argument) {
  number = (intptr_t)argument;
  __atomic_store_n(&tids[number], gettid(), __ATOMIC_SEQ_CST);
  while (!stop) {
    char c;
    if (number == 0) usleep(100000);
    if (number == 1 && read(pipes[0], &c, 1) == 0) break;
    if (number == 2) {
      OK(pthread_mutex_lock(&mutex));
      OK(pthread_mutex_unlock(&mutex));
    }
    if (number == 3) sched_yield();
    if (number == 4) pause();
  }
  return 0;
}

static void wait_for(int *count, int value) {
  while (__atomic_load_n(count, __ATOMIC_SEQ_CST) < value) sched_yield();
  CHECK_EQ(*count, value);
}

int main(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  OK(sigaction(SIGUSR1, &action, 0));
  action.sa_handler = on_whole;
  OK(sigaction(SIGUSR2, &action, 0));
  OK(pipe(pipes));
  OK(pthread_mutex_lock(&mutex));
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(target, (void *)i);
  for (int i = 0; i < THREADS; i++)
    while (!__atomic_load_n(&tids[i], __ATOMIC_SEQ_CST)) sched_yield();
  struct rlimit none = {0, 0};
  OK(setrlimit(RLIMIT_SIGPENDING, &none));
  for (int i = 0; i < ROUNDS; i++)
    for (int k = 0; k < THREADS; k++) {
      OK(pthread_kill(threads[k], SIGUSR1));
      wait_for(&got[k], i + 1);
    }
  puts("ok threads");
  for (int i = 0; i < ROUNDS; i++) {
    OK(kill(getpid(), SIGUSR2));
    wait_for(&whole, 2 * i + 1);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(kill(getppid(), SIGUSR2));
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    wait_for(&whole, 2 * i + 2);
  }
  puts("ok process");
  stop = 1;
  OK(pthread_mutex_unlock(&mutex));
  OK(close(pipes[1]));
  OK(pthread_kill(threads[4], SIGUSR1));
  for (int i = 0; i < THREADS; i++) join(threads[i]);
}
