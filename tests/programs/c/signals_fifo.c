/* Asserts that real-time signals of one number that another process sends come in the order in which they were sent, though
   several threads run meanwhile: kept until a thread unblocks them, while a thread waits for them, into a handler of the only
   thread that does not block them, while threads wait for children of vfork, and while one is in an execve that fails. Nor does one that was sent before the end of its
   sender come after the sender has been waited for. */
#include "check.h"
#include <spawn.h>
#include <sys/eventfd.h>

enum { EACH = 60, ROUNDS = 12, OTHERS = 5 };

extern char **environ;
static int number;
static volatile int stop, count, values[EACH];

static void on_signal(int signal, siginfo_t *info, void *context) {
  (void)context;
  CHECK_EQ(signal, number);
  if (count < EACH) values[count] = info->si_value.sival_int;
  count++;
}

/* A process that sends them, some at once and some with pauses. */
static pid_t sender(int pauses) {
  pid_t parent = getpid(), pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    for (int i = 0; i < EACH; i++) {
      while (sigqueue(parent, number, (union sigval){.sival_int = i})) {
        CHECK_EQ(errno, EAGAIN);
        sleep_ms(1);
      }
      for (volatile int wait = 0; pauses && wait < i * 300; wait++) continue;
    }
    _exit(0);
  }
  return pid;
}

static void ended(pid_t pid) {
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
}

static void in_order(void) {
  CHECK_EQ(count, EACH);
  for (int i = 0; i < EACH; i++) CHECK_EQ(values[i], i);
  count = 0;
}

static void waits_for_all(void) {
  sigset_t set = set_with(number);
  siginfo_t info;
  while (count < EACH) {
    struct timespec most = {20, 0};
    int found = sigtimedwait(&set, &info, &most);
    if (found < 0 && errno == EINTR) continue; /* the end of a child, for a thread that blocked it for a moment */
    CHECK_EQ(found, number);
    on_signal(number, &info, 0);
  }
  in_order();
}

static void kept(int pauses) {
  ended(sender(pauses));
  sigset_t set = set_with(number);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  in_order(); /* all of them: the sender has ended */
  ended(sender(pauses));
  waits_for_all();
}

static void waited_for(int pauses) {
  pid_t pid = sender(pauses);
  waits_for_all();
  ended(pid);
}

static void handled(int pauses) {
  sigset_t set = set_with(number);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  pid_t pid = sender(pauses);
  int64_t end = now_ms() + 20000;
  while (count < EACH && now_ms() < end)
    if (count % 2) usleep(100);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  in_order();
  ended(pid);
}

static void *rounds(void *argument) {
  for (int i = 0; i < ROUNDS; i++) {
    kept(i % 2);
    waited_for(i % 2);
    handled(i % 2);
  }
  return argument;
}

/* Others that compute, call, wait, start programs, and try to execute one that is not there. */
static void *meanwhile(void *argument) {
  int events = eventfd(0, 0);
  uint64_t n = 1;
  CHECK(events >= 0);
  for (long i = (long)argument; !stop; i++) {
    if ((long)argument == 4) {
      char *arguments[] = {"none", 0};
      FAILS(execv("/none", arguments), ENOENT);
      usleep(300);
      continue;
    }
    if ((long)argument == 3) {
      pid_t pid;
      char *arguments[] = {"true", 0};
      OK(posix_spawnp(&pid, "true", 0, 0, arguments, environ));
      ended(pid);
      usleep(2000);
      continue;
    }
    for (volatile int wait = 0; wait < 20000 * (i % 3); wait++) continue;
    CHECK_EQ(write(events, &n, sizeof n), sizeof n);
    CHECK_EQ(read(events, &n, sizeof n), sizeof n);
    n = 1;
    if (i % 3 == 1) usleep(50);
  }
  OK(close(events));
  return argument;
}

int main(void) {
  number = SIGRTMIN + 3;
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigset_t set = set_with(number);
  OK(sigaction(number, &action, 0));
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  pthread_t others[OTHERS];
  for (long i = 0; i < OTHERS; i++) others[i] = start(meanwhile, (void *)i);
  rounds(0);
  join(start(rounds, 0));
  stop = 1;
  for (int i = 0; i < OTHERS; i++) join(others[i]);
  puts("ok");
}
