/* Asserts that a process sends signals to single threads of another by their ids, with tgkill, tkill and rt_tgsigqueueinfo: the thread's handler runs, once for each, before
   the sender's word about it arrives, with the sender's ids; blocked ones are pending for that thread alone; what is not
   a thread of that process is none (ESRCH); a signal that cannot be is refused. kill by a thread's id is for its process. From a child with one thread, from
   one with several, from several at once, and between processes that send to each other. */
#include "check.h"
#include <sys/socket.h>

enum { THREADS = 4, ROUNDS = 50 };

static pid_t tids[THREADS], main_tid, sender;
static int got[THREADS], pipes[2];
static volatile int stop;
static pthread_barrier_t barrier;

static __thread int number;

static void on_signal(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  CHECK_EQ(gettid(), tids[number]);
  CHECK_EQ(info->si_code, SI_TKILL);
  CHECK_EQ(info->si_pid, sender);
  CHECK_EQ(info->si_uid, getuid());
  __atomic_fetch_add(&got[number], 1, __ATOMIC_SEQ_CST);
}

static long tgkill_(pid_t process, pid_t tid, int signal) { return syscall(SYS_tgkill, process, tid, signal); }

/* One sleeps, one computes, one waits for a pipe, one yields. */
static void *target(void *argument) {
  number = (intptr_t)argument;
  tids[number] = gettid();
  pthread_barrier_wait(&barrier);
  while (!stop) {
    char c;
    if (number == 0) usleep(100000);
    if (number == 1)
      for (volatile int i = 0; i < 1000; i++) continue;
    if (number == 2 && read(pipes[0], &c, 1) == 0) break;
    if (number == 3) sched_yield();
  }
  return 0;
}

static void *idle(void *argument) {
  int *end = argument;
  char c;
  CHECK_EQ(read(*end, &c, 1), 0);
  return 0;
}

static void sends(pid_t to, int rounds) {
  for (int i = 0; i < rounds; i++)
    for (int k = 0; k < THREADS; k++) OK(tgkill_(to, tids[k], i % 2 ? SIGUSR1 : SIGRTMIN + 1));
}

static void *sends_too(void *argument) {
  sends(*(pid_t *)argument, ROUNDS);
  return 0;
}

static int wait_for(pid_t pid) {
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

/* A standard signal that is pending already counts once: so each waits for its effect. */
static void one_by_one(pid_t to, int word) {
  for (int i = 0; i < ROUNDS; i++)
    for (int k = 0; k < THREADS; k++) {
      char c;
      OK(tgkill_(to, tids[k], SIGUSR1));
      CHECK_EQ(write(word, &(char){k}, 1), 1);
      CHECK_EQ(read(word, &c, 1), 1);
    }
}

/* A process whose sender is a child that it makes. */
static void from_child(int threads) {
  int pair[2], ends[2];
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  OK(pipe(ends));
  memset(got, 0, sizeof got);
  pid_t parent = getpid(), pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    char c;
    OK(close(pair[0]));
    CHECK_EQ(read(pair[1], &c, 1), 1);
    pthread_t t = 0;
    if (threads) t = start(idle, &ends[0]);
    one_by_one(parent, pair[1]);
    for (int k = 0; k < THREADS; k++) {
      OK(tgkill_(parent, tids[k], 0));
      FAILS(tgkill_(parent, tids[k], 65), EINVAL);
      FAILS(tgkill_(getpid(), tids[k], SIGUSR2), ESRCH);
    }
    OK(tgkill_(parent, main_tid, 0));
    FAILS(tgkill_(parent, gettid(), SIGUSR2), ESRCH);
    FAILS(tgkill_(parent, gettid(), 0), ESRCH);
    FAILS(tgkill_(0, tids[0], SIGUSR2), EINVAL);
    FAILS(tgkill_(1, tids[0], SIGUSR2), ESRCH);
    OK(close(ends[1]));
    if (threads) join(t);
    _exit(0);
  }
  OK(close(pair[1]));
  OK(close(ends[0]));
  OK(close(ends[1]));
  sender = pid;
  CHECK_EQ(write(pair[0], "g", 1), 1);
  int sum = 0;
  char k;
  while (read(pair[0], &k, 1) == 1) {
    /* It is pending by now, if it is not handled yet. */
    while (__atomic_load_n(&got[(int)k], __ATOMIC_SEQ_CST) <= sum / THREADS) sched_yield();
    sum++;
    CHECK_EQ(write(pair[0], "", 1), 1);
  }
  CHECK_EQ(wait_for(pid), 0);
  for (int i = 0; i < THREADS; i++) CHECK_EQ(got[i], ROUNDS);
  OK(close(pair[0]));
}

