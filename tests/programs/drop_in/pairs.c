/* Eight pairs of threads that pass bytes through pipes: several become ready at once. */
#include "../c/check.h"

enum { PAIRS = 8, ROUNDS = 500 };

static int there[PAIRS][2], back[PAIRS][2];

static void *ask(void *argument) {
  long i = (long)argument;
  char byte = 1;
  for (int k = 0; k < ROUNDS; k++) {
    CHECK_EQ(write(there[i][1], &byte, 1), 1);
    CHECK_EQ(read(back[i][0], &byte, 1), 1);
  }
  return 0;
}

static void *answer(void *argument) {
  long i = (long)argument;
  char byte;
  for (int k = 0; k < ROUNDS; k++) {
    CHECK_EQ(read(there[i][0], &byte, 1), 1);
    CHECK_EQ(write(back[i][1], &byte, 1), 1);
  }
  return 0;
}

int main(void) {
  pthread_t threads[2 * PAIRS];
  for (long i = 0; i < PAIRS; i++) {
    OK(pipe(there[i]));
    OK(pipe(back[i]));
    threads[2 * i] = start(ask, (void *)i);
    threads[2 * i + 1] = start(answer, (void *)i);
  }
  for (int i = 0; i < 2 * PAIRS; i++) join(threads[i]);
  puts("ok");
}
