/* Asserts the order of signals that are pending together, by the thread itself, to the process and from another process:
   sigwait takes the lowest number first, handlers that block the others run in that order, and of one number those that came first
   are first. With one thread and with others. */
#include "check.h"

enum { FIRST = 40, NUMBERS = 5, EACH = 3 };

static volatile int order[NUMBERS * EACH], values[NUMBERS * EACH], count;

static void on_signal(int signal, siginfo_t *info, void *context) {
  (void)context;
  order[count] = signal;
  values[count++] = info->si_value.sival_int;
}

static void sends(int how, pid_t to) {
  for (int i = 0; i < EACH; i++)
    for (int s = FIRST + NUMBERS - 1; s >= FIRST; s--) {
      union sigval value = {.sival_int = i};
      if (how == 0) OK(pthread_sigqueue(pthread_self(), s, value));
      else OK(sigqueue(to, s, value));
    }
}

static void pending_together(int how, int handlers) {
  sigset_t set;
  siginfo_t info;
  sigemptyset(&set);
  for (int i = 0; i < NUMBERS; i++) sigaddset(&set, FIRST + i);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  count = 0;
  if (how == 2) {
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      sends(how, parent);
      _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
  } else {
    sends(how, getpid());
  }
  if (handlers) {
    OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  } else {
    while (count < NUMBERS * EACH) {
      CHECK(sigwaitinfo(&set, &info) > 0);
      on_signal(info.si_signo, &info, 0);
    }
  }
  CHECK_EQ(count, NUMBERS * EACH);
  for (int i = 0; i < count; i++) {
    CHECK_EQ(order[i], FIRST + i / EACH);
    CHECK_EQ(values[i], i % EACH);
  }
}

static void *all(void *argument) {
  for (int how = 0; how < 3; how++)
    for (int handlers = 0; handlers < 2; handlers++) pending_together(how, handlers);
  return argument;
}

static void *waits(void *argument) {
  char c;
  CHECK_EQ(read(*(int *)argument, &c, 1), 0);
  return argument;
}

int main(void) {
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
  for (int i = 0; i < NUMBERS; i++) sigaddset(&action.sa_mask, FIRST + i);
  for (int i = 0; i < NUMBERS; i++) OK(sigaction(FIRST + i, &action, 0));
  all(0);
  int ends[2];
  OK(pipe(ends));
  OK(pthread_sigmask(SIG_BLOCK, &action.sa_mask, 0));
  pthread_t others[] = {start(waits, &ends[0]), start(waits, &ends[0])};
  all(0);
  OK(pthread_sigmask(SIG_BLOCK, &action.sa_mask, 0));
  join(start(all, 0));
  OK(close(ends[1]));
  for (size_t i = 0; i < COUNT(others); i++) join(others[i]);
  puts("ok");
}
