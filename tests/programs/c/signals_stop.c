/* Asserts that SIGCONT drops pending signals that would stop the process, of it and of each thread, and that each of those
   drops a pending SIGCONT: whether the process sends them itself or another one does, and whether they are blocked, ignored
   or have a handler. A process that unblocks what was dropped is not stopped. */
#include "check.h"

static const int stops[] = {SIGTSTP, SIGTTIN, SIGTTOU};
static int ready[2], let_go[2];

enum How { KILL, QUEUE, RAISE, OTHER, HOWS };

static void sends(enum How how, int signal) {
  switch (how) {
    case KILL: OK(kill(getpid(), signal)); break;
    case QUEUE: OK(sigqueue(getpid(), signal, (union sigval){.sival_int = 1})); break;
    case RAISE: OK(raise(signal)); break;
    default: {
      pid_t pid = fork();
      CHECK(pid >= 0);
      if (pid == 0) _exit(kill(getppid(), signal) != 0);
      ends_well(pid);
    }
  }
}

static void masks(int how, int with_stops, int with_cont) {
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; with_stops && i < COUNT(stops); i++) sigaddset(&set, stops[i]);
  if (with_cont) sigaddset(&set, SIGCONT);
  OK(pthread_sigmask(how, &set, 0));
}

/* A signal from outside may come a moment after who sent it has ended. */
static void comes_to(int signal, int pending) {
  for (int i = 0; is_pending(signal) != pending; i++) {
    CHECK(i < 5000);
    sleep_ms(1);
  }
}

static void stops_come_to(int pending) {
  for (size_t i = 0; i < COUNT(stops); i++) comes_to(stops[i], pending);
}

static volatile int stopped, continued;
static void on_stop(int signal) { stopped += signal == SIGTSTP; }
static void on_cont(int signal) { continued += signal == SIGCONT; }

/* Both kinds are blocked. */
static void both_ways(void) {
  masks(SIG_BLOCK, 1, 1);
  for (int how = 0; how < HOWS; how++)
    for (int back = 0; back < HOWS; back++) {
      /* What is sent next is not pending yet: else a second one from outside could come after what is to drop it. */
      sends(KILL, stops[0]);
      comes_to(SIGCONT, 0);
      for (size_t i = 0; i < COUNT(stops); i++) {
        sends(how, SIGCONT);
        comes_to(SIGCONT, 1);
        sends(back, stops[i]);
        comes_to(stops[i], 1);
        CHECK(!is_pending(SIGCONT));
      }
      sends(KILL, SIGCONT);
      stops_come_to(0);
      for (size_t i = 0; i < COUNT(stops); i++) sends(how, stops[i]);
      stops_come_to(1);
      sends(back, SIGCONT);
      comes_to(SIGCONT, 1);
      for (size_t i = 0; i < COUNT(stops); i++) CHECK(!is_pending(stops[i]));
    }
  masks(SIG_UNBLOCK, 1, 0);
  masks(SIG_UNBLOCK, 0, 1);
}

static void *has_own_pending(void *argument) {
  char c;
  masks(SIG_BLOCK, 1, 1);
  for (size_t i = 0; i < COUNT(stops); i++) OK(pthread_kill(pthread_self(), stops[i]));
  for (size_t i = 0; i < COUNT(stops); i++) CHECK(is_pending(stops[i]));
  CHECK_EQ(write(ready[1], "r", 1), 1);
  CHECK_EQ(read(let_go[0], &c, 1), 1);
  stops_come_to(0);
  masks(SIG_UNBLOCK, 1, 0);
  return argument;
}

/* Those of threads, by a signal that none blocks, with and without a handler. */
static void of_threads(void) {
  for (int how = 0; how < HOWS; how++) {
    pthread_t threads[3];
    char c;
    for (int i = 0; i < 3; i++) {
      threads[i] = start(has_own_pending, 0);
      CHECK_EQ(read(ready[0], &c, 1), 1);
    }
    sends(how, SIGCONT);
    CHECK_EQ(write(let_go[1], "ggg", 3), 3);
    for (int i = 0; i < 3; i++) join(threads[i]);
  }
}

/* What is not blocked drops all the same. */
static void by_open_ones(void) {
  for (int how = 0; how < HOWS; how++) {
    masks(SIG_BLOCK, 1, 0);
    for (size_t i = 0; i < COUNT(stops); i++) sends(how, stops[i]);
    stops_come_to(1);
    sends(how, SIGCONT);
    stops_come_to(0);
    masks(SIG_UNBLOCK, 1, 0); /* nothing stops us */
    masks(SIG_BLOCK, 0, 1);
    sends(how, SIGCONT);
    comes_to(SIGCONT, 1);
    sends(how, SIGTSTP); /* ignored, or has a handler */
    comes_to(SIGCONT, 0);
    masks(SIG_UNBLOCK, 0, 1);
  }
}

static void *nothing(void *argument) { return argument; }

int main(void) {
  OK(pipe(ready));
  OK(pipe(let_go));
  join(start(nothing, 0));
  both_ways();
  puts("ok both ways");
  of_threads();
  puts("ok of threads");
  signal(SIGTSTP, SIG_IGN);
  by_open_ones();
  puts("ok ignored");
  signal(SIGTSTP, on_stop);
  by_open_ones();
  puts("ok a handler");
  for (int i = 0; stopped < HOWS; i++) {
    CHECK(i < 5000);
    sleep_ms(1);
  }
  CHECK_EQ(stopped, HOWS);
  signal(SIGCONT, on_cont);
  both_ways();
  of_threads();
  CHECK(continued >= HOWS);
  by_open_ones();
  puts("ok two handlers");
}
