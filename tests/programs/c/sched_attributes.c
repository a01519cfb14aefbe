/* Asserts policy, priority, nice value, I/O priority and timer slack of threads: what is set for one, by itself or by
   another, is what it and others read, new threads and child processes inherit it (or not, as asked), others keep theirs; errors are the
   kernel's. Much of it needs root; without, that it is refused. */
#include "check.h"
#include <sys/prctl.h>
#include <sys/resource.h>

enum { IO_PROCESS = 1, IO_BEST_EFFORT = 2 << 13, IO_REAL_TIME = 1 << 13 };

struct attr { /* struct sched_attr, version 0 */
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};

static pthread_barrier_t barrier;
static pid_t other_tid;
static int privileged;

static int policy_of(pid_t tid) { return sched_getscheduler(tid); }

static int priority_of(pid_t tid) {
  struct sched_param param = {-1};
  OK(sched_getparam(tid, &param));
  return param.sched_priority;
}

static int nice_of(pid_t tid) {
  errno = 0;
  int n = getpriority(PRIO_PROCESS, tid);
  CHECK_EQ(errno, 0);
  return n;
}

static void plain(pid_t tid) {
  CHECK_EQ(policy_of(tid), SCHED_OTHER);
  CHECK_EQ(priority_of(tid), 0);
  CHECK_EQ(nice_of(tid), 0);
}

/* A child process has it too. */
static void in_child(int policy, int priority, int nice) {
  int status;
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) _exit(policy_of(0) == policy && priority_of(0) == priority && nice_of(0) == nice ? 0 : 1);
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
}

static void *is_plain(void *argument) {
  plain(0);
  in_child(SCHED_OTHER, 0, 0);
  plain(gettid());
  return argument;
}

static void *is_rr7(void *argument) {
  CHECK_EQ(policy_of(0), SCHED_RR);
  CHECK_EQ(priority_of(0), 7);
  CHECK_EQ(nice_of(0), (int)(long)argument); /* kept, though without meaning */
  in_child(SCHED_RR, 7, (int)(long)argument);
  return argument;
}

static void *is_batch5(void *argument) {
  CHECK_EQ(policy_of(0), SCHED_BATCH);
  CHECK_EQ(nice_of(0), 5);
  in_child(SCHED_BATCH, 0, 5);
  CHECK_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 123456);
  CHECK_EQ(syscall(SYS_ioprio_get, IO_PROCESS, 0), IO_BEST_EFFORT | 7);
  return argument;
}

/* Lives while main does things to it; sees them. */
static void *other(void *argument) {
  struct sched_param param;
  int policy;
  other_tid = gettid();
  pthread_barrier_wait(&barrier); /* it is there */
  pthread_barrier_wait(&barrier); /* it is changed */
  CHECK_EQ(policy_of(0), SCHED_BATCH);
  CHECK_EQ(nice_of(0), 5);
  OK(prctl(PR_SET_TIMERSLACK, 123456, 0, 0, 0));
  join(start(is_batch5, 0));
  if (privileged) {
    param.sched_priority = 7;
    OK(pthread_setschedparam(pthread_self(), SCHED_RR, &param));
    OK(pthread_getschedparam(pthread_self(), &policy, &param));
    CHECK(policy == SCHED_RR && param.sched_priority == 7);
    join(start(is_rr7, (void *)5L));
    param.sched_priority = 7;
    OK(sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &param));
    CHECK_EQ(policy_of(gettid()), SCHED_RR | SCHED_RESET_ON_FORK);
    join(start(is_plain, 0));
    OK(pthread_setschedprio(pthread_self(), 3));
    CHECK_EQ(priority_of(gettid()), 3);
  }
  pthread_barrier_wait(&barrier); /* main looks */
  pthread_barrier_wait(&barrier); /* and has looked */
  return argument;
}

static void attributes(void) {
  pthread_attr_t attr;
  pthread_t thread;
  struct sched_param param = {7};
  OK(pthread_attr_init(&attr));
  OK(pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED));
  OK(pthread_attr_setschedpolicy(&attr, SCHED_RR));
  OK(pthread_attr_setschedparam(&attr, &param));
  if (privileged) {
    OK(pthread_create(&thread, &attr, is_rr7, 0));
    join(thread);
  } else {
    CHECK_EQ(pthread_create(&thread, &attr, is_rr7, 0), EPERM);
  }
  OK(pthread_attr_setinheritsched(&attr, PTHREAD_INHERIT_SCHED));
  OK(pthread_create(&thread, &attr, is_plain, 0));
  join(thread);
  cpu_set_t set;
  OK(sched_getaffinity(0, sizeof set, &set));
  OK(pthread_attr_setaffinity_np(&attr, sizeof set, &set));
  OK(pthread_create(&thread, &attr, is_plain, 0));
  join(thread);
  OK(pthread_attr_destroy(&attr));
}

