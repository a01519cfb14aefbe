/* Asserts that the child of a vfork may wait for what other threads of its creator do: they run, though the thread that made
   it stands still, and none of their calls waits for that one, as signalfd, execve (whether it fails or not), prctl and the
   end of the process with robust mutexes held might. What they change is so for all when it goes on. Queued signals that such
   a child sends come in order, while several threads are in vfork. */
#include "check.h"
#include <sys/prctl.h>
#include <sys/signalfd.h>

static int born[2], go[2];

static void make_pipes(void) {
  OK(pipe2(born, O_CLOEXEC));
  OK(pipe2(go, O_CLOEXEC));
}

/* Makes a child that says so and waits for a byte, or for the end of `go`. */
static void *has_child(void *argument) {
  char c;
  pid_t pid = vfork();
  CHECK(pid >= 0);
  if (pid == 0) {
    close(go[1]);
    if (write(born[1], "b", 1) != 1 || read(go[0], &c, 1) < 0) _exit(1);
    _exit(0);
  }
  ends_well(pid);
  return argument;
}

static pthread_t begin(void) {
  char c;
  pthread_t thread = start(has_child, 0);
  CHECK_EQ(read(born[0], &c, 1), 1);
  return thread;
}

static void end(pthread_t thread) {
  CHECK_EQ(write(go[1], "g", 1), 1);
  join(thread);
}

static int turn;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void *takes_turns(void *argument) {
  OK(pthread_mutex_lock(&mutex));
  for (int i = 0; i < 100; i++) {
    while (turn % 2 != (long)argument) OK(pthread_cond_wait(&changed, &mutex));
    turn++;
    OK(pthread_cond_broadcast(&changed));
  }
  OK(pthread_mutex_unlock(&mutex));
  return 0;
}

static void others_run(void) {
  pthread_t child = begin();
  pthread_t a = start(takes_turns, (void *)0), b = start(takes_turns, (void *)1);
  join(a);
  join(b);
  end(child);
  puts("ok others run");
}

static void signal_descriptor(void) {
  sigset_t set = set_with(SIGUSR2);
  struct signalfd_siginfo info;
  pthread_t child = begin();
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  int fd = signalfd(-1, &set, 0);
  CHECK(fd >= 0);
  end(child);
  for (int i = 0; i < 3; i++) { /* also if the worker of then takes them */
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(kill(getppid(), SIGUSR2));
    ends_well(pid);
    CHECK_EQ(read(fd, &info, sizeof info), sizeof info);
    CHECK_EQ(info.ssi_signo, SIGUSR2);
    CHECK_EQ(info.ssi_pid, pid);
  }
  OK(close(fd));
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  puts("ok signalfd");
}

static void *asks_capabilities(void *argument) {
  (void)argument;
  return (void *)(long)prctl(PR_GET_KEEPCAPS);
}

static void made_by_all(void) {
  for (int keep = 1; keep >= 0; keep--) {
    pthread_t children[3];
    for (int i = 0; i < 3; i++) children[i] = begin();
    for (int i = 0; i < 7; i++) OK(prctl(PR_SET_KEEPCAPS, i % 2 ? !keep : keep));
    CHECK_EQ(prctl(PR_GET_KEEPCAPS), keep);
    CHECK_EQ(write(go[1], "ggg", 3), 3);
    for (int i = 0; i < 3; i++) join(children[i]);
    for (int i = 0; i < 20; i++) CHECK_EQ((long)join(start(asks_capabilities, 0)), keep);
  }
  puts("ok prctl");
}

static void failing_exec(void) {
  char *none[] = {"none", 0};
  sigset_t set = set_with(SIGUSR1);
  pthread_t child = begin();
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  FAILS(execv("/does/not/exist", none), ENOENT);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  end(child);
  puts("ok failing execve");
}

/* Its child's pipe ends by it. */
static void exec(void) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    char *arguments[] = {"true", 0};
    sigset_t set = set_with(SIGUSR1);
    make_pipes();
    begin();
    OK(pthread_sigmask(SIG_BLOCK, &set, 0));
    execv("/bin/true", arguments);
    _exit(1);
  }
  ends_well(pid);
  puts("ok execve");
}

static pthread_mutex_t *robust;

static void exit_with_robust_mutex(void) {
  pthread_mutexattr_t attributes;
  robust = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(robust != MAP_FAILED);
  OK(pthread_mutexattr_init(&attributes));
  OK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
  OK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
  OK(pthread_mutex_init(robust, &attributes));
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    make_pipes();
    begin();
    OK(pthread_mutex_lock(robust));
    _exit(0);
  }
  ends_well(pid);
  CHECK_EQ(pthread_mutex_lock(robust), EOWNERDEAD);
  puts("ok exit");
}

enum { SENDERS = 3, EACH = 50 };
static volatile int next_value[SENDERS];

static void on_queued(int signal, siginfo_t *info, void *context) {
  (void)context;
  int sender = signal - SIGRTMIN;
  CHECK_EQ(info->si_value.sival_int, next_value[sender]);
  next_value[sender]++;
  if (info->si_value.sival_int == EACH - 1) CHECK_EQ(write(go[1], "g", 1), 1);
}

static void *sends(void *argument) {
  int sender = (int)(long)argument;
  char c;
  pid_t pid = vfork();
  CHECK(pid >= 0);
  if (pid == 0) {
    close(go[1]);
    for (int i = 0; i < EACH; i++)
      if (sigqueue(getppid(), SIGRTMIN + sender, (union sigval){.sival_int = i})) _exit(1);
    if (read(go[0], &c, 1) != 1) _exit(2); /* all of some sender's have come */
    _exit(0);
  }
  ends_well(pid);
  return 0;
}

static void queued_signals(void) {
  pthread_t threads[SENDERS];
  struct sigaction action = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < SENDERS; i++) sigaddset(&action.sa_mask, SIGRTMIN + i);
  for (int i = 0; i < SENDERS; i++) OK(sigaction(SIGRTMIN + i, &action, 0));
  for (int round = 0; round < 30; round++) {
    for (int i = 0; i < SENDERS; i++) next_value[i] = 0;
    OK(pthread_sigmask(SIG_BLOCK, &action.sa_mask, 0));
    for (long i = 0; i < SENDERS; i++) threads[i] = start(sends, (void *)i);
    OK(pthread_sigmask(SIG_UNBLOCK, &action.sa_mask, 0)); /* they come to main */
    for (int i = 0; i < SENDERS; i++) join(threads[i]);
    for (int i = 0; i < SENDERS; i++) CHECK_EQ(next_value[i], EACH);
  }
  puts("ok queued signals");
}

int main(void) {
  make_pipes();
  others_run();
  signal_descriptor();
  made_by_all();
  failing_exec();
  exec();
  exit_with_robust_mutex();
  queued_signals();
}
