/* Asserts that a thread which makes one system call after the other is always taken for itself, however often it is
   preempted, wherever between two calls or at their beginnings: threads compare their ids, while others sleep shortly and so
   interrupt them. */
#include "check.h"

enum { CALLERS = 6, SLEEPERS = 4, CALLS = 1500000 };

static volatile int stop;

static void *calls(void *argument) {
  pid_t own = gettid();
  for (int i = 0; i < CALLS; i++) {
    long id;
    __asm__ volatile("syscall" : "=a"(id) : "a"(SYS_gettid) : "rcx", "r11", "memory");
    if (id != own) CHECK_EQ(id, own);
    if (i % 8 == 0 && gettid() != own) CHECK_EQ(gettid(), own);
  }
  return argument;
}

static void *sleeps(void *argument) {
  while (!stop) usleep(50 + 20 * (useconds_t)(intptr_t)argument);
  return 0;
}

int main(void) {
  pthread_t callers[CALLERS], sleepers[SLEEPERS];
  for (intptr_t i = 0; i < SLEEPERS; i++) sleepers[i] = start(sleeps, (void *)i);
  for (intptr_t i = 0; i < CALLERS; i++) callers[i] = start(calls, (void *)i);
  for (int i = 0; i < CALLERS; i++) join(callers[i]);
  stop = 1;
  for (int i = 0; i < SLEEPERS; i++) join(sleepers[i]);
  puts("ok ids");
}
