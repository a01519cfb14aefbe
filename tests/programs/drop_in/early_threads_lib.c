/* A library for LD_PRELOAD whose constructor, which may run before Heddle's, starts threads that wait; its destructor asks
   each for an answer and joins it. */
#define CHECK_LEAVES_STDOUT
#include "../c/check.h"

enum { THREADS = 6 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_t threads[THREADS];
static int pipes[THREADS][2], asked;

static void *waits(void *argument) {
  int id = (int)(long)argument;
  char byte;
  if (id % 2) {
    CHECK_EQ(read(pipes[id][0], &byte, 1), 1);
  } else {
    OK(pthread_mutex_lock(&mutex));
    while (!asked) OK(pthread_cond_wait(&cond, &mutex));
    OK(pthread_mutex_unlock(&mutex));
  }
  return (void *)(long)(id * 2 + 1);
}

__attribute__((constructor)) static void load(void) {
  for (long i = 0; i < THREADS; i++) {
    int fds[2];
    OK(pipe(fds));
    for (int k = 0; k < 2; k++) { /* out of the program's way */
      CHECK((pipes[i][k] = fcntl(fds[k], F_DUPFD_CLOEXEC, 200)) >= 0);
      OK(close(fds[k]));
    }
    threads[i] = start(waits, (void *)i);
  }
  usleep(2000); /* some wait in the kernel by now */
}

__attribute__((destructor)) static void unload(void) {
  OK(pthread_mutex_lock(&mutex));
  asked = 1;
  OK(pthread_cond_broadcast(&cond));
  OK(pthread_mutex_unlock(&mutex));
  for (long i = 0; i < THREADS; i++) {
    if (i % 2) CHECK_EQ(write(pipes[i][1], "x", 1), 1);
    CHECK_EQ((long)join(threads[i]), i * 2 + 1);
  }
  CHECK_EQ(write(1, "ok early threads\n", 17), 17);
}
