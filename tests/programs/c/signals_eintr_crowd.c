/* Asserts that a thread that waits in the kernel hears of its one signal, with EINTR, however many signals for others arrive
   at its kernel thread at the same time: it waits for a file lock. (Twice the signal may have come just before the wait.) */
#include "check.h"
#include <fcntl.h>
#include <sys/file.h>

enum { ROUNDS = 300 };

static char path[] = "/tmp/heddle-crowd-XXXXXX";
static volatile int round_done, over;
static __thread volatile int hits;
static volatile int waits;

static void on_signal(int sig) {
  (void)sig;
  hits++;
}

static void block(int sig) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, sig);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
}

static void *waiter(void *argument) {
  block(SIGUSR2);
  int fd = open(path, O_RDWR);
  CHECK(fd >= 0);
  for (int i = 0; i < ROUNDS; i++) {
    int before = hits;
    waits = i + 1;
    /* The signal may come before the call: then only this thread knows, and waits no longer. */
    while (hits == before) {
      if (flock(fd, LOCK_EX) == 0) check_failed(__FILE__, __LINE__, "locked twice");
      CHECK_EQ(errno, EINTR);
      CHECK(hits > before); /* no EINTR without a handler */
    }
    round_done = i + 1;
  }
  OK(close(fd));
  return argument;
}

static void *sink(void *argument) {
  block(SIGUSR1);
  while (!over) sleep_ms(1);
  return argument;
}

static void *crowd(void *argument) {
  block(SIGUSR1);
  block(SIGUSR2);
  while (!over) {
    OK(kill(getpid(), SIGUSR2));
    sched_yield();
  }
  return argument;
}

int main(void) {
  struct sigaction action = {.sa_handler = on_signal};
  OK(sigaction(SIGUSR1, &action, 0));
  action.sa_flags = SA_RESTART;
  OK(sigaction(SIGUSR2, &action, 0));
  int fd = mkstemp(path);
  CHECK(fd >= 0);
  OK(flock(fd, LOCK_EX));
  pthread_t others[] = {start(sink, 0), start(crowd, 0)}, thread = start(waiter, 0);
  int missed = 0;
  block(SIGUSR2);
  for (int i = 0; i < ROUNDS; i++) {
    while (waits != i + 1) sleep_ms(1);
    sleep_ms(2); /* it waits by now, or nearly always */
    OK(pthread_kill(thread, SIGUSR1));
    for (int64_t from = now_ms(); round_done != i + 1; sleep_ms(1)) {
      if (now_ms() - from < 4000) continue;
      if (++missed > 2) check_failed(__FILE__, __LINE__, "round %d: the signal did not end the wait", i);
      OK(pthread_kill(thread, SIGUSR1));
      from = now_ms();
    }
  }
  join(thread);
  over = 1;
  for (unsigned i = 0; i < COUNT(others); i++) join(others[i]);
  OK(unlink(path));
  puts("ok crowd");
}
