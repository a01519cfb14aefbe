/* Threads that only yield wait for others; they do not keep a processor from taking what is queued behind a thread that
   computes. (With a slice that is longer than this computes, so that preemption does not help.) */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int started, over, seen;
static sem_t go;

static void *yields(void *unused) {
  atomic_fetch_add(&started, 1);
  while (!atomic_load(&over)) sched_yield();
  return unused;
}

static void *answers(void *unused) {
  for (int i = 1; i <= 3; i++) {
    sem_wait(&go);
    atomic_store(&seen, i);
  }
  return unused;
}

int main(void) {
  pthread_t threads[3];
  int missed = 0;
  sem_init(&go, 0, 0);
  for (int i = 0; i < 3; i++)
    if (pthread_create(&threads[i], NULL, i < 2 ? yields : answers, NULL) != 0) return 2;
  while (atomic_load(&started) < 2) sched_yield();
  for (int i = 1; i <= 3; i++) {
    sem_post(&go);
    for (long k = 0; k < 1000000000 && atomic_load(&seen) < i; k++);
    missed += atomic_load(&seen) < i;
  }
  atomic_store(&over, 1);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  printf("%d missed\n", missed);
  return missed != 0;
}
