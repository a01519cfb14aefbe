/* Asserts what becomes of signals that are ignored. One that the thread (for the process: main) has blocked is kept, and
   sigwait finds it: sent by another process, by a timer, by a write to a broken pipe, by the process itself. One that nobody
   has blocked is dropped, and interrupts nothing. Ignoring drops what is pending. Children of one who ignores SIGCHLD leave
   nothing to wait for although it is blocked. New programs inherit what is ignored and nothing else, by whichever way they
   are started and by whichever thread; one that could not be started changes nothing. A bad pointer is EFAULT although SIGSEGV
   is ignored. Two rounds: before there is a second thread, and with others. */
#include "check.h"
#include <linux/futex.h>
#include <spawn.h>
#include <sys/time.h>

extern char **environ;
static char *self;
enum { QUEUED = 40, UNBLOCKED = 41, HANDLED = 42 }; /* real-time signals */
static volatile int stop;

/* The number of the signal, or -1 after a while. */
static int wait_for(int signal, siginfo_t *info, int ms) {
  sigset_t set = set_with(signal);
  struct timespec most = {ms / 1000, ms % 1000 * 1000000};
  return sigtimedwait(&set, info, &most);
}

static void from_a_child(void) {
  pid_t parent = getpid(), pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    OK(kill(parent, SIGUSR1));
    for (int i = 0; i < 3; i++) OK(sigqueue(parent, QUEUED, (union sigval){.sival_int = i}));
    OK(kill(parent, UNBLOCKED));
    _exit(0);
  }
  ends_well(pid);
  siginfo_t info;
  CHECK_EQ(wait_for(SIGUSR1, &info, 5000), SIGUSR1);
  CHECK_EQ(info.si_pid, pid);
  for (int i = 0; i < 3; i++) {
    CHECK_EQ(wait_for(QUEUED, &info, 5000), QUEUED);
    CHECK_EQ(info.si_value.sival_int, i);
  }
  CHECK(!is_pending(UNBLOCKED));
  FAILS(wait_for(SIGUSR1, &info, 20), EAGAIN);
}

/* While it waits. */
static void meanwhile(void) {
  pid_t parent = getpid(), pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    sleep_ms(20);
    OK(kill(parent, UNBLOCKED));
    OK(kill(parent, SIGUSR1));
    _exit(0);
  }
  siginfo_t info;
  CHECK_EQ(wait_for(SIGUSR1, &info, 20000), SIGUSR1);
  CHECK_EQ(info.si_pid, pid);
  ends_well(pid);
}

static void by_the_kernel(void) {
  struct itimerval soon = {.it_value = {0, 1000}};
  siginfo_t info;
  OK(setitimer(ITIMER_REAL, &soon, 0));
  CHECK_EQ(wait_for(SIGALRM, &info, 20000), SIGALRM);
  int ends[2];
  OK(pipe(ends));
  OK(close(ends[0]));
  FAILS(write(ends[1], "x", 1), EPIPE);
  CHECK_EQ(wait_for(SIGPIPE, &info, 5000), SIGPIPE);
  sigset_t set = set_with(SIGPIPE);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  FAILS(write(ends[1], "x", 1), EPIPE);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  CHECK(!is_pending(SIGPIPE));
  OK(close(ends[1]));
}

static void by_itself(void) {
  siginfo_t info;
  OK(raise(SIGUSR1));
  CHECK_EQ(wait_for(SIGUSR1, &info, 5000), SIGUSR1);
  OK(kill(getpid(), SIGUSR1));
  CHECK(is_pending(SIGUSR1));
  signal(SIGUSR1, SIG_IGN);
  CHECK(!is_pending(SIGUSR1));
  OK(raise(UNBLOCKED));
  CHECK(!is_pending(UNBLOCKED));
}

