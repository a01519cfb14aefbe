/* What abi/COMPAT.md says is not as on Linux, and how: refusals come with their error, and those that a program may stumble
   over with a line on standard error. For Heddle only. */
#include "../c/check.h"
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#ifndef ARCH_SET_GS
#define ARCH_SET_GS 0x1001
#endif

static pid_t other;
static pthread_barrier_t barrier;

static void *waits(void *argument) {
  other = gettid();
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return argument;
}

static int child(void *argument) {
  (void)argument;
  return 0;
}

static void threads(void) {
  static char stack[65536] __attribute__((aligned(64)));
  int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
  FAILS(clone(child, stack + sizeof stack, flags, 0), EINVAL);                   /* no thread pointer of its own */
  FAILS(clone(child, stack + sizeof stack, flags & ~CLONE_FILES, 0), EINVAL);    /* shares less */
  void *head;
  size_t size;
  FAILS(syscall(SYS_get_robust_list, other, &head, &size), ESRCH);
  FAILS(syscall(SYS_arch_prctl, ARCH_SET_GS, 0), EPERM);
  FAILS(syscall(SYS_kcmp, other, getpid(), KCMP_VM, 0, 0), ESRCH);
  struct f_owner_ex owner = {F_OWNER_TID, other};
  int fds[2];
  OK(pipe(fds));
  FAILS(fcntl(fds[0], F_SETOWN_EX, &owner), ESRCH);
  char from = 1, to = 2;
  struct iovec local = {&to, 1}, remote = {&from, 1};
  FAILS(process_vm_readv(other, &local, 1, &remote, 1, 0), ESRCH);
  CHECK_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), 1);
  CHECK_EQ(to, from);
}

static void task_files(void) {
  char path[100], text[100];
  snprintf(path, sizeof path, "/proc/self/task/%d/timerslack_ns", other);
  FAILS(open(path, O_RDONLY), ENOENT);
  snprintf(path, sizeof path, "/proc/self/task/%d/comm", other);
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0);
  OK(close(fd));
  /* The count in `status` is of kernel threads: there are two threads, and workers and the monitor are more. */
  FILE *status = fopen("/proc/self/status", "r");
  int told = 0;
  while (fgets(text, sizeof text, status)) sscanf(text, "Threads: %d", &told);
  fclose(status);
  CHECK(told >= 3);
}

static void futexes(void) {
  static uint32_t words[2];
  FAILS(syscall(SYS_futex, &words[0], FUTEX_WAIT_REQUEUE_PI | FUTEX_PRIVATE_FLAG, 0, 0, &words[1], 0), ENOSYS);
  FAILS(syscall(SYS_futex, &words[0], FUTEX_CMP_REQUEUE_PI | FUTEX_PRIVATE_FLAG, 1, 0, &words[1], 0), ENOSYS);
  FAILS(syscall(SYS_futex, &words[0], FUTEX_FD, 0, 0, 0, 0), ENOSYS);
}

static void kernel_threads(void) {
  FAILS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0), EINVAL);
  FAILS(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, 0), EINVAL);
  char selector = 0;
  FAILS(prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector), EINVAL);
  FAILS(unshare(CLONE_NEWNS), EPERM);
  FAILS(unshare(CLONE_FILES), EPERM);
  int self = open("/proc/self/ns/uts", O_RDONLY);
  FAILS(setns(self, 0), EPERM);
  OK(close(self));
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t clamp_min, clamp_max;
  } attributes = {.size = 48, .policy = 6 /* SCHED_DEADLINE */, .runtime = 1 << 20, .deadline = 1 << 22, .period = 1 << 22};
  FAILS(syscall(SYS_sched_setattr, 0, &attributes, 0), EPERM);
  attributes = (typeof(attributes)){.size = 56, .flags = 0x20 /* UTIL_CLAMP_MIN */, .clamp_min = 100};
  FAILS(syscall(SYS_sched_setattr, 0, &attributes, 0), EOPNOTSUPP);
}

static void *all(void *argument) {
  threads();
  task_files();
  futexes();
  kernel_threads();
  return argument;
}

int main(void) {
  OK(pthread_barrier_init(&barrier, 0, 2));
  pthread_t thread = start(waits, 0);
  pthread_barrier_wait(&barrier);
  all(0);
  join(start(all, 0));
  pthread_barrier_wait(&barrier);
  join(thread);
  puts("ok");
}
