/* Asserts that threads which compute without any call do not keep others from running: 16 of them spin on a flag that a
   17th, created last, sets; then while they spin others sleep, take turns and make new threads. */
#include "check.h"

enum { SPINNERS = 16 };

static volatile int flag;
static int done;

static void *spinner(void *argument) {
  while (!flag) {
  }
  __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
  return argument;
}

static void *setter(void *argument) {
  flag = 1;
  return argument;
}

static void *nothing(void *argument) { return argument; }

static void *among_spinners(void *argument) {
  for (int i = 0; i < 3; i++) {
    sleep_ms(1);
    join(start(nothing, 0));
  }
  return argument;
}

int main(void) {
  pthread_t threads[SPINNERS];
  for (int i = 0; i < SPINNERS; i++) threads[i] = start(spinner, 0);
  pthread_t last = start(setter, 0);
  for (int i = 0; i < SPINNERS; i++) join(threads[i]);
  join(last);
  CHECK_EQ(done, SPINNERS);
  puts("ok a flag set by the last");
  flag = 0;
  for (int i = 0; i < SPINNERS; i++) threads[i] = start(spinner, 0);
  int64_t from = now_ms();
  join(start(among_spinners, 0));
  CHECK(now_ms() - from < 20000);
  flag = 1;
  for (int i = 0; i < SPINNERS; i++) join(threads[i]);
  CHECK_EQ(done, 2 * SPINNERS);
  puts("ok others run among spinners");
}
