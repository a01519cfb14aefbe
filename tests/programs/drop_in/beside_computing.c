/* Four threads that compute, a pair that takes turns by semaphores, and one by pipes. Prints how often each pair came round in
   a second. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static atomic_int over;
static sem_t there, back;
static int to[2], from[2];
static long by_semaphore, by_pipe;

static void *computes(void *unused) {
  while (!atomic_load(&over));
  return unused;
}

static void *posts(void *unused) {
  for (; !atomic_load(&over); by_semaphore++) {
    sem_post(&there);
    sem_wait(&back);
  }
  sem_post(&there);
  return unused;
}

static void *answers(void *unused) {
  while (!atomic_load(&over)) {
    sem_wait(&there);
    sem_post(&back);
  }
  sem_post(&back);
  return unused;
}

static void *writes(void *unused) {
  char c = 1;
  for (; !atomic_load(&over); by_pipe++)
    if (write(to[1], &c, 1) != 1 || read(from[0], &c, 1) != 1) break;
  close(to[1]);
  return unused;
}

static void *echoes(void *unused) {
  char c;
  while (read(to[0], &c, 1) == 1 && write(from[1], &c, 1) == 1);
  return unused;
}

int main(void) {
  void *(*functions[])(void *) = {computes, computes, computes, computes, posts, answers, writes, echoes};
  enum { ALL = sizeof functions / sizeof *functions };
  pthread_t threads[ALL];
  sem_init(&there, 0, 0);
  sem_init(&back, 0, 0);
  if (pipe(to) != 0 || pipe(from) != 0) return 2;
  for (int i = 0; i < ALL; i++)
    if (pthread_create(&threads[i], NULL, functions[i], NULL) != 0) return 2;
  nanosleep(&(struct timespec){1, 0}, NULL);
  atomic_store(&over, 1);
  for (int i = 0; i < ALL; i++) pthread_join(threads[i], NULL);
  printf("%ld %ld\n", by_semaphore, by_pipe);
  return 0;
}
