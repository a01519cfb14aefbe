/* What abi/COMPAT.md says is not as on Linux, and how: refusals come with their error, and those that a program may stumble
   over with a line on standard error. For Heddle only. */
#include "../c/check.h"
#include <execinfo.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/kcmp.h>
#include <netinet/in.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#ifndef ARCH_GET_GS
#define ARCH_GET_GS 0x1004
#endif
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

enum { EARLY = 40 }; /* a real-time signal */

static pid_t other;
static pthread_barrier_t barrier;

static void *waits(void *argument) {
  other = gettid();
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return argument;
}

/* FS base after a sleep in which it was set to something else: no thread pointer, so nothing is called meanwhile. */
__attribute__((noinline)) static uint64_t fs_base_after_a_sleep(uint64_t set) {
  struct timespec t = {0, 1000000};
  uint64_t own, after;
  long result = SYS_nanosleep;
  __asm__ volatile("rdfsbase %0\n\t"
                   "wrfsbase %3\n\t"
                   "syscall\n\t"
                   "rdfsbase %1\n\t"
                   "wrfsbase %0"
                   : "=&r"(own), "=&r"(after), "+a"(result)
                   : "r"(set), "D"(&t), "S"(0)
                   : "rcx", "r11", "memory");
  CHECK_EQ(result, 0);
  return after == set ? 0 : after - own + 1;
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

static void bases(void) {
  static char fake[4096] __attribute__((aligned(64)));
  uint64_t gs, told = 1;
  CHECK_EQ(fs_base_after_a_sleep((uint64_t)fake), 1); /* its own again */
  __asm__ volatile("rdgsbase %0" : "=r"(gs));
  OK(syscall(SYS_arch_prctl, ARCH_GET_GS, &told));
  CHECK(gs != 0 && told == 0); /* the runtime's */
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
  struct stat folder;
  OK(stat("/proc/self/task", &folder));
  CHECK(folder.st_nlink >= 2 + 3);
}

static void futexes(void) {
  static uint32_t words[2];
  FAILS(syscall(SYS_futex, &words[0], FUTEX_WAIT_REQUEUE_PI | FUTEX_PRIVATE_FLAG, 0, 0, &words[1], 0), ENOSYS);
  FAILS(syscall(SYS_futex, &words[0], FUTEX_CMP_REQUEUE_PI | FUTEX_PRIVATE_FLAG, 1, 0, &words[1], 0), ENOSYS);
  FAILS(syscall(SYS_futex, &words[0], FUTEX_FD, 0, 0, 0, 0), ENOSYS);
}

struct one {
  uint64_t value, address;
  uint32_t flags, reserved;
};

static struct one both[2]; /* a word of the process, one on a shared mapping */
static volatile int begun;

static void *waits_for_both(void *argument) {
  struct timespec end = in_ms(CLOCK_MONOTONIC, (intptr_t)argument);
  begun = 1;
  long r = syscall(SYS_futex_waitv, both, 2, 0, &end, CLOCK_MONOTONIC);
  return (void *)(r < 0 ? -(intptr_t)errno : r);
}

static void mixed_waits(void) {
  static uint32_t word;
  uint32_t *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  both[0] = (struct one){0, (uint64_t)&word, 2 | FUTEX_PRIVATE_FLAG, 0};
  both[1] = (struct one){0, (uint64_t)shared, 2, 0};
  if (syscall(SYS_futex_waitv, both, 2, 0, &(struct timespec){0}, CLOCK_MONOTONIC) < 0 && errno == ENOSYS) return;
  begun = 0;
  pthread_t thread = start(waits_for_both, (void *)300);
  while (!begun) sleep_ms(1);
  sleep_ms(50);
  CHECK_EQ(syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0), 0); /* finds nobody */
  CHECK_EQ((intptr_t)join(thread), -ETIMEDOUT);
  thread = start(waits_for_both, (void *)20000);
  while (syscall(SYS_futex, shared, FUTEX_WAKE, 1, 0, 0, 0) == 0) sleep_ms(1);
  CHECK_EQ((intptr_t)join(thread), 1);
  OK(munmap(shared, 4096));
}

