/* Asserts signals sent to the process: they go to a thread that does not block them, or wait until one takes them; a
   thread of its own for signals (sigwait); what its sender alone lets through is handled before the call returns; alarm, interval and POSIX timers, SIGEV_THREAD and SIGEV_THREAD_ID; SIGCHLD;
   ignored and default ones. */
#include "check.h"
#include <sys/time.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { THREADS = 8 };

static volatile pthread_t handled_by;
static volatile pid_t handled_tid;
static volatile int handled, stop;
static int fds[2];

static void on_signal(int sig) {
  (void)sig;
  handled_by = pthread_self();
  handled_tid = gettid();
  __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
}

static sigset_t set_of(int a, int b) {
  sigset_t set;
  sigemptyset(&set);
  if (a) sigaddset(&set, a);
  if (b) sigaddset(&set, b);
  return set;
}

static void wait_handled(int count) {
  for (int i = 0; i < 20000 && __atomic_load_n(&handled, __ATOMIC_SEQ_CST) < count; i++) usleep(500);
  CHECK_EQ(__atomic_load_n(&handled, __ATOMIC_SEQ_CST), count);
}

/* The only one that lets SIGUSR1 through: asleep, waiting for a descriptor, or computing. */
static void *open_thread(void *argument) {
  int kind = (int)(long)argument;
  sigset_t set = set_of(SIGUSR1, 0);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
    char byte;
    if (kind == 0) sleep_ms(2);
    if (kind == 1) CHECK(read(fds[0], &byte, 1) == 1 || errno == EINTR); /* until the next signal, or the end */
    if (kind == 2) /* computes */
      __asm__ volatile("" ::: "memory");
  }
  return 0;
}

static void *blocked_thread(void *argument) {
  while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) sleep_ms(1);
  return argument;
}

static void one_open_thread(void) {
  pthread_t others[THREADS];
  sigset_t set = set_of(SIGUSR1, 0);
  OK(pipe(fds));
  OK(pthread_sigmask(SIG_BLOCK, &set, 0)); /* main and what it makes */
  for (int kind = 0; kind < 3; kind++) {
    stop = handled = 0;
    for (int i = 0; i < THREADS; i++) others[i] = start(blocked_thread, 0);
    pthread_t open = start(open_thread, (void *)(long)kind);
    sleep_ms(20);
    for (int i = 1; i <= 10; i++) {
      OK(kill(getpid(), SIGUSR1));
      wait_handled(i);
      CHECK(pthread_equal(handled_by, open));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    CHECK_EQ(write(fds[1], "x", 1), 1);
    join(open);
    for (int i = 0; i < THREADS; i++) join(others[i]);
  }
}

static void pending_for_all(void) {
  sigset_t set = set_of(SIGUSR1, 0), now;
  handled = 0;
  OK(kill(getpid(), SIGUSR1)); /* blocked in the only thread */
  sleep_ms(5);
  CHECK_EQ(handled, 0);
  OK(sigpending(&now));
  CHECK(sigismember(&now, SIGUSR1));
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  CHECK_EQ(handled, 1); /* before the call returns */
  CHECK_EQ(handled_tid, getpid());
}

static int got[4];

static void *signal_thread(void *argument) {
  sigset_t set = set_of(SIGTERM, SIGHUP);
  int sig;
  for (;;) {
    OK(sigwait(&set, &sig));
    if (sig == SIGTERM) return argument;
    __atomic_add_fetch(&got[0], 1, __ATOMIC_SEQ_CST);
  }
}

static void dedicated(void) {
  pthread_t others[THREADS];
  sigset_t set = set_of(SIGTERM, SIGHUP);
  stop = 0;
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  pthread_t thread = start(signal_thread, 0);
  for (int i = 0; i < THREADS; i++) others[i] = start(blocked_thread, 0);
  for (int i = 1; i <= 10; i++) {
    OK(kill(getpid(), SIGHUP));
    while (__atomic_load_n(&got[0], __ATOMIC_SEQ_CST) < i) usleep(100);
  }
  OK(kill(getpid(), SIGTERM));
  join(thread);
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < THREADS; i++) join(others[i]);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
}

static void *timer_target(void *argument) {
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
  struct itimerspec in_10 = {.it_value.tv_nsec = 10000000};
  timer_t timer;
  event.sigev_notify_thread_id = gettid();
  OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
  sigset_t set = set_of(SIGRTMIN, 0);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  OK(timer_settime(timer, 0, &in_10, 0));
  siginfo_t info;
  CHECK_EQ(sigwaitinfo(&set, &info), SIGRTMIN);
  CHECK_EQ(info.si_code, SI_TIMER);
  OK(timer_delete(timer));
  return argument;
}

static void on_timer(union sigval value) {
  CHECK_EQ(value.sival_int, 77);
  __atomic_add_fetch(&got[1], 1, __ATOMIC_SEQ_CST);
}

static void *sleeps_on(void *argument) {
  sleep_ms(1);
  while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) usleep(300);
  return argument;
}

