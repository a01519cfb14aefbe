/* Asserts pthread_once: one of many threads runs the function, the others wait for its end, whatever it does; a thread
   cancelled inside lets another one try; it can be called from a constructor. */
#include "check.h"

enum { THREADS = 32, ROUNDS = 50 };

static pthread_once_t once[ROUNDS], early = PTHREAD_ONCE_INIT, broken = PTHREAD_ONCE_INIT;
static int runs[ROUNDS], done[ROUNDS], current, early_runs, tries;
static pthread_barrier_t barrier;

static void init_early(void) { early_runs++; }
__attribute__((constructor)) static void constructor(void) { pthread_once(&early, init_early); }

static void init(void) {
  int i = current;
  runs[i]++;
  if (i % 2) usleep(500);
  else sched_yield();
  done[i] = 1;
}

static void *body(void *argument) {
  (void)argument;
  for (int i = 0; i < ROUNDS; i++) {
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) current = i;
    pthread_barrier_wait(&barrier);
    OK(pthread_once(&once[i], init));
    CHECK_EQ(done[i], 1);
  }
  return 0;
}

static void init_broken(void) {
  if (__atomic_add_fetch(&tries, 1, __ATOMIC_SEQ_CST) == 1)
    for (;;) sleep_ms(1000); /* until cancelled */
}

static void *try_broken(void *argument) {
  OK(pthread_once(&broken, init_broken));
  return argument;
}

int main(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < ROUNDS; i++) once[i] = (pthread_once_t)PTHREAD_ONCE_INIT;
  OK(pthread_barrier_init(&barrier, 0, THREADS));
  for (int i = 0; i < THREADS; i++) threads[i] = start(body, 0);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  for (int i = 0; i < ROUNDS; i++) CHECK_EQ(runs[i], 1);
  CHECK_EQ(early_runs, 1);
  puts("ok once");
  threads[0] = start(try_broken, &tries);
  while (__atomic_load_n(&tries, __ATOMIC_SEQ_CST) == 0) sleep_ms(1);
  threads[1] = start(try_broken, &tries);
  sleep_ms(10);
  OK(pthread_cancel(threads[0]));
  CHECK(join(threads[0]) == PTHREAD_CANCELED);
  CHECK(join(threads[1]) == &tries);
  CHECK_EQ(tries, 2);
  puts("ok once, first cancelled");
}
