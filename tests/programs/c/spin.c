/* Asserts spin locks under more threads than processors, with and without sched_yield, and spinning on an atomic. */
#include "check.h"

enum { THREADS = 16, ROUNDS = 2000 };

static pthread_spinlock_t spin;
static long counter;
static int turn;

static void *locker(void *argument) {
  long yields = (long)argument;
  for (int i = 0; i < ROUNDS; i++) {
    if (yields)
      while (pthread_spin_trylock(&spin)) sched_yield();
    else
      OK(pthread_spin_lock(&spin));
    counter++;
    OK(pthread_spin_unlock(&spin));
  }
  return 0;
}

/* Each waits for its turn: the next thread must get to run though all others spin. */
static void *round_robin(void *argument) {
  int id = (int)(long)argument;
  for (int i = 0; i < 50; i++) {
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) % THREADS != id) sched_yield();
    __atomic_add_fetch(&turn, 1, __ATOMIC_RELEASE);
  }
  return 0;
}

static void each(void *(*body)(void *), long argument) {
  pthread_t threads[THREADS];
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)(argument < 0 ? i : argument));
  for (int i = 0; i < THREADS; i++) join(threads[i]);
}

int main(void) {
  OK(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
  each(locker, 1);
  CHECK_EQ(counter, THREADS * ROUNDS);
  puts("ok spin and yield");
  each(locker, 0);
  CHECK_EQ(counter, 2 * THREADS * ROUNDS);
  puts("ok spin");
  OK(pthread_spin_lock(&spin));
  CHECK_EQ(pthread_spin_trylock(&spin), EBUSY);
  OK(pthread_spin_unlock(&spin));
  each(round_robin, -1);
  CHECK_EQ(turn, THREADS * 50);
  puts("ok turns");
}
