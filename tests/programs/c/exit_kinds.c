/* Asserts the ways a process can end, each in a child made by fork and execve of this same program with the kind's name:
   its output and status are compared. `exit_kinds KIND` runs one kind in the process itself. */
#include "check.h"
#include <sys/resource.h>
#include <sys/utsname.h>

static pthread_barrier_t ready;

static void say(const char *text) { CHECK_EQ(write(1, text, strlen(text)), strlen(text)); }
static void first(void) { say("first registered\n"); }
static void second(void) { say("second registered\n"); }
static void at_quick(void) { say("quick\n"); }

static void *idle(void *argument) {
  pthread_barrier_wait(&ready);
  for (;;) pause();
  return argument;
}
static void *spin(void *argument) {
  pthread_barrier_wait(&ready);
  for (;;) __asm__ volatile("" ::: "memory");
  return argument;
}
static void *locked(void *argument) {
  static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;
  pthread_barrier_wait(&ready);
  for (;;) pthread_mutex_lock(&never);
  return argument;
}
static void *reads(void *argument) {
  int fds[2];
  char byte;
  OK(pipe(fds));
  pthread_barrier_wait(&ready);
  CHECK_EQ(read(fds[0], &byte, 1), 1);
  return argument;
}

/* Threads that never end by themselves, each stuck in its own way. */
static void crowd(void) {
  void *(*bodies[])(void *) = {idle, locked, locked, reads, spin, idle};
  OK(pthread_barrier_init(&ready, 0, COUNT(bodies) + 1));
  for (unsigned i = 0; i < COUNT(bodies); i++) start(bodies[i], 0);
  pthread_barrier_wait(&ready);
}

static void *late_printer(void *argument) {
  sleep_ms(30);
  printf("a thread goes on"); /* no line end: stays in the buffer until stdio is flushed, after the handlers */
  return argument;
}
static void *thread_exit(void *argument) { exit((int)(long)argument); }
static void *thread_exit_now(void *argument) { _exit((int)(long)argument); }
static void *thread_abort(void *argument) {
  (void)argument;
  abort();
}
static void *thread_fault(void *argument) {
  *(volatile int *)argument = 1;
  return 0;
}
static void *thread_raise(void *argument) {
  raise((int)(long)argument);
  return 0;
}
static void *thread_unblocks(void *argument) {
  sigset_t set;
  sigfillset(&set);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  kill(getpid(), (int)(long)argument);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  for (;;) pause();
  return argument;
}
static void *thread_kill(void *argument) {
  kill(getpid(), (int)(long)argument);
  for (;;) pause();
  return argument;
}
__attribute__((noinline)) static int dive(volatile char *above) {
  volatile char block[1024];
  block[0] = above[0];
  return above[0] == 77 ? 0 : dive(block) + block[0];
}
static void *thread_overflow(void *argument) {
  volatile char zero = 0;
  return (char *)argument + dive(&zero);
}
static void *detached(void *argument) {
  sleep_ms(10);
  __atomic_add_fetch((int *)argument, 1, __ATOMIC_SEQ_CST);
  return 0;
}
static void *cancels_main(void *argument) {
  OK(pthread_cancel(*(pthread_t *)argument));
  OK(pthread_join(*(pthread_t *)argument, 0)); /* main can be joined */
  printf("joined main");
  return 0;
}

/* Without the C library, which ends the process with 0 when its last thread returns. */
static void *thread_leaves_late(void *argument) {
  sleep_ms(30);
  syscall(SYS_exit, (int)(long)argument);
  return 0;
}
static void *thread_leaves(void *argument) {
  __atomic_store_n((pid_t *)argument, gettid(), __ATOMIC_SEQ_CST);
  syscall(SYS_exit, 5);
  return 0;
}

