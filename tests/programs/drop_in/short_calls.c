/* Two threads that make one short system call after the other, about files, for a second. Prints how many. */
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *calls(void *count) {
  struct stat status;
  for (double end = now() + 1; now() < end; ++*(long *)count)
    if (stat("/", &status) != 0) return count;
  return NULL;
}

int main(void) {
  long here = 0, there = 0;
  pthread_t thread;
  void *failed;
  if (pthread_create(&thread, NULL, calls, &there) != 0 || calls(&here) || pthread_join(thread, &failed) != 0 || failed) return 2;
  printf("%ld\n", here + there);
  return 0;
}
