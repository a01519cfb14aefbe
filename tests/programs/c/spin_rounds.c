/* Asserts that threads which wait for one another without any blocking call all get their turn, round after round: in each,
   three threads spin until all three have come, then pass a token around by spinning; first without any call, then with
   calls that fail at once. */
#include "check.h"

enum { ROUNDS = 60, THREADS = 3 };

static volatile int come, token;
static int with_calls;

static void spin(void) {
  if (with_calls) CHECK(mmap(0, (size_t)1 << 60, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
}

static void *spinner(void *argument) {
  int me = (int)(intptr_t)argument;
  __atomic_add_fetch(&come, 1, __ATOMIC_SEQ_CST);
  while (come != THREADS) spin();
  while (token != me) spin();
  token = me + 1;
  while (token != THREADS) spin();
  return argument;
}

static void rounds(void) {
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[THREADS];
    come = token = 0;
    for (int i = 0; i < THREADS; i++) threads[i] = start(spinner, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    CHECK_EQ(token, THREADS);
  }
}

int main(void) {
  rounds();
  puts("ok without calls");
  with_calls = 1;
  rounds();
  puts("ok with calls");
}