/* What the caller runs on, for the kernel. */
static void worker(char *name, size_t size) {
  ssize_t n = readlink("/proc/thread-self", name, size - 1);
  CHECK(n > 0);
  name[n] = 0;
}

static volatile int moved;

static void *computes(void *argument) {
  while (!moved)
    for (volatile int i = 0; i < 100000; i++) continue;
  return argument;
}

/* A ring for one thread, which for the kernel is the worker. */
static void rings(void) {
  struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER};
  char before[100], now[100];
  moved = 0;
  pthread_t others[3];
  for (int i = 0; i < 3; i++) others[i] = start(computes, 0);
  worker(before, sizeof before);
  int ring = syscall(SYS_io_uring_setup, 4, &params);
  worker(now, sizeof now);
  if (ring >= 0 && !strcmp(before, now)) {
    int64_t end = now_ms() + 20000;
    long r = 0;
    while (r == 0 && now_ms() < end) {
      sleep_ms(1);
      r = syscall(SYS_io_uring_enter, ring, 1, 0, 0, 0, 0);
      if (r < 0) CHECK_EQ(errno, EEXIST);
    }
    CHECK_EQ(r, -1);
  }
  moved = 1;
  for (int i = 0; i < 3; i++) join(others[i]);
  if (ring >= 0) OK(close(ring));
}

/* What a thread sent itself when it was the only one. */
static void *others_signal(void *argument) {
  sigset_t set;
  siginfo_t info;
  sigemptyset(&set);
  sigaddset(&set, EARLY);
  CHECK_EQ(sigtimedwait(&set, &info, &(struct timespec){0}), EARLY);
  CHECK_EQ(info.si_value.sival_int, 9);
  return argument;
}

static int connecting;
static volatile int seen;

static void *looks(void *argument) {
  int64_t end = now_ms() + 20000;
  while (!seen && now_ms() < end) seen = (fcntl(connecting, F_GETFL) & O_NONBLOCK) != 0;
  CHECK(seen);
  return argument;
}

/* A descriptor does not wait in the kernel while a connection begins. */
static void connects(void) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  CHECK((connecting = socket(AF_INET, SOCK_DGRAM, 0)) >= 0);
  seen = 0;
  pthread_t thread = start(looks, 0);
  while (!seen) OK(connect(connecting, (struct sockaddr *)&to, sizeof to));
  join(thread);
  CHECK_EQ(fcntl(connecting, F_GETFL) & O_NONBLOCK, 0);
  OK(close(connecting));
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
  bases();
  task_files();
  futexes();
  mixed_waits();
  rings();
  connects();
  kernel_threads();
  return argument;
}

static volatile int frames;
static void *trace[100];

static void traces(int signal) {
  (void)signal;
  frames = backtrace(trace, COUNT(trace));
}

/* Before the first thread the trace from a handler whose signal came into a call that the program, far from Heddle's library,
   makes with an instruction of its own ends there: it has the handler and what the kernel put on the stack. */
__attribute__((noinline, noclone)) static void trace_from_own_call(void) {
  backtrace(trace, 1); /* loads what it needs */
  signal(SIGUSR1, traces);
  long r = SYS_tgkill;
  __asm__ volatile("syscall" : "+a"(r) : "D"((long)getpid()), "S"((long)gettid()), "d"((long)SIGUSR1) : "rcx", "r11", "memory");
  CHECK_EQ(r, 0);
  CHECK_EQ(frames, 3);
  signal(SIGUSR1, SIG_DFL);
}

int main(void) {
  trace_from_own_call();
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, EARLY);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  OK(pthread_sigqueue(pthread_self(), EARLY, (union sigval){.sival_int = 9}));
  OK(pthread_barrier_init(&barrier, 0, 2));
  pthread_t thread = start(waits, 0);
  pthread_barrier_wait(&barrier);
  join(start(others_signal, 0));
  all(0);
  join(start(all, 0));
  pthread_barrier_wait(&barrier);
  join(thread);
  puts("ok");
}
