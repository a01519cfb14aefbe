/* Asserts that threads get on in every phase of a load that changes: pairs that pass bytes through pipes as fast as they can
   (where a runtime may find that fewer workers do), then all compute without a call, then all sleep, and again; in the
   second phase each waits for the other of its pair by looking at memory only, so both must run. */
#include "check.h"

enum { PAIRS = 8, ROUNDS = 3 };

static struct pair {
  int there[2], back[2];
  long passed;
  _Alignas(64) volatile int turn;
} pairs[PAIRS];
static pthread_barrier_t all;

static void pass(struct pair *p, int first) {
  char byte = 1;
  if (first) {
    int64_t until = now_ms() + 400;
    long passed = 0;
    do {
      CHECK_EQ(write(p->there[1], &byte, 1), 1);
      CHECK_EQ(read(p->back[0], &byte, 1), 1);
      passed++;
    } while (now_ms() < until);
    CHECK(passed > 10);
    p->passed += passed;
    byte = 0;
    CHECK_EQ(write(p->there[1], &byte, 1), 1);
  } else {
    for (;;) {
      CHECK_EQ(read(p->there[0], &byte, 1), 1);
      if (!byte) return;
      CHECK_EQ(write(p->back[1], &byte, 1), 1);
    }
  }
}

static void compute(struct pair *p, int first) {
  for (int i = 0; i < 4; i++) {
    while (p->turn % 2 != !first) {
    }
    for (volatile int k = 0; k < 200000; k++) {
    }
    p->turn++;
  }
}

static void *body(void *argument) {
  int id = (int)(long)argument, first = id % 2;
  struct pair *p = &pairs[id / 2];
  for (int round = 0; round < ROUNDS; round++) {
    pass(p, first);
    pthread_barrier_wait(&all);
    compute(p, first);
    pthread_barrier_wait(&all);
    sleep_ms(120);
  }
  return argument;
}

int main(void) {
  pthread_t threads[2 * PAIRS];
  OK(pthread_barrier_init(&all, 0, 2 * PAIRS));
  for (int i = 0; i < PAIRS; i++) {
    OK(pipe(pairs[i].there));
    OK(pipe(pairs[i].back));
  }
  for (long i = 0; i < 2 * PAIRS; i++) threads[i] = start(body, (void *)i);
  for (int i = 0; i < 2 * PAIRS; i++) join(threads[i]);
  for (int i = 0; i < PAIRS; i++) {
    CHECK_EQ(pairs[i].turn, 8 * ROUNDS);
    CHECK(pairs[i].passed > 10 * ROUNDS);
  }
  puts("ok phases");
}
