/* Asserts that calls go on when a signal comes for which no handler runs: ignored ones that a mask for the call lets through,
   a stop that is continued, one that another thread takes. A call that no handler's end restarts (System V semaphores and
   messages) ends with EINTR as often as a handler ran in its thread, and no more. */
#include "check.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>

enum { WAIT = 60, ROUNDS = 40 };

static int64_t ns_since(int64_t begin) { return now_ns(CLOCK_MONOTONIC) - begin; }

static sigset_t of(int signal) {
  sigset_t set;
  sigemptyset(&set);
  if (signal) sigaddset(&set, signal);
  return set;
}

static void *lets_through(void *argument) {
  int signals[] = {SIGWINCH, SIGURG, SIGUSR2, SIGCONT}; /* SIGUSR2: ignored by the program */
  sigset_t none = of(0), set;
  struct timespec t = {0, WAIT * 1000000L};
  for (size_t i = 0; i < COUNT(signals); i++) {
    set = of(signals[i]);
    OK(pthread_sigmask(SIG_BLOCK, &set, 0));
    OK(pthread_kill(pthread_self(), signals[i]));
    OK(sigpending(&set));
    CHECK(sigismember(&set, signals[i]));
    int64_t begin = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(ppoll(0, 0, &t, &none), 0);
    CHECK(ns_since(begin) >= WAIT * 1000000LL);
    OK(pthread_kill(pthread_self(), signals[i]));
    begin = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(pselect(0, 0, 0, 0, &t, &none), 0);
    CHECK(ns_since(begin) >= WAIT * 1000000LL);
    OK(kill(getpid(), signals[i]));
    set = of(signals[i]);
    OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
    OK(nanosleep(&t, 0));
  }
  return argument;
}

static int pipes[2], told[2];
static volatile int ready;
enum { KINDS = 6 };

static void *waits(void *argument) {
  static uint32_t word;
  struct timespec t = {0, 300000000}, end = in_ms(CLOCK_MONOTONIC, 300);
  struct pollfd fd = {pipes[0], POLLIN, 0};
  char c;
  __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
  switch ((intptr_t)argument) {
  case 0: CHECK_EQ(poll(0, 0, 300), 0); break;
  case 1: CHECK_EQ(select(0, 0, 0, 0, &(struct timeval){0, 300000}), 0); break;
  case 2: OK(nanosleep(&t, 0)); break;
  case 3: OK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, 0)); break;
  case 4: FAILS(syscall(SYS_futex, &word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &t, 0, 0), ETIMEDOUT); break;
  default:
    CHECK_EQ(poll(&fd, 1, -1), 1);
    CHECK_EQ(read(pipes[0], &c, 1), 1);
  }
  return argument;
}

static void stopped(int signal) {
  OK(pipe(pipes));
  OK(pipe(told));
  pid_t pid = fork();
  CHECK(pid >= 0);
  /* In a group whose parent is in the same session and another group: SIGTSTP does not stop orphans. */
  if (pid == 0) {
    setpgid(0, 0);
    sigset_t set = of(signal);
    if (signal != SIGSTOP) {
      OK(pthread_sigmask(SIG_BLOCK, &set, 0));
      OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
    }
    pthread_t threads[KINDS];
    for (intptr_t i = 0; i < KINDS; i++) threads[i] = start(waits, (void *)i);
    while (ready < KINDS) sleep_ms(1);
    CHECK_EQ(write(told[1], "r", 1), 1);
    for (int i = 0; i < KINDS; i++) join(threads[i]);
    _exit(0);
  }
  char c;
  int status;
  CHECK_EQ(read(told[0], &c, 1), 1);
  sleep_ms(20);
  for (int i = 0; i < 3; i++) {
    OK(kill(pid, signal));
    CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
    CHECK(WIFSTOPPED(status));
    CHECK_EQ(WSTOPSIG(status), signal);
    sleep_ms(5);
    OK(kill(pid, SIGCONT));
  }
  CHECK_EQ(write(pipes[1], "x", 1), 1);
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
  OK(close(pipes[0]));
  OK(close(pipes[1]));
  OK(close(told[0]));
  OK(close(told[1]));
}

static __thread volatile int ran_here;
static int ran, semaphore, queue;

static void on_signal(int signal) {
  (void)signal;
  ran_here++;
  __atomic_fetch_add(&ran, 1, __ATOMIC_SEQ_CST);
}

static void *is_never_restarted(void *argument) {
  struct sembuf down = {0, -1, 0};
  struct {
    long type;
    char text[8];
  } message;
  int ended = 0;
  __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
  for (;;) {
    ran_here = 0;
    long r = argument ? msgrcv(queue, &message, sizeof message.text, 0, 0) : semop(semaphore, &down, 1);
    if (r >= 0) break;
    CHECK_EQ(errno, EINTR);
    CHECK(ran_here > 0);
    ended++;
  }
  return (void *)(intptr_t)ended;
}

static void *takes_all(void *argument) {
  __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
  while (ran < ROUNDS) sleep_ms(1);
  return argument;
}

/* One after the other, to the process. */
static void taken_by_others(void) {
  struct {
    long type;
    char text[8];
  } message = {1, "end"};
  OK((semaphore = semget(IPC_PRIVATE, 1, 0600)) < 0);
  OK((queue = msgget(IPC_PRIVATE, 0600)) < 0);
  signal(SIGUSR1, on_signal);
  ready = 0;
  pthread_t threads[] = {start(is_never_restarted, 0), start(is_never_restarted, "queue"), start(takes_all, 0)};
  while (ready < 3) sleep_ms(1);
  pid_t parent = getpid(), pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    for (int i = 0; i < ROUNDS; i++) {
      OK(kill(parent, SIGUSR1));
      sleep_ms(2);
    }
    _exit(0);
  }
  int status;
  while (waitpid(pid, &status, 0) < 0) CHECK_EQ(errno, EINTR);
  CHECK_EQ(status, 0);
  ran = ROUNDS; /* standard signals may have been merged */
  OK(semop(semaphore, &(struct sembuf){0, 1, 0}, 1));
  OK(msgsnd(queue, &message, sizeof message.text, 0));
  for (size_t i = 0; i < COUNT(threads); i++) join(threads[i]);
  OK(semctl(semaphore, 0, IPC_RMID));
  OK(msgctl(queue, IPC_RMID, 0));
}

int main(void) {
  signal(SIGUSR2, SIG_IGN);
  lets_through(0);
  join(start(lets_through, 0));
  puts("ok let through");
  stopped(SIGSTOP);
  stopped(SIGTSTP);
  puts("ok stopped");
  taken_by_others();
  puts("ok taken by others");
}
