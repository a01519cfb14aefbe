/* Threads that allocate blocks and free those of others: for allocators that are preloaded. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 64, ROUNDS = 10000, SLOTS = 256 };

static void *slots[SLOTS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread long made;

static void *body(void *argument) {
  unsigned seed = (unsigned)(long)argument;
  for (int round = 0; round < ROUNDS; round++) {
    seed = seed * 1103515245 + 12345;
    size_t size = 16 + seed % 3000;
    char *block = malloc(size);
    if (!block) abort();
    memset(block, (char)size, size);
    memcpy(block, &size, sizeof size);
    pthread_mutex_lock(&mutex);
    char *old = slots[seed >> 8 & (SLOTS - 1)];
    slots[seed >> 8 & (SLOTS - 1)] = block;
    pthread_mutex_unlock(&mutex);
    if (old) {
      memcpy(&size, old, sizeof size);
      for (size_t i = sizeof size; i < size; i++)
        if (old[i] != (char)size) abort();
    }
    free(old);
    made++;
    if (round % 500 == 0) sched_yield();
  }
  return (void *)made;
}

int main(void) {
  long all = 0;
  for (int turn = 0; turn < 3; turn++) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
      if (pthread_create(&threads[i], 0, body, (void *)i)) abort();
    for (int i = 0; i < THREADS; i++) {
      void *result;
      pthread_join(threads[i], &result);
      all += (long)result;
    }
  }
  printf("%ld\n", all);
}