/* Real-time signals queue: each one arrives. */
static void from_many(void) {
  enum { SENDERS = 3 };
  int go[2];
  char c;
  memset(got, 0, sizeof got);
  OK(pipe(go));
  pid_t parent = getpid(), pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    pthread_t threads[SENDERS];
    CHECK_EQ(read(go[0], &c, 1), 1);
    for (int i = 0; i < SENDERS; i++) threads[i] = start(sends_too, &parent);
    for (int i = 0; i < SENDERS; i++) join(threads[i]);
    _exit(0);
  }
  sender = pid;
  CHECK_EQ(write(go[1], "g", 1), 1);
  CHECK_EQ(wait_for(pid), 0);
  OK(close(go[0]));
  OK(close(go[1]));
  for (int i = 0; i < THREADS; i++) {
    while (__atomic_load_n(&got[i], __ATOMIC_SEQ_CST) < SENDERS * ROUNDS / 2) sched_yield();
    CHECK(got[i] <= SENDERS * ROUNDS);
  }
}

static long queue(pid_t process, pid_t tid, int signal, int code, int value) {
  siginfo_t info = {.si_signo = signal, .si_code = code};
  info.si_pid = getpid() + 1; /* nobody checks */
  info.si_uid = 12345;
  info.si_value.sival_int = value;
  return syscall(SYS_rt_tgsigqueueinfo, process, tid, signal, &info);
}

static volatile int sum;

static void on_value(int signal, siginfo_t *info, void *context) {
  (void)context;
  CHECK_EQ(signal, SIGRTMIN + 3);
  CHECK_EQ(info->si_signo, signal);
  CHECK_EQ(gettid(), tids[number]);
  if (info->si_code == SI_TKILL) {
    CHECK_EQ(info->si_pid, sender);
  } else {
    CHECK_EQ(info->si_code, SI_QUEUE);
    CHECK_EQ(info->si_pid, sender + 1);
    CHECK_EQ(info->si_uid, 12345);
    CHECK_EQ(info->si_value.sival_int / 1000, number);
    __atomic_fetch_add(&sum, info->si_value.sival_int % 1000, __ATOMIC_SEQ_CST);
  }
  __atomic_fetch_add(&got[number], 1, __ATOMIC_SEQ_CST);
}

