/* Prints how many kernel threads the process has while 1000 of its own threads wait: `kernel_threads COUNT`. */
#include "../c/check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int waiting, released;

static void *body(void *argument) {
  OK(pthread_mutex_lock(&mutex));
  waiting++;
  while (!released) OK(pthread_cond_wait(&cond, &mutex));
  OK(pthread_mutex_unlock(&mutex));
  return argument;
}

static int tasks(void) {
  char text[200];
  int count = 0;
  FILE *status = fopen("/proc/self/status", "r");
  CHECK(status);
  while (fgets(text, sizeof text, status)) sscanf(text, "Threads: %d", &count);
  fclose(status);
  return count;
}

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 1000;
  pthread_t *threads = calloc(count, sizeof *threads);
  pthread_attr_t attr;
  OK(pthread_attr_init(&attr));
  OK(pthread_attr_setstacksize(&attr, 64 * 1024));
  for (int i = 0; i < count; i++) OK(pthread_create(&threads[i], &attr, body, 0));
  for (int seen = 0; seen < count; sleep_ms(1)) {
    OK(pthread_mutex_lock(&mutex));
    seen = waiting;
    OK(pthread_mutex_unlock(&mutex));
  }
  printf("%d\n", tasks());
  OK(pthread_mutex_lock(&mutex));
  released = 1;
  OK(pthread_cond_broadcast(&cond));
  OK(pthread_mutex_unlock(&mutex));
  for (int i = 0; i < count; i++) join(threads[i]);
}