static int run(const char *kind) {
#define IS(name) (strcmp(kind, name) == 0)
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  if (IS("return")) return 42;
  atexit(first);
  atexit(second);
  if (IS("atexit")) return 3;
  if (IS("exit-crowd")) return crowd(), 4;
  if (IS("exit-from-thread")) crowd(), start(thread_exit, (void *)7L), pause();
  if (IS("_exit-from-thread")) crowd(), start(thread_exit_now, (void *)9L), pause();
  if (IS("quick_exit")) crowd(), at_quick_exit(at_quick), quick_exit(11);
  if (IS("main-pthread_exit")) start(late_printer, 0), pthread_exit(0);
  if (IS("main-pthread_exit-exit")) {
    crowd();
    start(thread_exit, (void *)13L);
    pthread_exit(0);
  }
  if (IS("main-cancelled")) {
    pthread_t me = pthread_self();
    start(cancels_main, &me);
    for (;;) pause();
  }
  if (IS("all-exit-main-first")) {
    start(thread_leaves_late, (void *)5L);
    syscall(SYS_exit, 3);
  }
  if (IS("all-exit-main-last")) {
    pid_t tid = 0;
    start(thread_leaves, &tid);
    while (!__atomic_load_n(&tid, __ATOMIC_SEQ_CST)) sleep_ms(1);
    gone(tid);
    syscall(SYS_exit, 3);
  }
  if (IS("abort")) crowd(), abort();
  if (IS("abort-from-thread")) crowd(), start(thread_abort, 0), pause();
  if (IS("fault-in-thread")) crowd(), start(thread_fault, (void *)16L), pause();
  if (IS("overflow-in-thread")) start(thread_overflow, 0), pause();
  if (IS("overflow-in-main")) return (int)(long)thread_overflow(0);
  if (IS("raise-in-thread")) crowd(), start(thread_raise, (void *)(long)SIGTERM), pause();
  if (IS("kill-in-thread")) crowd(), start(thread_kill, (void *)(long)SIGKILL), pause();
  if (IS("unblock-in-thread")) {
    sigset_t set;
    sigfillset(&set);
    OK(pthread_sigmask(SIG_BLOCK, &set, 0));
    crowd(), start(thread_unblocks, (void *)(long)SIGTERM), sleep_ms(100000);
  }
  if (IS("kill-hup")) crowd(), start(thread_kill, (void *)(long)SIGHUP), pause();
  if (IS("detached")) {
    int count = 0;
    for (int i = 0; i < 100; i++) OK(pthread_detach(start(detached, &count)));
    while (__atomic_load_n(&count, __ATOMIC_SEQ_CST) < 100) sleep_ms(1);
    return 5;
  }
  if (IS("detached-left")) { /* ends while they sleep or never ran */
    static int count;
    for (int i = 0; i < 100; i++) OK(pthread_detach(start(detached, &count)));
    return 6;
  }
  check_failed(__FILE__, __LINE__, "no such kind: %s", kind);
}

#define BOTH "second registered\nfirst registered\n"
static const struct {
  const char *kind;
  int status; /* as a shell says it */
  const char *output;
} kinds[] = {
    {"return", 42, ""},
    {"atexit", 3, BOTH},
    {"exit-crowd", 4, BOTH},
    {"exit-from-thread", 7, BOTH},
    {"_exit-from-thread", 9, ""},
    {"quick_exit", 11, "quick\n"},
    {"main-pthread_exit", 0, BOTH "a thread goes on"},
    {"main-pthread_exit-exit", 13, BOTH},
    {"main-cancelled", 0, BOTH "joined main"},
    {"all-exit-main-first", 5, ""}, /* 3 before Linux 6.0 */
    {"all-exit-main-last", 3, ""},
    {"abort", 128 + SIGABRT, ""},
    {"abort-from-thread", 128 + SIGABRT, ""},
    {"fault-in-thread", 128 + SIGSEGV, ""},
    {"overflow-in-thread", 128 + SIGSEGV, ""},
    {"overflow-in-main", 128 + SIGSEGV, ""},
    {"raise-in-thread", 128 + SIGTERM, ""},
    {"kill-in-thread", 128 + SIGKILL, ""},
    {"unblock-in-thread", 128 + SIGTERM, ""},
    {"kill-hup", 128 + SIGHUP, ""},
    {"detached", 5, BOTH},
    {"detached-left", 6, BOTH},
};

int main(int argc, char **argv) {
  if (argc == 2) return run(argv[1]);
  struct utsname kernel;
  OK(uname(&kernel));
  int old = atoi(kernel.release) < 6;
  for (unsigned i = 0; i < COUNT(kinds); i++) {
    int fds[2], status;
    char output[500] = "";
    size_t size = 0;
    ssize_t n;
    OK(pipe(fds));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      dup2(fds[1], 1);
      /* A report of the death is welcome, but not compared. */
      if (kinds[i].status > 128) dup2(open("/dev/null", O_WRONLY), 2);
      close(fds[0]);
      close(fds[1]);
      execl("/proc/self/exe", "exit_kinds", kinds[i].kind, (char *)0);
      _exit(127);
    }
    OK(close(fds[1]));
    while ((n = read(fds[0], output + size, sizeof output - 1 - size)) > 0) size += n;
    OK(close(fds[0]));
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (old && !strcmp(kinds[i].kind, "all-exit-main-first") && code == 3) code = kinds[i].status;
    if (code != kinds[i].status || strcmp(output, kinds[i].output))
      check_failed(__FILE__, __LINE__, "%s: status %d instead of %d, output:\n%s", kinds[i].kind, code, kinds[i].status, output);
    printf("ok %s: %d\n", kinds[i].kind, code);
    fflush(stdout);
  }
}