/* With a siginfo_t of the sender's own, and without naming the process. */
static void by_other_calls(int threads) {
  int ends[2];
  char c;
  memset(got, 0, sizeof got);
  sum = 0;
  OK(pipe(ends));
  pid_t parent = getpid(), pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    CHECK_EQ(read(ends[0], &c, 1), 1);
    pthread_t t = 0;
    if (threads) t = start(idle, &ends[0]);
    for (int k = 0; k < THREADS; k++) {
      for (int i = 0; i < ROUNDS; i++) OK(queue(parent, tids[k], SIGRTMIN + 3, SI_QUEUE, 1000 * k + i));
      OK(queue(parent, tids[k], 0, SI_QUEUE, 0));
      FAILS(queue(parent, tids[k], SIGRTMIN + 3, SI_USER, 0), EPERM);
      FAILS(queue(parent, tids[k], SIGRTMIN + 3, SI_TKILL, 0), EPERM);
      FAILS(queue(parent, tids[k], 65, SI_QUEUE, 0), EINVAL);
      FAILS(queue(getpid(), tids[k], SIGRTMIN + 3, SI_QUEUE, 0), ESRCH);
      FAILS(syscall(SYS_rt_tgsigqueueinfo, parent, tids[k], SIGRTMIN + 3, 8), EFAULT);
      OK(syscall(SYS_tkill, tids[k], SIGRTMIN + 3));
      OK(syscall(SYS_tkill, tids[k], 0));
      FAILS(syscall(SYS_tkill, tids[k], 65), EINVAL);
      OK(kill(tids[k], 0));
    }
    FAILS(queue(parent, gettid(), SIGRTMIN + 3, SI_QUEUE, 0), ESRCH);
    OK(kill(tids[1], SIGRTMIN + 4));
    OK(close(ends[1]));
    if (threads) join(t);
    _exit(0);
  }
  sender = pid;
  CHECK_EQ(write(ends[1], "g", 1), 1);
  OK(close(ends[0]));
  OK(close(ends[1]));
  CHECK_EQ(wait_for(pid), 0);
  for (int i = 0; i < THREADS; i++)
    while (__atomic_load_n(&got[i], __ATOMIC_SEQ_CST) <= ROUNDS) sched_yield();
  for (int i = 0; i < THREADS; i++) CHECK_EQ(got[i], ROUNDS + 1);
  CHECK_EQ(sum, THREADS * ROUNDS * (ROUNDS - 1) / 2);
  sigset_t set;
  siginfo_t info;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 4); /* blocked by all */
  CHECK_EQ(sigwaitinfo(&set, &info), SIGRTMIN + 4);
  CHECK_EQ(info.si_code, SI_USER);
  CHECK_EQ(info.si_pid, pid);
  /* To others of the same process the rules are the same. */
  FAILS(queue(parent, tids[0], 0, SI_USER, 0), EPERM);
  FAILS(queue(parent, tids[0], 0, SI_TKILL, 0), EPERM);
  OK(queue(parent, tids[0], 0, SI_QUEUE, 0));
  OK(queue(parent, gettid(), 0, SI_USER, 0));
  siginfo_t mine = {.si_signo = SIGRTMIN + 4, .si_code = SI_USER};
  OK(syscall(SYS_rt_sigqueueinfo, parent, SIGRTMIN + 4, &mine));
  CHECK_EQ(sigwaitinfo(&set, &info), SIGRTMIN + 4);
  CHECK_EQ(info.si_code, SI_USER);
}

static void *not_main(void *argument) {
  siginfo_t info = {.si_signo = SIGRTMIN + 4, .si_code = SI_USER};
  FAILS(syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN + 4, &info), EPERM);
  return argument;
}

/* For that thread alone, although it blocks it and others do not. */
static void *blocks(void *argument) {
  sigset_t set;
  siginfo_t info;
  (void)argument;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  pid_t me = gettid(), parent = getpid(), pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    OK(tgkill_(parent, me, SIGUSR2));
    _exit(0);
  }
  CHECK_EQ(wait_for(pid), 0);
  OK(sigpending(&set));
  CHECK(sigismember(&set, SIGUSR2));
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  CHECK_EQ(sigwaitinfo(&set, &info), SIGUSR2);
  CHECK_EQ(info.si_pid, pid);
  CHECK_EQ(info.si_code, SI_USER); /* libc says so for SI_TKILL */
  CHECK_EQ(info.si_uid, getuid());
  return 0;
}

static void *ends(void *argument) {
  *(pid_t *)argument = gettid();
  return 0;
}

