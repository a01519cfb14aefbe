/* Asserts that threads can trace: each makes a child that has itself traced, waits for its stops, with and without having
   asked for them, and lets it go on, or attaches to one, and sleeps in between, so that it moves about. */
#include "check.h"
#include <sys/ptrace.h>
#include <sys/user.h>

enum { THREADS = 4, STOPS = 12 };

static volatile int word = 17;

static void child(int number) {
  OK(ptrace(PTRACE_TRACEME, 0, 0, 0));
  word = 1000 + number;
  for (int i = 0; i < STOPS; i++) raise(SIGSTOP);
  _exit(word - 1000);
}

static void stopped(pid_t pid, int stop) {
  int status;
  siginfo_t info = {0};
  if (stop % 3 == 2) {
    OK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
    CHECK_EQ(info.si_code, CLD_TRAPPED);
  }
  CHECK_EQ(waitpid(pid, &status, stop % 2 ? __WALL : 0), pid);
  CHECK(WIFSTOPPED(status));
}

static void *tracer(void *argument) {
  int number = (intptr_t)argument;
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) child(number);
  for (int i = 0; i < STOPS; i++) {
    stopped(pid, i);
    usleep(500);
    struct user_regs_struct registers;
    OK(ptrace(PTRACE_GETREGS, pid, 0, &registers));
    CHECK(registers.rsp != 0);
    errno = 0;
    CHECK_EQ((int)ptrace(PTRACE_PEEKDATA, pid, &word, 0), 1000 + number);
    CHECK_EQ(errno, 0);
    sched_yield();
    OK(ptrace(PTRACE_CONT, pid, 0, 0));
  }
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), number);
  FAILS(ptrace(PTRACE_CONT, pid, 0, 0), ESRCH);

  pid = fork();
  CHECK(pid >= 0);
  if (pid == 0)
    for (;;) pause();
  OK(ptrace(PTRACE_SEIZE, pid, 0, 0));
  usleep(2000);
  OK(ptrace(PTRACE_INTERRUPT, pid, 0, 0));
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK(WIFSTOPPED(status));
  usleep(500);
  OK(ptrace(PTRACE_POKEDATA, pid, &word, 5));
  OK(ptrace(PTRACE_DETACH, pid, 0, 0));
  OK(kill(pid, SIGKILL));
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK(WIFSIGNALED(status));
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(tracer, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok tracers");
}
