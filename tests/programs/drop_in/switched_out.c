/* Pairs of threads that take turns by pipes for a second, on CPUs that other processes use as well. Prints how often they came
   round. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAIRS = 8, MOST = 64 };

static atomic_int over;
static int to[PAIRS][2], from[PAIRS][2];
static atomic_long rounds;

static void *asks(void *pair) {
  int i = *(int *)pair;
  char c = 1;
  while (!atomic_load(&over) && write(to[i][1], &c, 1) == 1 && read(from[i][0], &c, 1) == 1) rounds++;
  close(to[i][1]);
  return NULL;
}

static void *answers(void *pair) {
  int i = *(int *)pair;
  char c;
  while (read(to[i][0], &c, 1) == 1 && write(from[i][1], &c, 1) == 1);
  return NULL;
}

int main(void) {
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  int others = cpus < MOST ? (int)cpus : MOST;
  pid_t children[MOST];
  pthread_t threads[2 * PAIRS];
  static int numbers[PAIRS];
  for (int i = 0; i < others; i++) {
    children[i] = fork();
    if (children[i] < 0) return 2;
    if (children[i] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (volatile int n = 0;; n++);
    }
  }
  for (int i = 0; i < PAIRS; i++) {
    numbers[i] = i;
    if (pipe(to[i]) != 0 || pipe(from[i]) != 0 || pthread_create(&threads[2 * i], NULL, asks, &numbers[i]) != 0 ||
        pthread_create(&threads[2 * i + 1], NULL, answers, &numbers[i]) != 0)
      return 2;
  }
  nanosleep(&(struct timespec){1, 0}, NULL);
  atomic_store(&over, 1);
  for (int i = 0; i < 2 * PAIRS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < others; i++) {
    kill(children[i], SIGKILL);
    waitpid(children[i], NULL, 0);
  }
  printf("%ld\n", atomic_load(&rounds));
  return 0;
}
