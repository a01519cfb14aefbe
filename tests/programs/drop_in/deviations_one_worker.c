/* What abi/COMPAT.md says is the kernel thread's and not the thread's, where there is one worker: another thread finds the
   children, the memory policy and the rights by protection keys of this one, and uses up its CPU timer made before the first
   thread. Mostly: a worker that the kernel keeps waiting hands its work on. For Heddle only. */
#include "../c/check.h"

#ifndef __WNOTHREAD
#define __WNOTHREAD 0x20000000
#endif

enum { TIMER = 40, TRIES = 50 }; /* a real-time signal */

static pthread_barrier_t barrier;

static void *computes(void *argument) {
  sigset_t set;
  int64_t end = now_ms() + 20000;
  do {
    for (volatile int i = 0; i < 1000000; i++) continue;
    OK(sigpending(&set));
  } while (!sigismember(&set, TIMER) && now_ms() < end);
  CHECK(sigismember(&set, TIMER));
  return argument;
}

/* Main sleeps meanwhile, so its own CPU time stands still. */
static void timers(timer_t timer) {
  sigset_t set = set_with(TIMER);
  join(start(computes, 0));
  CHECK_EQ(sigwaitinfo(&set, 0), TIMER);
  OK(timer_delete(timer));
}

static void *finds_child(void *argument) {
  (void)argument;
  int pid;
  while ((pid = waitpid(-1, 0, __WNOTHREAD | WNOHANG)) == 0) sleep_ms(1);
  return (void *)(intptr_t)pid;
}

static void children(void) {
  int found = 0;
  for (int i = 0; i < TRIES && !found; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(0);
    found = (intptr_t)join(start(finds_child, 0)) == pid;
    if (!found) CHECK_EQ(waitpid(pid, 0, 0), pid);
  }
  CHECK(found);
}

enum { PREFERRED = 1 };

static void *policy(void *argument) {
  (void)argument;
  int mode = -1;
  OK(syscall(SYS_get_mempolicy, &mode, 0, 0, 0, 0));
  return (void *)(intptr_t)mode;
}

static void memory_policies(void) {
  unsigned long node = 1;
  int found = 0;
  if (syscall(SYS_set_mempolicy, PREFERRED, &node, 64)) return;
  for (int i = 0; i < TRIES && !found; i++) {
    OK(syscall(SYS_set_mempolicy, PREFERRED, &node, 64));
    found = (intptr_t)join(start(policy, 0)) == PREFERRED;
    OK(syscall(SYS_set_mempolicy, 0, 0, 0));
  }
  CHECK(found);
}

static uint32_t rights(void) {
  uint32_t value, high;
  __asm__ volatile("rdpkru" : "=a"(value), "=d"(high) : "c"(0));
  return value;
}

static void set_rights(uint32_t value) { __asm__ volatile("wrpkru" ::"a"(value), "c"(0), "d"(0) : "memory"); }

static volatile int over;

static void *tells_rights(void *argument) {
  for (;;) {
    pthread_barrier_wait(&barrier);
    if (over) return argument;
    *(volatile uint32_t *)argument = rights();
    pthread_barrier_wait(&barrier);
  }
}

static void protection_keys(void) {
  uint32_t a, b, c, d, own, last = 3u << 30;
  __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
  if (!(c & 1 << 4)) return; /* OSPKE */
  own = rights();
  static uint32_t theirs;
  pthread_t other = start(tells_rights, &theirs);
  int found = 0;
  for (int i = 0; i < TRIES && !found; i++) {
    set_rights(own ^ last);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    set_rights(own);
    found = theirs == (own ^ last);
  }
  CHECK(found);
  over = 1;
  pthread_barrier_wait(&barrier);
  join(other);
}

int main(void) {
  sigset_t set = set_with(TIMER);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  OK(pthread_barrier_init(&barrier, 0, 2));
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = TIMER};
  struct itimerspec soon = {.it_value = {0, 50000000}};
  timer_t timer;
  OK(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer));
  OK(timer_settime(timer, 0, &soon, 0));
  timers(timer);
  children();
  memory_policies();
  protection_keys();
  puts("ok");
}
