/* Asserts that threads survive a flood of signals, faster than they can be handled: on the smallest stack, computing or
   in system calls, with two handlers nesting, while other threads want the CPU too. */
#include "check.h"
#include <semaphore.h>

enum { VICTIMS = 4, SENDERS = 2 };

static pthread_t victims[VICTIMS];
static volatile int over;
static int rounds, handled;
static __thread volatile int depth;

static void on_signal(int sig) {
  (void)sig;
  CHECK(++depth <= 2);
  __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
  depth--;
}

static void *victim(void *argument) {
  int id = (int)(long)argument;
  sem_t semaphore;
  OK(sem_init(&semaphore, 0, 0));
  while (!over) {
    volatile unsigned sum = 0;
    for (unsigned i = 0; i < 20000; i++) sum += i;
    if (id % 2) {
      OK(sem_post(&semaphore));
      while (sem_wait(&semaphore)) CHECK_EQ(errno, EINTR);
      sched_yield();
      getppid();
    }
  }
  return 0;
}

static void *sender(void *argument) {
  for (int i = 0; i < rounds; i++)
    for (int k = 0; k < VICTIMS; k++) OK(pthread_kill(victims[k], (i + k) % 2 ? SIGUSR1 : SIGUSR2));
  return argument;
}

static void flood(size_t stack, int count) {
  pthread_attr_t attributes;
  pthread_t senders[SENDERS];
  over = 0;
  rounds = count;
  OK(pthread_attr_init(&attributes));
  OK(pthread_attr_setstacksize(&attributes, stack));
  for (long i = 0; i < VICTIMS; i++) OK(pthread_create(&victims[i], &attributes, victim, (void *)i));
  for (int i = 0; i < SENDERS; i++) senders[i] = start(sender, 0);
  for (int i = 0; i < SENDERS; i++) join(senders[i]);
  over = 1;
  for (int i = 0; i < VICTIMS; i++) join(victims[i]);
  OK(pthread_attr_destroy(&attributes));
  CHECK(handled > 0);
}

int main(void) {
  signal(SIGUSR1, on_signal);
  signal(SIGUSR2, on_signal);
  flood(PTHREAD_STACK_MIN, 3000);
  puts("ok small stacks");
  flood(1 << 20, 10000);
  puts("ok large stacks");
}
