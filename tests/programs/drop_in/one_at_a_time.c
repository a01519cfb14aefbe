/* Creates and joins threads from main, one at a time, each of which uses some of its stack; prints how many of them had to
   fault memory in. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static long faults(void) {
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  return use.ru_minflt;
}

static void *body(void *argument) {
  volatile char some[16384];
  memset((char *)some, 1, sizeof some);
  return argument;
}

int main(void) {
  int many = 0;
  for (int i = 0; i < 400; i++) {
    pthread_t thread;
    long before = faults();
    if (pthread_create(&thread, NULL, body, NULL) != 0 || pthread_join(thread, NULL) != 0) return 1;
    many += faults() != before;
  }
  printf("%d\n", many);
  return 0;
}
