/* Asserts signals sent to one thread: the handler runs on that thread with its identity, whatever the thread is doing;
   masks are each thread's own and inherited, blocked signals stay pending for that thread; raise, pthread_sigqueue,
   nesting, sa_mask, sigwait and its kin, an alternate stack per thread. */
#include "check.h"
#include <semaphore.h>

enum { THREADS = 12, ROUNDS = 20 };

/* Volatile: the compiler believes that raise and pthread_kill call nothing in this file. */
static __thread volatile int own, hits, on_stack;
static __thread char *alternate;
static pthread_t selves[THREADS];
static int total, stop;
static sem_t ready;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void on_usr1(int sig, siginfo_t *info, void *context) {
  int saved = errno;
  CHECK_EQ(sig, SIGUSR1);
  CHECK_EQ(info->si_pid, getpid());
  CHECK_EQ(info->si_code, SI_TKILL);
  CHECK(context != 0);
  CHECK(own > 0 && pthread_equal(selves[own - 1], pthread_self()));
  hits++;
  __atomic_add_fetch(&total, 1, __ATOMIC_SEQ_CST);
  errno = saved;
}

static void install(int sig, void (*handler)(int, siginfo_t *, void *), int flags) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
  sigemptyset(&action.sa_mask);
  OK(sigaction(sig, &action, 0));
}

static sigset_t set_of(int sig) {
  sigset_t set;
  sigemptyset(&set);
  if (sig) sigaddset(&set, sig);
  return set;
}

/* Each kind of thread is somewhere else when its signals come. */
static void *target(void *argument) {
  int id = (int)(long)argument;
  own = id + 1;
  selves[id] = pthread_self();
  sem_post(&ready);
  volatile double x = 1.5;
  while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
    struct timespec t = {0, 3000000}, until;
    switch (id % 6) {
      case 0: /* computing, no calls */
        for (int i = 0; i < 100000; i++) x = x * 1.0000001;
        break;
      case 1: sched_yield(); break;
      case 2: CHECK(nanosleep(&t, 0) == 0 || errno == EINTR); break;
      case 3:
        OK(pthread_mutex_lock(&mutex)); /* contended: signals do not get it out of there */
        usleep(200);
        OK(pthread_mutex_unlock(&mutex));
        break;
      case 4:
        OK(pthread_mutex_lock(&mutex));
        until = in_ms(CLOCK_REALTIME, 3);
        int result = pthread_cond_timedwait(&cond, &mutex, &until);
        CHECK(result == 0 || result == ETIMEDOUT);
        OK(pthread_mutex_unlock(&mutex));
        break;
      case 5: free(malloc(100 + id)); break;
    }
  }
  return (void *)(long)hits;
}

static void everywhere(void) {
  pthread_t threads[THREADS];
  install(SIGUSR1, on_usr1, SA_RESTART);
  sem_init(&ready, 0, 0);
  for (long i = 0; i < THREADS; i++) threads[i] = start(target, (void *)i);
  for (int i = 0; i < THREADS; i++) sem_wait(&ready);
  for (int round = 1; round <= ROUNDS; round++) {
    for (int i = 0; i < THREADS; i++) OK(pthread_kill(threads[i], SIGUSR1));
    while (__atomic_load_n(&total, __ATOMIC_SEQ_CST) < round * THREADS) usleep(200); /* each is handled once */
  }
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < THREADS; i++) CHECK_EQ((long)join(threads[i]), ROUNDS);
}

static int to_self(int sig) { return pthread_kill(pthread_self(), sig); }

static __thread volatile int order, first, second, depth, most_depth;
static void on_first(int sig, siginfo_t *info, void *context) {
  (void)info, (void)context, (void)sig;
  first = ++order;
}
static void on_second(int sig, siginfo_t *info, void *context) {
  (void)info, (void)context, (void)sig;
  OK(to_self(SIGRTMIN)); /* blocked by sa_mask until this returns */
  CHECK_EQ(first, 0);
  second = ++order;
}
static void on_nested(int sig, siginfo_t *info, void *context) {
  (void)info, (void)context;
  if (++depth > most_depth) most_depth = depth;
  if (depth < 3) OK(to_self(sig)); /* SA_NODEFER: at once */
  depth--;
}
static __thread volatile int value;
static void on_value(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)context;
  CHECK_EQ(info->si_code, SI_QUEUE);
  value = value * 10 + info->si_value.sival_int;
}

