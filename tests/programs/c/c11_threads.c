/* Asserts C11 threads: thrd_create, join with result, detach, thrd_exit, sleep, mtx of every kind with time-outs, cnd,
   call_once, tss with destructors, _Thread_local. */
#include "check.h"
#include <threads.h>

enum { THREADS = 16, ROUNDS = 3000 };

static mtx_t plain, recursive, timed;
static cnd_t cond;
static once_flag flag = ONCE_FLAG_INIT;
static tss_t key;
static int once_count, turn, destroyed;
static long counter;
static _Thread_local int own = 5;

static void init(void) { once_count++; }
static void destroy(void *value) { __atomic_add_fetch(&destroyed, (int)(long)value, __ATOMIC_SEQ_CST); }

static int body(void *argument) {
  int id = (int)(long)argument;
  call_once(&flag, init);
  CHECK_EQ(own, 5);
  own = id;
  CHECK_EQ(tss_set(key, (void *)1L), thrd_success);
  for (int i = 0; i < ROUNDS; i++) {
    CHECK_EQ(mtx_lock(&plain), thrd_success);
    counter++;
    CHECK_EQ(mtx_unlock(&plain), thrd_success);
    if (i % 500 == 0) thrd_yield();
  }
  CHECK_EQ(mtx_lock(&recursive), thrd_success);
  CHECK_EQ(mtx_lock(&recursive), thrd_success);
  CHECK_EQ(mtx_trylock(&recursive), thrd_success);
  for (int i = 0; i < 3; i++) CHECK_EQ(mtx_unlock(&recursive), thrd_success);
  mtx_lock(&plain);
  while (turn != id) CHECK_EQ(cnd_wait(&cond, &plain), thrd_success);
  turn++;
  cnd_broadcast(&cond);
  mtx_unlock(&plain);
  struct timespec t = {0, 1000000};
  CHECK_EQ(thrd_sleep(&t, 0), 0);
  CHECK_EQ(own, id);
  if (id % 2) thrd_exit(id * 3);
  return id * 3;
}

static int loser(void *argument) {
  (void)argument;
  struct timespec until;
  CHECK_EQ(mtx_trylock(&timed), thrd_busy);
  int64_t from = now_ms();
  until = in_ms(CLOCK_REALTIME, 30);
  CHECK_EQ(mtx_timedlock(&timed, &until), thrd_timedout);
  TOOK_ABOUT(now_ms() - from, 30);
  mtx_lock(&plain);
  from = now_ms();
  until = in_ms(CLOCK_REALTIME, 30);
  int result;
  do result = cnd_timedwait(&cond, &plain, &until);
  while (result == thrd_success);
  CHECK_EQ(result, thrd_timedout);
  TOOK_ABOUT(now_ms() - from, 30);
  mtx_unlock(&plain);
  return 0;
}

static int detached(void *argument) {
  __atomic_store_n((int *)argument, 1, __ATOMIC_SEQ_CST);
  return 0;
}

int main(void) {
  thrd_t threads[THREADS];
  CHECK_EQ(mtx_init(&plain, mtx_plain), thrd_success);
  CHECK_EQ(mtx_init(&recursive, mtx_plain | mtx_recursive), thrd_success);
  CHECK_EQ(mtx_init(&timed, mtx_timed), thrd_success);
  CHECK_EQ(cnd_init(&cond), thrd_success);
  CHECK_EQ(tss_create(&key, destroy), thrd_success);
  for (long i = 0; i < THREADS; i++) CHECK_EQ(thrd_create(&threads[i], body, (void *)i), thrd_success);
  for (int i = 0; i < THREADS; i++) {
    int result;
    CHECK_EQ(thrd_join(threads[i], &result), thrd_success);
    CHECK_EQ(result, i * 3);
  }
  CHECK_EQ(counter, THREADS * ROUNDS);
  CHECK_EQ(once_count, 1);
  CHECK_EQ(destroyed, THREADS);
  puts("ok threads");
  CHECK_EQ(mtx_lock(&timed), thrd_success);
  CHECK_EQ(thrd_create(&threads[0], loser, 0), thrd_success);
  CHECK_EQ(thrd_join(threads[0], 0), thrd_success);
  mtx_unlock(&timed);
  puts("ok time-outs");
  int done = 0;
  CHECK_EQ(thrd_create(&threads[0], detached, &done), thrd_success);
  CHECK_EQ(thrd_detach(threads[0]), thrd_success);
  while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST)) thrd_yield();
  CHECK(thrd_equal(thrd_current(), thrd_current()));
  puts("ok detach");
}
