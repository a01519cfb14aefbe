/* What abi/COMPAT.md says of other processes is not as on Linux: those outside of Heddle do not find a user thread by its id,
   nor as the owner of a priority-inheritance lock, and are not woken by main's unlock; a robust mutex of a process that is
   killed stays locked; who may lock little memory, and wants all locked from now on, gets no thread; a thread of a stopped process gets no signal; a thread's CPU set is told as it has set
   it, although another process has changed that of its worker. For
   Heddle only. */
#include "../c/check.h"
#include <linux/futex.h>
#include <sys/resource.h>

extern char **environ;

struct shared {
  uint32_t lock;
  pthread_mutex_t robust;
  volatile int held, tried, unlocked, stopped;
  volatile pid_t tid;
};

static struct shared *shared;
static char *self;
static pthread_barrier_t barrier;

/* This program again, outside of Heddle: its memory is descriptor 3. */
static pid_t outside(const char *what, pid_t process, pid_t tid) {
  char numbers[2][20];
  snprintf(numbers[0], 20, "%d", process);
  snprintf(numbers[1], 20, "%d", tid);
  char *argv[] = {self, (char *)what, numbers[0], numbers[1], 0}, *none[] = {0};
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    execve(self, argv, none);
    _exit(9);
  }
  return pid;
}

static long lock_pi(int ms) {
  struct timespec end = in_ms(CLOCK_REALTIME, ms);
  return syscall(SYS_futex, &shared->lock, FUTEX_LOCK_PI, 0, &end, 0, 0);
}

static int is_outside(char **argv) {
  pid_t process = atoi(argv[2]), tid = atoi(argv[3]);
  if (!strcmp(argv[1], "sends")) {
    FAILS(syscall(SYS_tgkill, process, tid, 0), ESRCH);
    FAILS(syscall(SYS_tkill, tid, 0), ESRCH);
    FAILS(kill(tid, 0), ESRCH);
    siginfo_t info = {.si_code = SI_QUEUE};
    FAILS(syscall(SYS_rt_tgsigqueueinfo, process, tid, SIGUSR1, &info), ESRCH);
    OK(kill(process, 0));
  } else if (!strcmp(argv[1], "thread's lock")) {
    FAILS(lock_pi(5000), ESRCH);
  } else {
    shared->tried = 1;
    FAILS(lock_pi(1000), ETIMEDOUT);
    CHECK(shared->unlocked);
  }
  return 0;
}

static void *holds(void *argument) {
  OK(syscall(SYS_futex, &shared->lock, FUTEX_LOCK_PI, 0, 0, 0, 0));
  shared->tid = gettid();
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  OK(syscall(SYS_futex, &shared->lock, FUTEX_UNLOCK_PI, 0, 0, 0, 0));
  return argument;
}

static void outsiders(void) {
  pthread_t thread = start(holds, 0);
  pthread_barrier_wait(&barrier);
  ends_well(outside("sends", getpid(), shared->tid));
  ends_well(outside("thread's lock", 0, 0));
  pthread_barrier_wait(&barrier);
  join(thread);
  OK(syscall(SYS_futex, &shared->lock, FUTEX_LOCK_PI, 0, 0, 0, 0));
  pid_t pid = outside("main's lock", 0, 0);
  while (!shared->tried) sleep_ms(1);
  sleep_ms(100);
  shared->unlocked = 1;
  OK(syscall(SYS_futex, &shared->lock, FUTEX_UNLOCK_PI, 0, 0, 0, 0));
  ends_well(pid);
}

static void *holds_robust(void *argument) {
  OK(pthread_mutex_lock(&shared->robust));
  shared->held = 1;
  for (;;) pause();
  return argument;
}

static void killed(void) {
  pthread_mutexattr_t attr;
  OK(pthread_mutexattr_init(&attr));
  OK(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
  OK(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
  OK(pthread_mutex_init(&shared->robust, &attr));
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) join(start(holds_robust, 0));
  while (!shared->held) sleep_ms(1);
  OK(kill(pid, SIGKILL));
  CHECK_EQ(waitpid(pid, 0, 0), pid);
  struct timespec end = in_ms(CLOCK_REALTIME, 50);
  CHECK_EQ(pthread_mutex_timedlock(&shared->robust, &end), ETIMEDOUT);
}

static void *is_stopped(void *argument) {
  shared->stopped = gettid();
  for (;;) pause();
  return argument;
}

static void stopped(void) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) join(start(is_stopped, 0));
  while (!shared->stopped) sleep_ms(1);
  OK(syscall(SYS_tgkill, pid, shared->stopped, 0));
  int status, again;
  do {
    OK(kill(pid, SIGSTOP));
    CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
    CHECK(WIFSTOPPED(status));
    long r = syscall(SYS_tgkill, pid, shared->stopped, 0);
    int error = errno;
    again = waitpid(pid, &status, WCONTINUED | WNOHANG) == pid; /* somebody else has continued it */
    if (!again) {
      CHECK_EQ(r, -1);
      CHECK_EQ(error, EAGAIN);
    }
    OK(kill(pid, SIGCONT));
  } while (again);
  OK(syscall(SYS_tgkill, pid, shared->stopped, SIGKILL));
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK(WIFSIGNALED(status));
}

static void cpu_sets(void) {
  cpu_set_t before, after, one;
  OK(sched_getaffinity(0, sizeof before, &before));
  OK(sched_setaffinity(0, sizeof before, &before));
  if (CPU_COUNT(&before) < 2) return;
  CPU_ZERO(&one);
  for (int i = 0; !CPU_COUNT(&one); i++)
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  pid_t parent = getpid(), pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    OK(sched_setaffinity(parent, sizeof one, &one));
    _exit(0);
  }
  ends_well(pid);
  OK(sched_getaffinity(0, sizeof after, &after));
  CHECK(CPU_EQUAL(&before, &after));
}

static void *nothing(void *argument) { return argument; }

static void little_memory_to_lock(void) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    struct rlimit little;
    pthread_t thread;
    pthread_attr_t attr;
    OK(getrlimit(RLIMIT_MEMLOCK, &little));
    if (little.rlim_cur > 8 << 20) little.rlim_cur = little.rlim_max = 8 << 20;
    OK(setrlimit(RLIMIT_MEMLOCK, &little));
    if (geteuid() == 0) OK(setuid(65534));
    OK(mlockall(MCL_FUTURE));
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setstacksize(&attr, 64 << 10));
    CHECK_EQ(pthread_create(&thread, &attr, nothing, 0), EAGAIN);
    _exit(0);
  }
  ends_well(pid);
}

int main(int argc, char **argv) {
  self = argv[0];
  int memory = argc > 2 ? 3 : memfd_create("shared", 0);
  CHECK_EQ(memory, 3);
  if (argc < 3) OK(ftruncate(memory, 4096));
  shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  CHECK(shared != MAP_FAILED);
  if (argc > 2) return is_outside(argv);
  little_memory_to_lock();
  OK(pthread_barrier_init(&barrier, 0, 2));
  join(start(nothing, 0));
  outsiders();
  killed();
  stopped();
  cpu_sets();
  puts("ok");
}