static void children(void) {
  sigset_t set = set_with(SIGCHLD), before;
  OK(pthread_sigmask(SIG_BLOCK, &set, &before));
  signal(SIGCHLD, SIG_IGN);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) _exit(0);
  FAILS(waitpid(pid, 0, 0), ECHILD);
  signal(SIGCHLD, SIG_DFL);
  OK(pthread_sigmask(SIG_SETMASK, &before, 0));
}

static char *inherits[] = {0, "inherits", 0};

static void *executes(void *argument) {
  if (argument) sleep_ms(1);
  FAILS(execv("/nowhere/at/all", inherits), ENOENT);
  execv(self, inherits);
  return argument;
}

static void new_programs(void) {
  pid_t pid;
  FAILS(execv("/nowhere/at/all", inherits), ENOENT);
  OK(posix_spawn(&pid, self, 0, 0, inherits, environ));
  ends_well(pid);
  if ((pid = vfork()) == 0) {
    execv(self, inherits);
    _exit(1);
  }
  ends_well(pid);
  if ((pid = fork()) == 0) executes(0);
  ends_well(pid);
  if ((pid = fork()) == 0) join(start(executes, "from a thread"));
  ends_well(pid);
}

static void bad_pointers(void) {
  signal(SIGSEGV, SIG_IGN);
  FAILS(syscall(SYS_futex, 4096, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, 0, 0, 0), EFAULT);
  FAILS(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 4096, 0, 8), EFAULT);
  pid_t pid = fork();
  int status;
  CHECK(pid >= 0);
  if (pid == 0) {
    close(2); /* who dies of it may say so */
    *(volatile int *)4096 = 1;
  }
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK(WIFSIGNALED(status));
  CHECK_EQ(WTERMSIG(status), SIGSEGV);
  signal(SIGSEGV, SIG_DFL);
}

static void on_signal(int signal) { (void)signal; }

static void all(void) {
  from_a_child();
  meanwhile();
  by_the_kernel();
  by_itself();
  children();
  new_programs();
  bad_pointers();
}

static void *computes(void *argument) {
  while (!stop)
    for (volatile int i = 0; i < 10000; i++) continue;
  return argument;
}

static void *sleeps(void *argument) {
  while (!stop) OK(usleep(1000)); /* no EINTR */
  return argument;
}

int main(int argc, char **argv) {
  struct sigaction action;
  if (argc > 0 && !strcmp(argv[argc - 1], "inherits")) {
    int ignored[] = {SIGUSR1, QUEUED, UNBLOCKED, SIGALRM, SIGPIPE};
    for (size_t i = 0; i < COUNT(ignored); i++) {
      OK(sigaction(ignored[i], 0, &action));
      CHECK(action.sa_handler == SIG_IGN);
    }
    int others[] = {SIGUSR2, SIGCHLD, SIGTERM, SIGHUP, SIGSEGV, HANDLED};
    for (size_t i = 0; i < COUNT(others); i++) {
      OK(sigaction(others[i], 0, &action));
      CHECK(action.sa_handler == SIG_DFL);
    }
    return 0;
  }
  self = inherits[0] = argv[0];
  int blocked[] = {SIGUSR1, QUEUED, SIGALRM, SIGPIPE};
  for (size_t i = 0; i < COUNT(blocked); i++) {
    sigset_t set = set_with(blocked[i]);
    OK(pthread_sigmask(SIG_BLOCK, &set, 0));
    signal(blocked[i], SIG_IGN);
  }
  signal(UNBLOCKED, SIG_IGN);
  signal(HANDLED, on_signal);
  all();
  puts("ok alone");
  pthread_t others[] = {start(computes, 0), start(sleeps, 0)};
  sigset_t set = set_with(UNBLOCKED), before;
  all();
  OK(pthread_sigmask(SIG_BLOCK, &set, &before)); /* once, somewhere */
  OK(pthread_sigmask(SIG_SETMASK, &before, 0));
  all();
  stop = 1;
  for (size_t i = 0; i < COUNT(others); i++) join(others[i]);
  puts("ok with others");
}
