/* What the test programs share: CHECK ends the program with a message, the rest saves typing. */
#ifndef HEDDLE_TESTS_CHECK_H
#define HEDDLE_TESTS_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Writes with one write(2) and leaves at once, so that it works wherever it fails: in a handler, a child, a destructor. */
__attribute__((noreturn, format(printf, 3, 4), unused)) static void check_failed(const char *file, int line,
                                                                                const char *format, ...) {
  int error = errno;
  char text[600];
  int n = snprintf(text, sizeof text, "%s:%d: ", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line);
  __builtin_va_list args;
  __builtin_va_start(args, format);
  n += vsnprintf(text + n, sizeof text - n - 60, format, args);
  __builtin_va_end(args);
  n += snprintf(text + n, sizeof text - n, " (errno %d)\n", error);
  if (write(2, text, n) < 0) _exit(99);
  _exit(1);
}

#ifndef CHECK_LEAVES_STDOUT
/* Lines go out as they are printed, so that one who hangs has told how far it came. */
__attribute__((constructor, unused)) static void check_line_buffered(void) { setvbuf(stdout, 0, _IOLBF, 0); }
#endif

#define CHECK(condition)                                                                          \
  do {                                                                                            \
    if (!(condition)) check_failed(__FILE__, __LINE__, "failed: %s", #condition);                 \
  } while (0)

/* Both sides as long long, and their values when they differ. */
#define CHECK_EQ(left, right)                                                                     \
  do {                                                                                            \
    long long left_ = (long long)(left), right_ = (long long)(right);                             \
    if (left_ != right_)                                                                          \
      check_failed(__FILE__, __LINE__, "%s is %lld, not %s = %lld", #left, left_, #right, right_); \
  } while (0)

/* For calls that return 0 or an error number. */
#define OK(call) CHECK_EQ(call, 0)

/* For calls that return -1 and set errno. */
#define FAILS(call, error)           \
  do {                               \
    errno = 0;                       \
    CHECK_EQ(call, -1);              \
    CHECK_EQ(errno, error);          \
  } while (0)

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

__attribute__((unused)) static pthread_t start(void *(*body)(void *), void *argument) {
  pthread_t thread;
  OK(pthread_create(&thread, 0, body, argument));
  return thread;
}

__attribute__((unused)) static void *join(pthread_t thread) {
  void *result;
  OK(pthread_join(thread, &result));
  return result;
}

__attribute__((unused)) static int64_t now_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

__attribute__((unused)) static int64_t now_ms(void) { return now_ns(CLOCK_MONOTONIC) / 1000000; }

__attribute__((unused)) static sigset_t set_with(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  return set;
}

__attribute__((unused)) static int is_pending(int signal) {
  sigset_t set;
  OK(sigpending(&set));
  return sigismember(&set, signal);
}

/* Waits for a child, which exits with 0. */
__attribute__((unused)) static void ends_well(pid_t pid) {
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
}

/* Waits until a joined thread is no more: its id lives a moment longer than it. */
__attribute__((unused)) static void gone(pid_t tid) {
  while (syscall(SYS_tgkill, getpid(), tid, 0) == 0) sched_yield();
}

/* A point in time so many milliseconds from now. */
__attribute__((unused)) static struct timespec in_ms(clockid_t clock, int64_t ms) {
  int64_t t = now_ns(clock) + ms * 1000000;
  struct timespec result = {t / 1000000000, t % 1000000000};
  return result;
}

__attribute__((unused)) static void sleep_ms(int ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
  while (nanosleep(&t, &t) && errno == EINTR) {
  }
}

/* Something that should take about `expected` ms took `took`: never less (1 ms for the clock's grain), and not seconds more. */
#define TOOK_ABOUT(took, expected)                                                          \
  do {                                                                                      \
    long long took_ = (took), expected_ = (expected);                                       \
    if (took_ < expected_ - 1 || took_ > expected_ + 5000)                                  \
      check_failed(__FILE__, __LINE__, "took %lld ms instead of %lld", took_, expected_);   \
  } while (0)

#endif
