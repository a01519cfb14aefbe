/* Asserts that the child of a vfork, or of a clone that shares memory, may be killed at any time: while it waits for a word,
   whose next wake-up then is another's, wherever the child's stack was; and while it forks, after which its creator forks,
   maps memory and makes threads as before. (The child makes raw calls: libc has locks of its own, which would stay taken.) */
#include "check.h"
#include <linux/futex.h>
#include <sys/syscall.h>

static int word;
static volatile pid_t child;

static long futex(int op, int value) { return syscall(SYS_futex, &word, op | FUTEX_PRIVATE_FLAG, value, 0, 0, 0); }

static void child_waits(void) {
  child = (pid_t)syscall(SYS_getpid);
  for (;;) futex(FUTEX_WAIT, 0);
}

static void was_killed(pid_t pid) {
  int status;
  CHECK_EQ(waitpid(pid, &status, __WALL), pid);
  CHECK(WIFSIGNALED(status));
  CHECK_EQ(WTERMSIG(status), SIGKILL);
}

static void *has_waiting_child(void *argument) {
  pid_t pid = vfork();
  CHECK(pid >= 0);
  if (pid == 0) {
    child_waits();
    _exit(1);
  }
  was_killed(pid);
  return argument;
}

static int waits_beside(void *argument) {
  (void)argument;
  child_waits();
  return 1;
}

/* Until the kernel says that it sleeps, and a moment longer. */
static void wait_until_asleep(pid_t pid) {
  char name[64], text[256] = "";
  snprintf(name, sizeof name, "/proc/%d/stat", pid);
  for (int seen = 0; seen < 3;) {
    usleep(300);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    CHECK(n > 0);
    OK(close(fd));
    text[n] = 0;
    seen = strstr(text, ") S ") ? seen + 1 : 0;
  }
}

static void *waits(void *argument) {
  OK(futex(FUTEX_WAIT, 0));
  return argument;
}

/* One wake-up for one thread that waits, who came after the dead ones. */
static void wake_reaches_a_thread(void) {
  pthread_t thread = start(waits, 0);
  long woken = 0;
  for (int i = 0; i < 20000 && woken == 0; i++) {
    usleep(200);
    woken = futex(FUTEX_WAKE, 1);
  }
  CHECK_EQ(woken, 1);
  join(thread);
  CHECK_EQ(futex(FUTEX_WAKE, INT_MAX), 0);
}

enum { STACK = 1 << 16 };

static void killed_while_waiting(void) {
  for (int i = 0; i < 100; i++) { /* more than there are places */
    child = 0;
    pthread_t thread = start(has_waiting_child, 0);
    while (child == 0) usleep(50);
    wait_until_asleep(child);
    OK(kill(child, SIGKILL));
    join(thread);
    if (i % 10 == 0) wake_reaches_a_thread();
  }
  puts("ok vfork");
  for (int i = 0; i < 100; i++) {
    char *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    child = 0;
    pid_t pid = clone(waits_beside, stack + STACK, CLONE_VM | SIGCHLD, 0);
    CHECK(pid > 0);
    while (child == 0) usleep(50);
    wait_until_asleep(child);
    OK(kill(pid, SIGKILL));
    was_killed(pid);
    OK(munmap(stack, STACK));
    if (i % 10 == 0) wake_reaches_a_thread();
  }
  puts("ok beside");
}

static void forks_for_ever(void) {
  child = (pid_t)syscall(SYS_getpid);
  for (;;) {
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) syscall(SYS_exit_group, 0);
    syscall(SYS_wait4, pid, 0, 0, 0);
  }
}

static void *has_forking_child(void *argument) {
  pid_t pid = vfork();
  CHECK(pid >= 0);
  if (pid == 0) {
    forks_for_ever();
    _exit(1);
  }
  was_killed(pid);
  return argument;
}

static int forks_beside(void *argument) {
  (void)argument;
  forks_for_ever();
  return 1;
}

static void *nothing(void *argument) { return argument; }

/* What needs the tables that a fork locks. */
static void all_goes_on(void) {
  void *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  OK(munmap(shared, 4096));
  pthread_attr_t attributes;
  pthread_t thread;
  OK(pthread_attr_init(&attributes));
  OK(pthread_attr_setstacksize(&attributes, 1 << 18));
  OK(pthread_create(&thread, &attributes, nothing, 0));
  join(thread);
  OK(pthread_attr_destroy(&attributes));
}

static void fork_works(void) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    join(start(nothing, 0));
    _exit(0);
  }
  ends_well(pid);
}

static void killed_while_forking(void) {
  for (int i = 0; i < 60; i++) {
    child = 0;
    pthread_t thread = start(has_forking_child, 0);
    while (child == 0) usleep(50);
    usleep(300 + 37 * i);
    OK(kill(child, SIGKILL));
    join(thread);
    all_goes_on();
    fork_works();
  }
  puts("ok vfork that forks");
  static char stack[STACK] __attribute__((aligned(64)));
  for (int i = 0; i < 60; i++) {
    child = 0;
    pid_t pid = clone(forks_beside, stack + STACK, CLONE_VM | SIGCHLD, 0);
    CHECK(pid > 0);
    while (child == 0) usleep(50);
    usleep(300 + 37 * i);
    OK(kill(pid, SIGKILL));
    was_killed(pid);
    fork_works();
    all_goes_on();
  }
  puts("ok beside that forks");
}

int main(void) {
  join(start(nothing, 0));
  killed_while_waiting();
  killed_while_forking();
}
