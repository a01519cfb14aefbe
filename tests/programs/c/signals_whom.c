/* Asserts that a signal for the process goes to the thread that the kernel asks first: the main one, whose wait it ends,
   while others compute or wait, whoever sends it; another if main blocks it; the one that made a child, when that ends; and to
   who uses the time when time is used up. */
#include "check.h"
#include <spawn.h>
#include <sys/time.h>

extern char **environ;
static volatile int stop;
static __thread volatile int mine; /* signals that this thread handled */
static pthread_barrier_t barrier;

static void on_signal(int sig) {
  (void)sig;
  mine++;
}

/* Signals that come while it computes, in *argument. */
static void *compute(void *argument) {
  while (!stop) __asm__ volatile("" ::: "memory");
  *(int *)argument = mine;
  return 0;
}

static void *wait_for_signals(void *argument) {
  while (!stop) usleep(20000);
  return argument;
}

static void *send_signals(void *argument) {
  while (!stop) {
    usleep(10000);
    OK(kill(getpid(), (int)(long)argument));
  }
  return 0;
}

/* main's wait ends although two compute and one waits; another thread sends, or a timer. */
static void main_first(int sig, int by_timer) {
  pthread_t threads[4];
  int counts[2], sends = sig != SIGALRM;
  stop = 0;
  for (int i = 0; i < 2; i++) OK(pthread_create(&threads[i], 0, compute, &counts[i]));
  OK(pthread_create(&threads[2], 0, wait_for_signals, 0));
  if (sends) OK(pthread_create(&threads[3], 0, send_signals, (void *)(long)sig));
  struct itimerval every = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
  if (by_timer) OK(setitimer(ITIMER_REAL, &every, 0));
  int before = mine;
  for (int i = 0; i < 5; i++) CHECK(pause() == -1 && errno == EINTR);
  CHECK(mine >= before + 5);
  if (by_timer) OK(setitimer(ITIMER_REAL, &never, 0));
  stop = 1;
  for (int i = 0; i < 3 + sends; i++) OK(pthread_join(threads[i], 0));
}

/* A child that ends soon: its maker handles the signal, nobody else. */
static void *make_child(void *argument) {
  char *args[] = {"sh", "-c", "sleep 0.1", 0};
  int status;
  pid_t child;
  pthread_barrier_wait(&barrier);
  if (argument) {
    OK(posix_spawn(&child, "/bin/sh", 0, 0, args, environ));
  } else {
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      usleep(100000);
      _exit(0);
    }
  }
  while (!mine) usleep(20000); /* it may have come before the sleep */
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  pthread_barrier_wait(&barrier); /* it would take others' signals no more */
  return 0;
}

int main(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NOCLDSTOP};
  int signals[] = {SIGALRM, SIGUSR1, SIGRTMIN + 1, SIGCHLD, SIGVTALRM};
  for (int i = 0; i < 5; i++) OK(sigaction(signals[i], &action, 0));
  main_first(SIGALRM, 1);
  main_first(SIGUSR1, 0);
  main_first(SIGRTMIN + 1, 0);
  printf("the main thread first\n");

  /* One each, so that no maker's signal is merged with another's. */
  for (int i = 0; i < 4; i++) {
    pthread_t maker, other[2];
    int counts[2], before = mine;
    stop = 0;
    OK(pthread_barrier_init(&barrier, 0, 2));
    for (int k = 0; k < 2; k++) OK(pthread_create(&other[k], 0, compute, &counts[k]));
    OK(pthread_create(&maker, 0, make_child, (void *)(long)(i % 2)));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    stop = 1;
    OK(pthread_join(maker, 0));
    for (int k = 0; k < 2; k++) {
      OK(pthread_join(other[k], 0));
      CHECK_EQ(counts[k], 0);
    }
    CHECK_EQ(mine, before);
  }
  printf("the one that made the child\n");

  pthread_t thread;
  int count, before = mine;
  struct itimerval every = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
  stop = 0;
  OK(setitimer(ITIMER_VIRTUAL, &every, 0));
  OK(pthread_create(&thread, 0, compute, &count));
  for (int i = 0; i < 20; i++) usleep(10000);
  sleep(1);
  stop = 1;
  OK(pthread_join(thread, 0));
  OK(setitimer(ITIMER_VIRTUAL, &never, 0));
  CHECK(count > mine - before);
  printf("the one that uses the time\n");
  return 0;
}