static void *masks(void *argument) {
  sigset_t set = set_of(SIGUSR1), now;
  own = (int)(long)argument + 1;
  selves[own - 1] = pthread_self();
  hits = 0;
  OK(raise(SIGUSR1));
  CHECK_EQ(hits, 1);
  OK(to_self(SIGUSR1));
  CHECK_EQ(hits, 2);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  OK(to_self(SIGUSR1));
  OK(to_self(SIGUSR1)); /* standard signals do not queue */
  sched_yield();
  usleep(100);
  CHECK_EQ(hits, 2);
  OK(sigpending(&now));
  CHECK(sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2));
  OK(pthread_sigmask(SIG_UNBLOCK, &set, &now));
  CHECK(sigismember(&now, SIGUSR1));
  CHECK_EQ(hits, 3);
  OK(sigpending(&now));
  CHECK(!sigismember(&now, SIGUSR1));
  order = first = second = 0;
  OK(to_self(SIGRTMIN + 1));
  CHECK(second == 1 && first == 2);
  OK(pthread_sigmask(SIG_BLOCK, 0, &now));
  for (int s = 1; s < 32; s++) CHECK_EQ(sigismember(&now, s), 0);
  OK(to_self(SIGRTMIN + 2));
  CHECK_EQ(most_depth, 3);
  set = set_of(SIGRTMIN + 3); /* real-time signals queue, in order, with their values */
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  for (int i = 1; i <= 4; i++) OK(pthread_sigqueue(pthread_self(), SIGRTMIN + 3, (union sigval){.sival_int = i}));
  CHECK_EQ(value, 0);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  CHECK_EQ(value, 1234);
  sigset_t all;
  sigfillset(&all);
  OK(pthread_sigmask(SIG_SETMASK, &all, 0));
  OK(pthread_sigmask(SIG_BLOCK, 0, &now));
  CHECK(!sigismember(&now, SIGKILL) && !sigismember(&now, SIGSTOP) && sigismember(&now, SIGTERM));
  return 0;
}

static void *inherited(void *argument) {
  sigset_t now;
  OK(pthread_sigmask(SIG_BLOCK, 0, &now));
  for (int s = 1; s < 32; s++)
    if (s != SIGKILL && s != SIGSTOP) CHECK_EQ(sigismember(&now, s), s == *(int *)argument);
  OK(sigpending(&now));
  CHECK(!sigismember(&now, *(int *)argument)); /* pending ones are not */
  return 0;
}

static void *inherits(void *argument) {
  int sig = (long)argument % 2 ? SIGUSR1 : SIGTERM;
  sigset_t set = set_of(sig);
  OK(pthread_sigmask(SIG_SETMASK, &set, 0));
  OK(to_self(sig));
  join(start(inherited, &sig));
  struct timespec zero = {0, 0};
  CHECK_EQ(sigtimedwait(&set, 0, &zero), sig); /* take it back */
  return 0;
}

static int at, waiting_tid;

static void *waits(void *argument) {
  sigset_t set = set_of(SIGUSR2), none = set_of(0);
  siginfo_t info;
  int sig;
  own = (int)(long)argument + 1;
  selves[own - 1] = pthread_self();
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  OK(to_self(SIGUSR2));
  OK(sigwait(&set, &sig)); /* pending already */
  CHECK_EQ(sig, SIGUSR2);
  struct timespec t = {0, 30000000}, zero = {0, 0};
  FAILS(sigtimedwait(&set, &info, &zero), EAGAIN);
  int64_t from = now_ms();
  FAILS(sigtimedwait(&set, &info, &t), EAGAIN);
  TOOK_ABOUT(now_ms() - from, 30);
  t.tv_sec = 30;
  waiting_tid = gettid();
  for (int i = 0; i < 3; i++) {
    __atomic_add_fetch(&at, 1, __ATOMIC_SEQ_CST); /* now the other thread sends */
    if (i == 0) CHECK_EQ(sigwaitinfo(&set, &info), SIGUSR2);
    if (i == 1) CHECK_EQ(sigtimedwait(&set, &info, &t), SIGUSR2);
    if (i < 2) CHECK(info.si_signo == SIGUSR2 && info.si_pid == getpid());
    if (i == 2) FAILS(sigsuspend(&none), EINTR);
  }
  CHECK_EQ(hits, 1); /* by sigsuspend */
  sigset_t now;
  OK(pthread_sigmask(SIG_BLOCK, 0, &now));
  CHECK(sigismember(&now, SIGUSR2)); /* which put the mask back */
  __atomic_add_fetch(&at, 1, __ATOMIC_SEQ_CST);
  OK(pthread_sigmask(SIG_SETMASK, &none, 0));
  while (hits < 2) sleep_ms(1);
  return 0;
}