static void errors(pid_t tid, pid_t ended) {
  struct sched_param zero = {0}, one = {1}, many = {100};
  struct timespec t;
  struct attr a = {.size = sizeof a};
  FAILS(sched_setscheduler(tid, SCHED_OTHER, &one), EINVAL);
  FAILS(sched_setscheduler(tid, SCHED_RR, &zero), EINVAL);
  FAILS(sched_setscheduler(tid, SCHED_RR, &many), EINVAL);
  FAILS(sched_setscheduler(tid, 77, &zero), EINVAL);
  FAILS(sched_setscheduler(tid, SCHED_OTHER, 0), EINVAL);
  FAILS(sched_getparam(tid, 0), EINVAL);
  FAILS(sched_setparam(tid, &one), EINVAL);
  FAILS(sched_getscheduler(-1), EINVAL);
  FAILS(sched_getscheduler(ended), ESRCH);
  FAILS(sched_setscheduler(ended, SCHED_OTHER, &zero), ESRCH);
  FAILS(sched_getparam(ended, &zero), ESRCH);
  FAILS(sched_rr_get_interval(ended, &t), ESRCH);
  FAILS(getpriority(PRIO_PROCESS, ended), ESRCH);
  FAILS(setpriority(PRIO_PROCESS, ended, 0), ESRCH);
  FAILS(syscall(SYS_sched_getattr, ended, &a, sizeof a, 0), ESRCH);
  FAILS(syscall(SYS_sched_getattr, tid, &a, 8, 0), EINVAL);
  FAILS(syscall(SYS_sched_setattr, tid, 0, 0), EINVAL);
  a.size = 8;
  FAILS(syscall(SYS_sched_setattr, tid, &a, 0), E2BIG);
  FAILS(syscall(SYS_ioprio_set, IO_PROCESS, tid, 7 << 13), EINVAL);
  if (!privileged) {
    FAILS(sched_setscheduler(tid, SCHED_FIFO, &one), EPERM);
    FAILS(setpriority(PRIO_PROCESS, tid, -5), EACCES);
    FAILS(syscall(SYS_ioprio_set, IO_PROCESS, tid, IO_REAL_TIME), EPERM);
  }
}

static void *ends(void *argument) {
  *(pid_t *)argument = gettid();
  return 0;
}

static void *all(void *argument) {
  pid_t ended;
  struct sched_param zero = {0};
  struct attr a = {.size = sizeof a};
  struct timespec t = {-1, -1};
  join(start(ends, &ended));
  gone(ended);
  pthread_t thread = start(other, 0);
  pthread_barrier_wait(&barrier);
  plain(0);
  plain(other_tid);
  OK(sched_rr_get_interval(other_tid, &t));
  CHECK(t.tv_sec == 0 && t.tv_nsec >= 0);
  errors(other_tid, ended);
  errors(0, ended);
  plain(other_tid);
  OK(sched_setscheduler(other_tid, SCHED_BATCH, &zero));
  CHECK_EQ(policy_of(other_tid), SCHED_BATCH);
  OK(setpriority(PRIO_PROCESS, other_tid, 5));
  OK(syscall(SYS_ioprio_set, IO_PROCESS, other_tid, IO_BEST_EFFORT | 7));
  CHECK_EQ(syscall(SYS_ioprio_get, IO_PROCESS, other_tid), IO_BEST_EFFORT | 7);
  CHECK(syscall(SYS_ioprio_get, IO_PROCESS, 0) != (IO_BEST_EFFORT | 7));
  OK(syscall(SYS_sched_getattr, other_tid, &a, sizeof a, 0));
  CHECK(a.policy == SCHED_BATCH && a.nice == 5 && a.priority == 0);
  plain(0);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  if (privileged) {
    CHECK_EQ(policy_of(other_tid), SCHED_RR | SCHED_RESET_ON_FORK);
    CHECK_EQ(priority_of(other_tid), 3);
    OK(sched_rr_get_interval(other_tid, &t));
    CHECK(t.tv_sec == 0 && t.tv_nsec >= 1000000);
    OK(syscall(SYS_sched_getattr, other_tid, &a, sizeof a, 0));
    CHECK(a.policy == SCHED_RR && a.flags == 1 && a.priority == 3);
    a = (struct attr){.size = sizeof a, .policy = SCHED_OTHER, .nice = -3};
    OK(syscall(SYS_sched_setattr, other_tid, &a, 0));
    CHECK_EQ(nice_of(other_tid), -3);
    CHECK_EQ(policy_of(other_tid), SCHED_OTHER);
  } else {
    FAILS(setpriority(PRIO_PROCESS, other_tid, 4), EACCES);
  }
  pthread_barrier_wait(&barrier);
  join(thread);
  plain(0);
  attributes();
  join(start(is_plain, 0));
  return argument;
}

int main(void) {
  struct rlimit none = {0, 0};
  OK(setrlimit(RLIMIT_RTPRIO, &none));
  OK(setrlimit(RLIMIT_NICE, &none));
  struct sched_param one = {1}, zero = {0};
  privileged = sched_setscheduler(0, SCHED_RR, &one) == 0;
  if (privileged) OK(sched_setscheduler(0, SCHED_OTHER, &zero));
  OK(pthread_barrier_init(&barrier, 0, 2));
  join(start(all, 0));
  all(0);
  if (privileged && getuid() == 0) {
    /* And without rights. */
    OK(setresuid(65534, 65534, 65534));
    privileged = 0;
    join(start(all, 0));
  }
  puts("ok scheduling attributes");
}
