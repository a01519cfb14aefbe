/* Asserts that a handler finds its way back through the call that its signal came into: a wait, a signal that the thread
   sends itself as abort() does, nested ones; before there is a thread and after, in main and in others. Once there are
   threads also through calls that the program makes with instructions of its own. */
#include "check.h"
#include <execinfo.h>
#include <sys/time.h>

enum { SIZE = 256 };

static int pipe_ends[2];
static void *inner;
static volatile int found, nested;

__attribute__((noinline, noclone, aligned(SIZE))) static int reads(void) {
  char c;
  int r = (int)read(pipe_ends[0], &c, 1);
  __asm__ volatile("" : : : "memory");
  return r;
}

__attribute__((noinline, noclone, aligned(SIZE))) static int selects(void) {
  int r = (int)syscall(SYS_pselect6, 0, 0, 0, 0, 0, 0);
  __asm__ volatile("" : : : "memory");
  return r;
}

__attribute__((noinline, noclone, aligned(SIZE))) static int raises(void) {
  int r = raise(SIGUSR1);
  __asm__ volatile("" : : : "memory");
  return r;
}

/* By an instruction of the program's, which is far from all libraries. */
__attribute__((noinline, noclone, aligned(SIZE))) static int raises_itself(void) {
  long r = SYS_tgkill;
  __asm__ volatile("syscall" : "+a"(r) : "D"((long)getpid()), "S"((long)gettid()), "d"((long)SIGUSR1) : "rcx", "r11", "memory");
  __asm__ volatile("" : : : "memory");
  return (int)r;
}

__attribute__((noinline, noclone, aligned(SIZE))) static int outer(int (*call)(void)) {
  inner = (void *)call;
  int r = call();
  __asm__ volatile("" : : : "memory");
  return r;
}

/* Whether the trace leads through `inner`, then `outer`. */
static int leads_out(void) {
  void *trace[100], *callers[] = {inner, (void *)outer};
  int n = backtrace(trace, 100), seen = 0;
  for (int i = 0; i < n && seen < 2; i++)
    if ((char *)trace[i] > (char *)callers[seen] && (char *)trace[i] < (char *)callers[seen] + SIZE) seen++;
  return seen == 2;
}

/* One that comes before the wait finds nothing; the next one will. */
static void alarmed(int signal) {
  found += inner && leads_out();
  (void)signal;
}

static void raised(int signal) {
  CHECK(leads_out());
  if (signal == SIGUSR1) raise(SIGUSR2);
  nested++;
}

static void *rounds(void *argument) {
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  nested = 0;
  OK(outer(raises));
  CHECK_EQ(nested, 2);
  if (argument) {
    OK(outer(raises_itself));
    CHECK_EQ(nested, 4);
  }
  int (*waits[])(void) = {reads, selects};
  for (int i = 0; i < 2; i++) {
    found = 0;
    OK(pthread_sigmask(SIG_UNBLOCK, &alarm, 0));
    for (int tries = 0; !found && tries < 100; tries++) FAILS(outer(waits[i]), EINTR);
    OK(pthread_sigmask(SIG_BLOCK, &alarm, 0));
    CHECK(found);
  }
  return argument;
}

int main(void) {
  void *first[1];
  backtrace(first, 1); /* loads what it needs */
  struct sigaction action = {.sa_handler = raised};
  OK(sigaction(SIGUSR1, &action, 0));
  OK(sigaction(SIGUSR2, &action, 0));
  action.sa_handler = alarmed;
  OK(sigaction(SIGALRM, &action, 0));
  OK(pipe(pipe_ends));
  struct itimerval often = {{0, 20000}, {0, 20000}};
  OK(setitimer(ITIMER_REAL, &often, 0));
  rounds(0);
  puts("ok alone");
  int with_threads;
  join(start(rounds, &with_threads));
  rounds(&with_threads);
  puts("ok backtrace");
}