static void on_usr2(int sig, siginfo_t *info, void *context) {
  CHECK_EQ(gettid(), waiting_tid);
  on_usr1(sig == SIGUSR2 ? SIGUSR1 : 0, info, context);
}

static void *pauser(void *argument) {
  own = (int)(long)argument + 1;
  selves[own - 1] = pthread_self();
  sem_post(&ready);
  FAILS(pause(), EINTR);
  CHECK(hits >= 1);
  return 0;
}

static void on_alternate(int sig, siginfo_t *info, void *context) {
  char here;
  (void)sig, (void)info, (void)context;
  on_stack = &here >= alternate && &here < alternate + 65536;
  stack_t now;
  OK(sigaltstack(0, &now));
  CHECK_EQ(now.ss_flags & SS_ONSTACK, SS_ONSTACK);
  FAILS(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, 0), EPERM);
  sched_yield(); /* other threads handle theirs meanwhile */
  usleep(100);
  CHECK(on_stack);
}

static void *alternates(void *argument) {
  stack_t mine = {.ss_sp = alternate = malloc(65536), .ss_size = 65536}, now;
  OK(sigaltstack(0, &now));
  CHECK_EQ(now.ss_flags, SS_DISABLE); /* not inherited */
  OK(sigaltstack(&mine, 0));
  for (int i = 0; i < 10; i++) {
    on_stack = 0;
    OK(to_self(SIGRTMIN + 4));
    CHECK(on_stack);
    OK(sigaltstack(0, &now));
    CHECK(now.ss_sp == alternate && now.ss_flags == 0 && now.ss_size == 65536);
    usleep(100);
  }
  mine.ss_flags = SS_DISABLE;
  OK(sigaltstack(&mine, 0));
  OK(to_self(SIGRTMIN + 5));
  CHECK(!on_stack);
  free(alternate);
  return argument;
}
static void on_ordinary(int sig, siginfo_t *info, void *context) {
  char here;
  (void)sig, (void)info, (void)context;
  on_stack = &here >= alternate && &here < alternate + 65536;
}

static void each(void *(*body)(void *)) {
  pthread_t threads[THREADS];
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
}

int main(void) {
  everywhere();
  puts("ok handled on the thread");
  install(SIGRTMIN, on_first, 0);
  struct sigaction second_action = {.sa_sigaction = on_second, .sa_flags = SA_SIGINFO};
  second_action.sa_mask = set_of(SIGRTMIN);
  OK(sigaction(SIGRTMIN + 1, &second_action, 0));
  install(SIGRTMIN + 2, on_nested, SA_NODEFER);
  install(SIGRTMIN + 3, on_value, 0);
  each(masks);
  puts("ok masks");
  each(inherits);
  puts("ok inheritance");
  install(SIGUSR2, on_usr2, 0);
  pthread_t thread = start(waits, (void *)0L);
  for (int i = 1; i <= 4; i++) {
    while (__atomic_load_n(&at, __ATOMIC_SEQ_CST) < i) sleep_ms(1);
    sleep_ms(10);
    OK(pthread_kill(thread, SIGUSR2));
  }
  join(thread);
  puts("ok sigwait, sigtimedwait, sigsuspend");
  pthread_t threads[THREADS];
  for (long i = 0; i < THREADS; i++) threads[i] = start(pauser, (void *)i);
  for (int i = 0; i < THREADS; i++) sem_wait(&ready);
  for (int i = 0; i < THREADS; i++)
    while (pthread_tryjoin_np(threads[i], 0) == EBUSY) { /* again, should one have come before its pause */
      OK(pthread_kill(threads[i], SIGUSR1));
      sleep_ms(5);
    }
  puts("ok pause");
  install(SIGRTMIN + 4, on_alternate, SA_ONSTACK);
  install(SIGRTMIN + 5, on_ordinary, SA_ONSTACK);
  each(alternates);
  puts("ok alternate stacks");
}
