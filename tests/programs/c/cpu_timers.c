/* Asserts timers on threads' CPU clocks: one expires when its thread has used so much, wherever it ran and whatever others
   do, and not before; it repeats, tells what is left, and sends to a thread, to the process, to a function or nowhere. */
#include "check.h"

static int stop, go_on;
static volatile uint64_t work;
static timer_t periodic;
static clockid_t clocks[4];
static int64_t at[64];
static int count, by_function, taken_by, of_sleeper;

static int get(int *what) { return __atomic_load_n(what, __ATOMIC_SEQ_CST); }
static void set(int *what, int to) { __atomic_store_n(what, to, __ATOMIC_SEQ_CST); }

/* It moves from one CPU or worker to another: it sleeps now and then. */
static void *computes(void *argument) {
  while (!get(&stop)) {
    int64_t until = now_ns(CLOCK_THREAD_CPUTIME_ID) + 3000000;
    while (now_ns(CLOCK_THREAD_CPUTIME_ID) < until)
      for (int i = 0; i < 1000; i++) work += (uint64_t)i;
    sleep_ms(1);
  }
  return argument;
}

static void *sleeps(void *argument) {
  while (!get(&stop)) sleep_ms(5);
  return argument;
}

static void *ends(void *argument) {
  *(pid_t *)argument = gettid();
  while (!get(&go_on)) sleep_ms(1);
  return 0;
}

static void expires(int signal, siginfo_t *info, void *context) {
  CHECK_EQ(info->si_code, SI_TIMER);
  CHECK_EQ(info->si_value.sival_int, 17);
  int n = get(&count);
  if (n < 64) at[n] = now_ns(clocks[0]);
  set(&count, n + 1 + timer_getoverrun(periodic));
  (void)signal;
  (void)context;
}

static void to_thread(int signal) {
  set(&taken_by, gettid());
  (void)signal;
}

static void sleepers(int signal) {
  set(&of_sleeper, 1);
  (void)signal;
}

static void function(union sigval value) {
  CHECK_EQ(value.sival_int, 18);
  set(&by_function, 1);
}

static timer_t timer(clockid_t clock, struct sigevent event, int64_t ns, int64_t interval) {
  timer_t t;
  OK(timer_create(clock, &event, &t));
  struct itimerspec s = {{interval / 1000000000, interval % 1000000000}, {ns / 1000000000, ns % 1000000000}};
  OK(timer_settime(t, 0, &s, 0));
  return t;
}

static int64_t left(timer_t t) {
  struct itimerspec s;
  OK(timer_gettime(t, &s));
  return s.it_value.tv_sec * 1000000000LL + s.it_value.tv_nsec;
}

static void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler};
  OK(sigaction(signal, &action, 0));
}

/* A timer of main's own, which computes. */
static void own(void) {
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 2};
  event._sigev_un._tid = gettid();
  handle(SIGRTMIN + 2, to_thread);
  int64_t from = now_ns(CLOCK_THREAD_CPUTIME_ID);
  timer_t t = timer(CLOCK_THREAD_CPUTIME_ID, event, 20000000, 0);
  while (!get(&taken_by)) work++;
  CHECK_EQ(taken_by, gettid());
  CHECK(now_ns(CLOCK_THREAD_CPUTIME_ID) >= from + 20000000);
  CHECK_EQ(left(t), 0);
  OK(timer_delete(t));
}

static void of_the_ended(void) {
  pid_t tid = 0;
  pthread_t thread = start(ends, &tid);
  OK(pthread_getcpuclockid(thread, &clocks[2]));
  struct sigevent none = {.sigev_notify = SIGEV_NONE};
  timer_t t = timer(clocks[2], none, 1000000000, 0);
  set(&go_on, 1);
  join(thread);
  gone(tid);
  while (left(t)) sched_yield();
  struct itimerspec s = {{0, 0}, {1, 0}};
  FAILS(timer_settime(t, 0, &s, 0), ESRCH);
  OK(timer_delete(t));
  FAILS(timer_create(clocks[2], &none, &t), EINVAL);
}

int main(void) {
  join(start(ends, &(pid_t){go_on = 1}));
  set(&go_on, 0);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) threads[i] = start(i == 1 ? sleeps : computes, 0);
  for (int i = 0; i < 2; i++) OK(pthread_getcpuclockid(threads[i], &clocks[i]));

  struct sigaction action = {.sa_sigaction = expires, .sa_flags = SA_SIGINFO | SA_RESTART};
  OK(sigaction(SIGRTMIN, &action, 0));
  handle(SIGRTMIN + 1, sleepers);
  struct sigevent event = {.sigev_signo = SIGRTMIN, .sigev_value.sival_int = 17};
  struct sigevent other = {.sigev_signo = SIGRTMIN + 1};
  struct sigevent call = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = 18};
  call.sigev_notify_function = function;
  struct sigevent none = {.sigev_notify = SIGEV_NONE};

  int64_t from = now_ns(clocks[0]);
  timer_t of_idle = timer(clocks[1], other, 2000000000, 0);
  timer_t calling = timer(clocks[0], call, 30000000, 0);
  timer_t quiet = timer(clocks[0], none, 1000000000000, 0);
  periodic = timer(clocks[0], event, 20000000, 10000000);
  int64_t rest = left(quiet);
  CHECK(rest <= 1000000000000 && rest > 990000000000);
  while (get(&count) < 10) sleep_ms(5);
  for (int i = 0; i < 10; i++)
    if (at[i]) CHECK(at[i] >= from + 20000000 + i * 10000000LL);
  while (!get(&by_function)) sleep_ms(5);
  CHECK(now_ns(clocks[0]) >= from + 30000000);
  CHECK(left(quiet) < rest);
  CHECK(left(of_idle) > 0 && !get(&of_sleeper));

  /* Set again, to a time: what was before is told. */
  struct itimerspec s = {{0, 0}, {0, 0}}, before;
  OK(timer_settime(periodic, 0, &s, &before));
  CHECK_EQ(before.it_interval.tv_nsec, 10000000);
  CHECK(before.it_value.tv_sec == 0 && before.it_value.tv_nsec > 0 && before.it_value.tv_nsec <= 10000000);
  CHECK_EQ(left(periodic), 0);
  sleep_ms(20);
  int n = get(&count);
  from = now_ns(clocks[0]) + 15000000;
  s.it_value = (struct timespec){from / 1000000000, from % 1000000000};
  OK(timer_settime(periodic, TIMER_ABSTIME, &s, 0));
  while (get(&count) == n) sleep_ms(1);
  CHECK(now_ns(clocks[0]) >= from);
  CHECK_EQ(left(periodic), 0);
  s.it_value.tv_nsec = 1000000000;
  FAILS(timer_settime(periodic, 0, &s, 0), EINVAL);

  /* Ignored for a while. */
  n = get(&count);
  signal(SIGRTMIN, SIG_IGN);
  s = (struct itimerspec){{0, 10000000}, {0, 1000000}};
  OK(timer_settime(periodic, 0, &s, 0));
  sleep_ms(50);
  OK(sigaction(SIGRTMIN, &action, 0));
  while (get(&count) == n) sleep_ms(1);
  OK(timer_delete(periodic));

  own();
  of_the_ended();
  CHECK(!get(&of_sleeper));
  set(&stop, 1);
  for (int i = 0; i < 3; i++) join(threads[i]);
  OK(timer_delete(of_idle));
  OK(timer_delete(calling));
  OK(timer_delete(quiet));
  puts("ok timers");
}
