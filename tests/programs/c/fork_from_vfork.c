/* Asserts that a process which a child on its creator's memory forks is an ordinary one, whether that child has been made by
   vfork or runs beside its creator: it makes threads, which wait for each other, and forks again; handlers, masks, the
   alternate stack and descriptors are those that it has inherited, also where that child has changed them; its creator's
   creator goes on as before. By threads of a process with several, and by one that makes its first thread afterwards. */
#include "check.h"
#include <sys/socket.h>
#include <sys/syscall.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turns;
static volatile int handled, elsewhere;
static char alternate[65536];
static int streams[2];

static void on_signal(int signal) {
  (void)signal;
  char here;
  handled++;
  elsewhere = &here >= alternate && &here < alternate + sizeof alternate;
}

static void *takes_turns(void *argument) {
  OK(pthread_mutex_lock(&mutex));
  for (int i = 0; i < 200; i++) {
    while (turns % 4 != (long)argument) OK(pthread_cond_wait(&changed, &mutex));
    turns++;
    OK(pthread_cond_broadcast(&changed));
  }
  OK(pthread_mutex_unlock(&mutex));
  return argument;
}

static void takes_turns_all(void) {
  pthread_t threads[4];
  turns = 0;
  for (long i = 0; i < 4; i++) threads[i] = start(takes_turns, (void *)i);
  for (int i = 0; i < 4; i++) CHECK_EQ((long)join(threads[i]), i);
  CHECK_EQ(turns, 800);
}

static void child_ends_well(pid_t pid) {
  int status;
  pid_t found;
  do found = waitpid(pid, &status, __WALL);
  while (found < 0 && errno == EINTR);
  CHECK_EQ(found, pid);
  CHECK_EQ(status, 0);
}

/* A new process's own: it has one thread, and all that a process has. */
static void is_ordinary(void) {
  struct sigaction action;
  stack_t stack;
  sigset_t set;
  char c;
  CHECK_EQ(gettid(), getpid());
  OK(sigaction(SIGUSR1, 0, &action));
  CHECK(action.sa_handler == on_signal);
  OK(sigaction(SIGUSR2, 0, &action)); /* its creator changed it */
  CHECK(action.sa_handler == SIG_DFL);
  OK(sigaction(SIGHUP, 0, &action));
  CHECK(action.sa_handler == SIG_IGN);
  OK(sigprocmask(SIG_BLOCK, 0, &set));
  CHECK(sigismember(&set, SIGALRM));
  CHECK(!sigismember(&set, SIGUSR1));
  handled = 0;
  OK(raise(SIGUSR1));
  CHECK_EQ(handled, 1);
  OK(sigaltstack(0, &stack));
  CHECK_EQ(elsewhere, !(stack.ss_flags & SS_DISABLE));
  for (int i = 0; i < 2; i++) {
    takes_turns_all();
    OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(handled, 2 + i);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      takes_turns_all();
      _exit(0);
    }
    child_ends_well(pid);
    /* A pipe where its creator's creator has a socket. */
    CHECK_EQ(write(streams[1], "ab", 2), 2);
    CHECK_EQ(read(streams[0], &c, 1), 1);
    CHECK_EQ(c, 'a');
    CHECK_EQ(read(streams[0], &c, 1), 1);
    FAILS(recv(streams[0], &c, 1, MSG_DONTWAIT), ENOTSOCK);
  }
}

static void changes_and_forks(int how) {
  int ends[2], status;
  signal(SIGUSR2, SIG_DFL);
  if (close_range(streams[1] + 1, ~0U, 0)) _exit(90); /* which it has for itself */
  if (pipe(ends)) _exit(91);
  if (dup2(ends[0], streams[0]) < 0 || dup2(ends[1], streams[1]) < 0) _exit(92);
  if (close(ends[0]) || close(ends[1])) _exit(93);
  pid_t pid = how == 0 ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (pid < 0) _exit(94);
  if (pid == 0) {
    if (how) CHECK_EQ(syscall(SYS_set_tid_address, 0), getpid()); /* else libc does not know who it is */
    else is_ordinary();
    _exit(0);
  }
  if (waitpid(pid, &status, 0) != pid || status) _exit(95);
}

static char stack[1 << 20] __attribute__((aligned(64)));

static int beside(void *argument) {
  changes_and_forks((long)argument);
  _exit(0);
}

static void all(void) {
  for (volatile long how = 0; how < 2; how++) {
    pid_t pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
      changes_and_forks(how);
      _exit(0);
    }
    child_ends_well(pid);
    stack_t before, none = {.ss_flags = SS_DISABLE};
    OK(sigaltstack(&none, &before)); /* which it does not inherit */
    pid = clone(beside, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)how);
    CHECK(pid > 0);
    child_ends_well(pid);
    if (!(before.ss_flags & SS_DISABLE)) OK(sigaltstack(&before, 0));
  }
  char c;
  CHECK_EQ(send(streams[1], "c", 1, 0), 1);
  CHECK_EQ(recv(streams[0], &c, 1, 0), 1);
  CHECK_EQ(c, 'c');
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    takes_turns_all();
    _exit(0);
  }
  child_ends_well(pid);
}

static void *all_in_thread(void *argument) {
  all();
  return argument;
}

static void *waits(void *argument) {
  OK(pthread_mutex_lock(argument));
  return argument;
}

int main(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
  stack_t own = {.ss_sp = alternate, .ss_size = sizeof alternate};
  sigset_t set;
  OK(sigaction(SIGUSR1, &action, 0));
  OK(sigaction(SIGUSR2, &action, 0));
  signal(SIGHUP, SIG_IGN);
  OK(sigaltstack(&own, 0));
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, streams));
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  sigaddset(&set, SIGHUP);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  all();
  puts("ok alone");
  static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
  OK(pthread_mutex_lock(&held));
  pthread_t other = start(waits, &held);
  all();
  join(start(all_in_thread, 0));
  takes_turns_all();
  OK(pthread_mutex_unlock(&held));
  join(other);
  puts("ok with others");
}