static void timers(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  pthread_t others[THREADS];
  stop = handled = 0;
  OK(sigaction(SIGALRM, &action, 0));
  for (int i = 0; i < THREADS; i++) others[i] = start(sleeps_on, 0);
  struct itimerval periodic = {.it_value.tv_usec = 5000, .it_interval.tv_usec = 5000}, off = {0};
  OK(setitimer(ITIMER_REAL, &periodic, 0));
  for (int i = 0; i < 20000 && __atomic_load_n(&handled, __ATOMIC_SEQ_CST) < 10; i++) usleep(500);
  OK(setitimer(ITIMER_REAL, &off, 0));
  CHECK(__atomic_load_n(&handled, __ATOMIC_SEQ_CST) >= 10);
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
  struct itimerspec in_10 = {.it_value.tv_nsec = 10000000};
  timer_t timer;
  handled = 0;
  OK(timer_create(CLOCK_REALTIME, &event, &timer));
  OK(timer_settime(timer, 0, &in_10, 0));
  wait_handled(1);
  OK(timer_delete(timer));
  event = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer, .sigev_value.sival_int = 77};
  OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
  OK(timer_settime(timer, 0, &in_10, 0));
  for (int i = 0; i < 20000 && !__atomic_load_n(&got[1], __ATOMIC_SEQ_CST); i++) usleep(500);
  CHECK_EQ(got[1], 1);
  OK(timer_delete(timer));
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < THREADS; i++) join(others[i]);
  for (int i = 0; i < THREADS; i++) others[i] = start(timer_target, 0);
  for (int i = 0; i < THREADS; i++) join(others[i]);
}

static void children(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  handled = 0;
  OK(sigaction(SIGCHLD, &action, 0));
  for (int i = 1; i <= 3; i++) {
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(i);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(WEXITSTATUS(status), i);
    wait_handled(i);
  }
  action.sa_handler = SIG_DFL;
  OK(sigaction(SIGCHLD, &action, 0));
}

static void *ignores(void *argument) {
  OK(kill(getpid(), SIGHUP));
  OK(raise(SIGHUP));
  OK(kill(getpid(), SIGWINCH)); /* ignored by default */
  return argument;
}

static volatile sig_atomic_t by_id;

static void on_signal_by_id(int number) {
  (void)number;
  by_id++;
}

static void *by_own_id(void *argument) {
  OK(kill(syscall(SYS_gettid), 0));
  OK(kill(syscall(SYS_gettid), SIGUSR2)); /* the process that the thread belongs to */
  while (!by_id) sleep_ms(1);
  return argument;
}

/* A signal that its sender alone lets through has been handled when the call that sent it returns. */
static void before_return(void) {
  pthread_t others[THREADS];
  sigset_t set = set_of(SIGUSR1, 0);
  char name[30];
  snprintf(name, sizeof name, "/proc/%d", getpid());
  int folder = open(name, O_DIRECTORY | O_CLOEXEC), process = (int)syscall(SYS_pidfd_open, getpid(), 0);
  CHECK(folder >= 0 && process >= 0);
  stop = handled = 0;
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  for (int i = 0; i < THREADS; i++) others[i] = start(blocked_thread, 0);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  for (int i = 0; i < 300; i += 3) {
    OK(syscall(SYS_pidfd_send_signal, folder, SIGUSR1, 0, 0));
    CHECK_EQ(handled, i + 1);
    OK(syscall(SYS_pidfd_send_signal, process, SIGUSR1, 0, 0));
    CHECK_EQ(handled, i + 2);
    OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(handled, i + 3);
    OK(syscall(SYS_pidfd_send_signal, process, 0, 0, 0));
    if (i % 30 == 0) sleep_ms(1); /* on another worker, perhaps */
  }
  FAILS(syscall(SYS_pidfd_send_signal, 0, SIGUSR1, 0, 0), EBADF);
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < THREADS; i++) join(others[i]);
  close(folder);
  close(process);
}

int main(void) {
  struct sigaction action = {.sa_handler = on_signal};
  OK(sigaction(SIGUSR1, &action, 0));
  one_open_thread();
  puts("ok the thread that lets it through");
  pending_for_all();
  puts("ok pending");
  dedicated();
  puts("ok a thread for signals");
  before_return();
  puts("ok before the call returns");
  timers();
  puts("ok timers");
  children();
  puts("ok SIGCHLD");
  signal(SIGHUP, SIG_IGN);
  join(start(ignores, 0));
  ignores(0);
  puts("ok ignored");
  struct sigaction old;
  OK(sigaction(SIGUSR1, 0, &old));
  CHECK(old.sa_handler == on_signal);
  OK(kill(0, 0));
  FAILS(kill(getpid(), 99), EINVAL);
  signal(SIGUSR2, on_signal_by_id);
  join(start(by_own_id, 0));
  CHECK_EQ(by_id, 1);
  puts("ok the rest");
}
