/* Asserts what execve does to signals in a process with threads: those that the calling thread blocks and that are pending
   for it or for the process are pending in the new program, with their values and senders and in their order; so are those
   sent while it is under way; when execve fails all is as before; and threads that compute do not disturb it. */
#include "check.h"

enum { ROUNDS = 40, RT_COUNT = 3, SIGNALS = 100 };

static char self_path[PATH_MAX];
static sigset_t blocked;
static volatile int handled;

static void *computes(void *argument) {
  for (;;) __asm__ volatile("" ::: "memory");
  return argument;
}
static void *waits(void *argument) {
  for (;;) pause();
  return argument;
}
static void *nothing(void *argument) { return argument; }
static void count(int signal) {
  (void)signal;
  handled++;
}

/* Takes a signal that must be pending; tells its value. */
static int take(int signal, int code) {
  siginfo_t info;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  CHECK_EQ(sigtimedwait(&set, &info, &(struct timespec){0, 0}), signal);
  CHECK_EQ(info.si_code, code);
  if (code != SI_TIMER) CHECK_EQ(info.si_uid, getuid());
  return code == SI_QUEUE ? info.si_value.sival_int : info.si_pid;
}

static void none(void) {
  sigset_t pending;
  OK(sigpending(&pending));
  for (int i = 1; i < NSIG; i++) {
    if (sigismember(&pending, i) == 1) check_failed(__FILE__, __LINE__, "signal %d is pending", i);
  }
}

/* What `send_all` has made pending. */
static void take_all(void) {
  CHECK_EQ(take(SIGUSR1, SI_USER), getpid());
  CHECK_EQ(take(SIGUSR2, SI_USER), getpid());
  CHECK_EQ(take(SIGTERM, SI_USER), getppid());
  for (int i = 0; i < RT_COUNT; i++) CHECK_EQ(take(SIGRTMIN, SI_QUEUE), 100 + i);
  for (int i = 0; i < RT_COUNT; i++) CHECK_EQ(take(SIGRTMIN + 1, SI_QUEUE), 200 + i);
  none();
}

/* `parent` tells the parent to send its signal, and hears that it has. */
static void send_all(int parent) {
  char byte = 'x';
  OK(kill(getpid(), SIGUSR1));
  OK(pthread_kill(pthread_self(), SIGUSR2));
  for (int i = 0; i < RT_COUNT; i++) OK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 100 + i}));
  for (int i = 0; i < RT_COUNT; i++) {
    OK(pthread_sigqueue(pthread_self(), SIGRTMIN + 1, (union sigval){.sival_int = 200 + i}));
  }
  CHECK_EQ(write(parent, &byte, 1), 1);
  sigset_t pending;
  do OK(sigpending(&pending));
  while (!sigismember(&pending, SIGTERM));
}

static void *executes(void *argument) {
  int fd = (int)(intptr_t)argument;
  sigset_t pending;
  send_all(fd);
  FAILS(execl("/no/such/program", "none", (char *)0), ENOENT);
  OK(sigpending(&pending));
  CHECK(sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGUSR2) && sigismember(&pending, SIGRTMIN + 1));
  take_all();
  /* Whoever does not block a signal gets it after the failed call, too. */
  OK(kill(getpid(), SIGHUP));
  while (!handled) sched_yield();
  send_all(fd);
  execl(self_path, "exec_pending", "new", (char *)0);
  check_failed(__FILE__, __LINE__, "execl came back");
}

static int new_program(void) {
  sigset_t mask;
  OK(pthread_sigmask(SIG_BLOCK, 0, &mask));
  CHECK(sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGHUP));
  take_all();
  return 7;
}

static pid_t child(void (*body)(int), int *from_child) {
  int fds[2];
  OK(pipe(fds));
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    close(fds[0]);
    body(fds[1]);
    _exit(1);
  }
  OK(close(fds[1]));
  *from_child = fds[0];
  return pid;
}

static int wait_for(pid_t pid) {
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void in_thread(int fd) {
  signal(SIGHUP, count);
  for (int i = 0; i < 2; i++) start(waits, 0);
  start(executes, (void *)(intptr_t)fd);
  waits(0);
}
static void in_main(int fd) {
  signal(SIGHUP, count);
  for (int i = 0; i < 2; i++) start(waits, 0);
  executes((void *)(intptr_t)fd);
}

/* A long argument list keeps the kernel busy while the computing threads are to be preempted. */
static void *executes_slowly(void *argument) {
  static char text[100000], *args[18];
  memset(text, 'a', sizeof text - 1);
  for (unsigned i = 2; i < COUNT(args) - 1; i++) args[i] = text;
  args[0] = "exec_pending";
  args[1] = argument;
  execv(self_path, args);
  check_failed(__FILE__, __LINE__, "execv came back");
}
static void among_computers(int fd) {
  (void)fd;
  for (int i = 0; i < 4; i++) start(computes, 0);
  sleep_ms(5);
  start(executes_slowly, "nothing");
  waits(0);
}

/* Signals from outside while execve is under way: none is lost. */
static void among_signals(int fd) {
  for (int i = 0; i < 3; i++) start(waits, 0);
  CHECK_EQ(write(fd, "x", 1), 1);
  start(executes_slowly, "count");
  waits(0);
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "new")) return new_program();
  if (argc > 2 && !strcmp(argv[1], "nothing")) return 8;
  if (argc > 2 && !strcmp(argv[1], "count")) {
    char seen[SIGNALS] = "";
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    for (int i = 0; i < SIGNALS; i++) {
      siginfo_t info;
      CHECK_EQ(sigtimedwait(&set, &info, &(struct timespec){20, 0}), SIGRTMIN);
      CHECK_EQ(seen[info.si_value.sival_int]++, 0);
    }
    none();
    return 9;
  }
  CHECK(readlink("/proc/self/exe", self_path, sizeof self_path - 1) > 0);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigaddset(&blocked, SIGUSR2);
  sigaddset(&blocked, SIGTERM);
  sigaddset(&blocked, SIGRTMIN);
  sigaddset(&blocked, SIGRTMIN + 1);
  OK(pthread_sigmask(SIG_BLOCK, &blocked, 0));
  join(start(nothing, 0)); /* threads exist from here on */
  for (int i = 0; i < 5; i++) {
    int fd;
    char byte;
    pid_t pid = child(i % 2 ? in_main : in_thread, &fd);
    for (int k = 0; k < 2; k++) {
      CHECK_EQ(read(fd, &byte, 1), 1);
      OK(kill(pid, SIGTERM));
    }
    CHECK_EQ(wait_for(pid), 7);
    OK(close(fd));
  }
  puts("ok pending signals");
  for (int i = 0; i < ROUNDS; i++) {
    int fd;
    CHECK_EQ(wait_for(child(among_computers, &fd)), 8);
    OK(close(fd));
  }
  puts("ok among threads that compute");
  for (int i = 0; i < ROUNDS / 4; i++) {
    int fd;
    char byte;
    pid_t pid = child(among_signals, &fd);
    CHECK_EQ(read(fd, &byte, 1), 1);
    for (int k = 0; k < SIGNALS; k++) OK(sigqueue(pid, SIGRTMIN, (union sigval){.sival_int = k}));
    CHECK_EQ(wait_for(pid), 9);
    OK(close(fd));
  }
  puts("ok among signals");
}
