/* Asserts what becomes of pending signals: those sent before the first thread exists stay the main thread's or the
   process's; real-time signals are queued, each with its value, however many and whoever sends them, or refused with
   EAGAIN; those of the process itself come in order; each of several waiting threads gets one; a timer has one signal
   pending and counts the rest. */
#include "check.h"

static sigset_t set_of(int a, int b) {
  sigset_t set;
  sigemptyset(&set);
  if (a) sigaddset(&set, a);
  if (b) sigaddset(&set, b);
  return set;
}

static void *looks(void *argument) {
  sigset_t *pending = argument;
  OK(sigpending(pending));
  return 0;
}

static void before_the_first_thread(void) {
  sigset_t set = set_of(SIGUSR1, SIGUSR2), before, pending;
  struct timespec now = {0, 0};
  siginfo_t info;
  sigaddset(&set, SIGRTMIN);
  OK(sigprocmask(SIG_BLOCK, &set, &before));
  OK(raise(SIGUSR1)); /* for main */
  OK(kill(getpid(), SIGUSR2)); /* for the process */
  for (int i = 0; i < 50; i++) OK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}));
  join(start(looks, &pending));
  CHECK(!sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGUSR2) && sigismember(&pending, SIGRTMIN));
  OK(sigpending(&pending));
  CHECK(sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGUSR2));
  CHECK_EQ(sigtimedwait(&set, &info, &now), SIGUSR1);
  CHECK_EQ(sigtimedwait(&set, &info, &now), SIGUSR2);
  for (int i = 0; i < 50; i++) {
    CHECK_EQ(sigtimedwait(&set, &info, &now), SIGRTMIN);
    CHECK_EQ(info.si_value.sival_int, i);
  }
  FAILS(sigtimedwait(&set, &info, &now), EAGAIN);
  OK(sigprocmask(SIG_SETMASK, &before, 0));
}

static volatile int next_value, handled;

static void in_order(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)context;
  CHECK_EQ(info->si_value.sival_int, next_value);
  next_value++;
  handled++;
}

/* As many as there is room for; all of those, and no other, arrive. */
static void until_refused(void) {
  struct sigaction action = {.sa_sigaction = in_order, .sa_flags = SA_SIGINFO};
  sigset_t set = set_of(SIGRTMIN + 1, 0);
  int sent = 0;
  OK(sigaction(SIGRTMIN + 1, &action, 0));
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  while (sent < 150000 && !sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = sent})) sent++;
  CHECK(sent == 150000 || errno == EAGAIN);
  CHECK(sent > 100);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  CHECK_EQ(handled, sent);
}

static volatile int over;

static void *in_and_out(void *argument) {
  while (!over) {
    getppid();
    usleep(50);
  }
  return argument;
}

static volatile char seen[500];

static void each_once(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)context;
  int value = info->si_value.sival_int;
  CHECK(value >= 0 && value < 500 && !seen[value]);
  seen[value] = 1;
  handled++;
}

static void from_another_process(void) {
  struct sigaction action = {.sa_sigaction = each_once, .sa_flags = SA_SIGINFO};
  pthread_t threads[3];
  sigset_t set = set_of(SIGRTMIN + 1, 0);
  int status;
  handled = over = 0;
  OK(sigaction(SIGRTMIN + 1, &action, 0));
  OK(pthread_sigmask(SIG_BLOCK, &set, 0)); /* main alone takes them */
  for (int i = 0; i < 3; i++) threads[i] = start(in_and_out, 0);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    for (int i = 0; i < 500; i++)
      while (sigqueue(getppid(), SIGRTMIN + 1, (union sigval){.sival_int = i})) CHECK_EQ(errno, EAGAIN);
    _exit(0);
  }
  while (handled < 500) {
    int fd = open("/dev/null", O_RDONLY); /* in the kernel most of the time */
    if (fd >= 0) close(fd);
  }
  while (waitpid(pid, &status, 0) < 0) CHECK_EQ(errno, EINTR);
  CHECK_EQ(status, 0);
  over = 1;
  for (int i = 0; i < 3; i++) join(threads[i]);
}

static int ready;

static void *takes_one(void *argument) {
  sigset_t set = set_of(SIGRTMIN, 0);
  siginfo_t info;
  __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
  while (sigwaitinfo(&set, &info) < 0) CHECK_EQ(errno, EINTR);
  return argument;
}

/* None is left with a thread that has got another and is gone. */
static void one_each(void) {
  enum { WAITERS = 6 };
  sigset_t set = set_of(SIGRTMIN, 0);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  for (int round = 0; round < 50; round++) {
    pthread_t threads[WAITERS];
    ready = 0;
    for (int i = 0; i < WAITERS; i++) threads[i] = start(takes_one, 0);
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < WAITERS) sched_yield();
    if (round % 2) usleep(500);
    for (int i = 0; i < WAITERS; i++) OK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}));
    for (int i = 0; i < WAITERS; i++) join(threads[i]);
  }
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
}

static void *overruns(void *argument) {
  int sig = (int)(long)argument;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = sig};
  struct itimerspec each = {{0, 1000000}, {0, 1000000}};
  sigset_t set = set_of(sig, 0);
  siginfo_t info;
  timer_t timer;
  OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
  OK(timer_settime(timer, 0, &each, 0));
  sleep_ms(200);
  int expired = 0, taken = 0;
  while (expired < 190) {
    CHECK_EQ(sigwaitinfo(&set, &info), sig);
    CHECK_EQ(info.si_code, SI_TIMER);
    CHECK_EQ(timer_getoverrun(timer), info.si_overrun);
    expired += 1 + info.si_overrun;
    taken++;
  }
  CHECK(taken < 150); /* not one by one */
  OK(timer_delete(timer));
  return 0;
}

static void timers(void) {
  sigset_t set = set_of(SIGRTMIN, SIGUSR1);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  overruns((void *)(long)SIGRTMIN);
  join(start(overruns, (void *)(long)SIGUSR1));
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
  timer_t kept[40], timer;
  for (int i = 0; i < 40; i++) OK(timer_create(CLOCK_MONOTONIC, &event, &kept[i]));
  for (int i = 0; i < 5000; i++) { /* numbers are used up, not places */
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    OK(timer_delete(timer));
  }
  for (int i = 0; i < 40; i++) OK(timer_delete(kept[i]));
  /* The signals stay blocked: one of a timer that was deleted may still be pending. */
}

int main(void) {
  before_the_first_thread();
  puts("ok before the first thread");
  until_refused();
  puts("ok as many as fit");
  from_another_process();
  puts("ok from another process");
  one_each();
  puts("ok one each");
  timers();
  puts("ok timers");
  char room[65536];
  stack_t odd = {.ss_sp = room, .ss_size = sizeof room, .ss_flags = SS_DISABLE | SS_ONSTACK};
  FAILS(sigaltstack(&odd, 0), EINVAL);
  puts("ok the rest");
}
