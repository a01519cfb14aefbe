/* Asserts that threads which wait for one another without any call all get their turn, round after round: in each, three
   threads spin until all three have come, then pass a token around by spinning. */
#include "check.h"

enum { ROUNDS = 60, THREADS = 3 };

static volatile int come, token;

static void *spinner(void *argument) {
  int me = (int)(intptr_t)argument;
  __atomic_add_fetch(&come, 1, __ATOMIC_SEQ_CST);
  while (come != THREADS) {
  }
  while (token != me) {
  }
  token = me + 1;
  while (token != THREADS) {
  }
  return argument;
}

int main(void) {
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[THREADS];
    come = token = 0;
    for (int i = 0; i < THREADS; i++) threads[i] = start(spinner, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    CHECK_EQ(token, THREADS);
  }
  puts("ok every round ended");
}