/* Not a thread any more. */
static void ended(void) {
  pid_t tid, parent = getpid();
  join(start(ends, &tid));
  gone(tid);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    FAILS(tgkill_(parent, tid, 0), ESRCH);
    FAILS(tgkill_(parent, tid, SIGUSR2), ESRCH);
    FAILS(queue(parent, tid, SIGUSR2, SI_QUEUE, 0), ESRCH);
    /* These two do not say whose thread it is: any process on the machine that does not answer may have it. */
    errno = 0;
    CHECK(syscall(SYS_tkill, tid, SIGUSR2) == -1 && (errno == ESRCH || errno == EAGAIN));
    errno = 0;
    CHECK(kill(tid, SIGUSR2) == -1 && (errno == ESRCH || errno == EAGAIN));
    _exit(0);
  }
  CHECK_EQ(wait_for(pid), 0);
}

static void count(int signal) {
  (void)signal;
  __atomic_fetch_add(&got[0], 1, __ATOMIC_SEQ_CST);
}

struct names {
  pid_t process, tid;
};

static void *exchanges(void *argument) {
  int end = *(int *)argument;
  struct names me = {getpid(), gettid()}, other;
  CHECK_EQ(write(end, &me, sizeof me), sizeof me);
  CHECK_EQ(read(end, &other, sizeof other), sizeof other);
  for (int i = 0; i < ROUNDS; i++) OK(tgkill_(other.process, other.tid, SIGRTMIN + 2));
  while (__atomic_load_n(&got[0], __ATOMIC_SEQ_CST) < ROUNDS) sched_yield();
  CHECK_EQ(got[0], ROUNDS);
  char c = 'x'; /* each stays until the other has sent all */
  CHECK_EQ(write(end, &c, 1), 1);
  CHECK_EQ(read(end, &c, 1), 1);
  return 0;
}

static void each_other(void) {
  int pair[2];
  got[0] = 0;
  signal(SIGRTMIN + 2, count);
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  pid_t pid = fork();
  CHECK(pid >= 0);
  join(start(exchanges, &pair[pid == 0]));
  if (pid == 0) _exit(0);
  CHECK_EQ(wait_for(pid), 0);
  OK(close(pair[0]));
  OK(close(pair[1]));
}

static void *waits(void *argument) {
  struct names me = {getpid(), gettid()};
  CHECK_EQ(write(*(int *)argument, &me, sizeof me), sizeof me);
  for (;;) pause();
}

/* A deadly one ends the process, whichever of its threads is named. */
static void kills(int signal) {
  int pair[2];
  struct names names;
  OK(pipe(pair));
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) join(start(waits, &pair[1]));
  CHECK_EQ(read(pair[0], &names, sizeof names), sizeof names);
  CHECK_EQ(names.process, pid);
  OK(tgkill_(pid, names.tid, signal));
  int status = wait_for(pid);
  CHECK(WIFSIGNALED(status));
  CHECK_EQ(WTERMSIG(status), signal);
  OK(close(pair[0]));
  OK(close(pair[1]));
}

int main(void) {
  main_tid = gettid();
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
  OK(sigaction(SIGUSR1, &action, 0));
  OK(sigaction(SIGRTMIN + 1, &action, 0));
  action.sa_sigaction = on_value;
  OK(sigaction(SIGRTMIN + 3, &action, 0));
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 4);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  OK(pipe(pipes));
  OK(pthread_barrier_init(&barrier, 0, THREADS + 1));
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(target, (void *)i);
  pthread_barrier_wait(&barrier);
  from_child(0);
  from_child(1);
  puts("ok from a child, with one thread and with several");
  by_other_calls(0);
  by_other_calls(1);
  join(start(not_main, 0));
  puts("ok by other calls");
  from_many();
  puts("ok from several threads at once");
  stop = 1;
  OK(close(pipes[1]));
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  join(start(blocks, 0));
  ended();
  puts("ok pending, ended");
  each_other();
  puts("ok each other");
  kills(SIGKILL);
  kills(SIGTERM);
  puts("ok deadly ones");
}
