/* Asserts futex(2) itself, private and not, on private and on shared memory: WAIT, WAKE, the BITSET forms, REQUEUE,
   CMP_REQUEUE, WAKE_OP and waitv; results and counts, relative and absolute time-outs, EAGAIN, ETIMEDOUT, EINVAL, EFAULT,
   ENOSYS. */
#include "check.h"
#include <linux/futex.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
struct waiter_v { /* struct futex_waitv, which older headers lack */
  uint64_t val, uaddr;
  uint32_t flags, reserved;
};

enum { MOST = 16 };

static uint32_t *word; /* two of them: word[0], word[1] */
static int private;    /* FUTEX_PRIVATE_FLAG or 0 */
static int asleep, awake;

static long futex(void *address, int op, uint32_t value, const void *timeout, void *address2, uint32_t value3) {
  return syscall(SYS_futex, address, op | private, value, timeout, address2, value3);
}
#define COUNT_ARG(n) ((void *)(long)(n))

struct waiter {
  uint32_t *address, bits;
};

/* Waits on the word while it is 0, on the given bits; says how many came back. */
static void *waiter(void *argument) {
  struct waiter *w = argument;
  __atomic_add_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
  long result = w->bits ? futex(w->address, FUTEX_WAIT_BITSET, 0, 0, 0, w->bits) : futex(w->address, FUTEX_WAIT, 0, 0, 0, 0);
  CHECK_EQ(result, 0);
  __atomic_add_fetch(&awake, 1, __ATOMIC_SEQ_CST);
  return 0;
}

static pthread_t threads[MOST];

static void launch(int count, struct waiter *waiters) {
  asleep = awake = 0;
  for (int i = 0; i < count; i++) threads[i] = start(waiter, &waiters[i]);
  while (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) < count) sleep_ms(1);
  sleep_ms(20); /* from "about to wait" to waiting */
}

static int awake_now(int expected) {
  for (int i = 0; i < 2000 && __atomic_load_n(&awake, __ATOMIC_SEQ_CST) < expected; i++) sleep_ms(1);
  sleep_ms(3);
  return __atomic_load_n(&awake, __ATOMIC_SEQ_CST);
}

static void join_all(int count) {
  for (int i = 0; i < count; i++) join(threads[i]);
}

static void wake(void) {
  struct waiter same[8], bits[6];
  for (int i = 0; i < 8; i++) same[i] = (struct waiter){word, 0};
  for (int i = 0; i < 6; i++) bits[i] = (struct waiter){word, 1u << (i % 3)};
  CHECK_EQ(futex(word, FUTEX_WAKE, 1, 0, 0, 0), 0);
  launch(8, same);
  CHECK_EQ(awake_now(0), 0);
  CHECK_EQ(futex(word + 1, FUTEX_WAKE, INT_MAX, 0, 0, 0), 0); /* another address */
  CHECK_EQ(futex(word, FUTEX_WAKE, 3, 0, 0, 0), 3);
  CHECK_EQ(awake_now(3), 3);
  CHECK_EQ(futex(word, FUTEX_WAKE, INT_MAX, 0, 0, 0), 5);
  join_all(8);
  launch(6, bits);
  CHECK_EQ(futex(word, FUTEX_WAKE_BITSET, INT_MAX, 0, 0, 8), 0);
  CHECK_EQ(futex(word, FUTEX_WAKE_BITSET, 1, 0, 0, 2), 1);
  CHECK_EQ(awake_now(1), 1);
  CHECK_EQ(futex(word, FUTEX_WAKE_BITSET, INT_MAX, 0, 0, 2 | 4), 3);
  CHECK_EQ(awake_now(4), 4);
  CHECK_EQ(futex(word, FUTEX_WAKE, INT_MAX, 0, 0, 0), 2); /* matches any */
  join_all(6);
  FAILS(futex(word, FUTEX_WAKE_BITSET, 1, 0, 0, 0), EINVAL);
  FAILS(futex(word, FUTEX_WAIT_BITSET, 0, 0, 0, 0), EINVAL);
}

static void requeue(void) {
  struct waiter same[MOST];
  for (int i = 0; i < MOST; i++) same[i] = (struct waiter){word, 0};
  launch(8, same);
  CHECK_EQ(futex(word, FUTEX_REQUEUE, 2, COUNT_ARG(3), word + 1, 0), 5); /* 2 woken and 3 moved */
  CHECK_EQ(awake_now(2), 2);
  CHECK_EQ(futex(word, FUTEX_WAKE, INT_MAX, 0, 0, 0), 3);
  CHECK_EQ(awake_now(5), 5);
  CHECK_EQ(futex(word + 1, FUTEX_WAKE, INT_MAX, 0, 0, 0), 3);
  join_all(8);
  launch(6, same);
  FAILS(futex(word, FUTEX_CMP_REQUEUE, 1, COUNT_ARG(INT_MAX), word + 1, 77), EAGAIN);
  CHECK_EQ(futex(word, FUTEX_CMP_REQUEUE, 1, COUNT_ARG(INT_MAX), word + 1, 0), 6);
  CHECK_EQ(awake_now(1), 1);
  CHECK_EQ(futex(word, FUTEX_WAKE, INT_MAX, 0, 0, 0), 0);
  CHECK_EQ(futex(word + 1, FUTEX_WAKE, 1, 0, 0, 0), 1);
  CHECK_EQ(futex(word + 1, FUTEX_WAKE, INT_MAX, 0, 0, 0), 4);
  join_all(6);
}

static void wake_op(void) {
  struct waiter both[8];
  for (int i = 0; i < 8; i++) both[i] = (struct waiter){word + i % 2, 0};
  launch(8, both); /* 4 on each */
  /* word[1] was 0: becomes 5; comparison true: wake there too */
  int op = FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0);
  CHECK_EQ(futex(word, FUTEX_WAKE_OP, 1, COUNT_ARG(2), word + 1, op), 3);
  CHECK_EQ(word[1], 5);
  CHECK_EQ(awake_now(3), 3);
  op = FUTEX_OP(FUTEX_OP_ANDN, 1, FUTEX_OP_CMP_GT, 9); /* 5 & ~1, comparison false */
  CHECK_EQ(futex(word, FUTEX_WAKE_OP, 1, COUNT_ARG(2), word + 1, op), 1);
  CHECK_EQ(word[1], 4);
  op = FUTEX_OP((FUTEX_OP_OR | FUTEX_OP_OPARG_SHIFT), 4, FUTEX_OP_CMP_LT, 5); /* 4 | 1 << 4 */
  CHECK_EQ(futex(word, FUTEX_WAKE_OP, 0, COUNT_ARG(1), word + 1, op), 2); /* 0 means 1, as for WAKE */
  CHECK_EQ(word[1], 20);
  op = FUTEX_OP(FUTEX_OP_XOR, 21, FUTEX_OP_CMP_NE, 20);
  CHECK_EQ(futex(word, FUTEX_WAKE_OP, INT_MAX, COUNT_ARG(INT_MAX), word + 1, op), 1);
  CHECK_EQ(word[1], 1);
  op = FUTEX_OP(FUTEX_OP_SET, 0, FUTEX_OP_CMP_GE, 1);
  CHECK_EQ(futex(word, FUTEX_WAKE_OP, INT_MAX, COUNT_ARG(INT_MAX), word + 1, op), 1);
  CHECK_EQ(word[1], 0);
  join_all(8);
}

static void waits(void) {
  static const struct timespec short_time = {0, 40000000}, zero = {0, 0}, bad1 = {0, 1000000000}, bad2 = {-1, 0};
  FAILS(futex(word, FUTEX_WAIT, 1, 0, 0, 0), EAGAIN);
  FAILS(futex(word, FUTEX_WAIT_BITSET, 1, 0, 0, 1), EAGAIN);
  FAILS(futex(word, FUTEX_WAIT, 0, &zero, 0, 0), ETIMEDOUT);
  FAILS(futex(word, FUTEX_WAIT, 0, &bad1, 0, 0), EINVAL);
  FAILS(futex(word, FUTEX_WAIT, 0, &bad2, 0, 0), EINVAL);
  int64_t from = now_ms();
  FAILS(futex(word, FUTEX_WAIT, 0, &short_time, 0, 0), ETIMEDOUT); /* relative */
  TOOK_ABOUT(now_ms() - from, 40);
  from = now_ms();
  FAILS(futex(word, FUTEX_WAIT_BITSET, 0, &short_time, 0, 1), ETIMEDOUT); /* absolute: long ago */
  TOOK_ABOUT(now_ms() - from, 0);
  struct timespec until = in_ms(CLOCK_MONOTONIC, 40);
  FAILS(futex(word, FUTEX_WAIT_BITSET, 0, &until, 0, 1), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 40);
  from = now_ms();
  until = in_ms(CLOCK_REALTIME, 40);
  FAILS(futex(word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &until, 0, 1), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 40);
  char *none = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FAILS(futex(none, FUTEX_WAIT, 0, &zero, 0, 0), EFAULT);
  FAILS(futex((void *)8, FUTEX_WAIT, 0, &zero, 0, 0), EFAULT);
  FAILS(futex(word, FUTEX_WAIT, 0, (void *)8, 0, 0), EFAULT);
  FAILS(futex((char *)word + 1, FUTEX_WAIT, 0, &zero, 0, 0), EINVAL);
  FAILS(futex((char *)word + 1, FUTEX_WAKE, 1, 0, 0, 0), EINVAL);
  FAILS(futex(word, 99, 0, 0, 0, 0), ENOSYS);
  OK(munmap(none, 4096));
}

static int vector_result[4];
static struct waiter_v vector[4];

static void *vector_waiter(void *argument) {
  long i = (long)argument;
  __atomic_add_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
  vector_result[i] = syscall(SYS_futex_waitv, vector, 2 + i % 2, 0, 0, 0);
  return 0;
}

static void waitv(void) {
  for (int i = 0; i < 4; i++) vector[i] = (struct waiter_v){0, (uintptr_t)(word + i), 2 | private, 0}; /* 2: 32 bits */
  if (syscall(SYS_futex_waitv, vector, 0, 0, 0, 0) == -1 && errno == ENOSYS) return;
  FAILS(syscall(SYS_futex_waitv, vector, 0, 0, 0, 0), EINVAL);
  vector[1].val = 9;
  FAILS(syscall(SYS_futex_waitv, vector, 2, 0, 0, 0), EAGAIN);
  vector[1].val = 0;
  int64_t from = now_ms();
  struct timespec until = in_ms(CLOCK_MONOTONIC, 30);
  FAILS(syscall(SYS_futex_waitv, vector, 3, 0, &until, CLOCK_MONOTONIC), ETIMEDOUT);
  TOOK_ABOUT(now_ms() - from, 30);
  asleep = 0;
  for (long i = 0; i < 2; i++) threads[i] = start(vector_waiter, (void *)i); /* on 2 and on 3 words */
  while (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) < 2) sleep_ms(1);
  sleep_ms(20);
  CHECK_EQ(futex(word + 3, FUTEX_WAKE, INT_MAX, 0, 0, 0), 0);
  CHECK_EQ(futex(word + 2, FUTEX_WAKE, INT_MAX, 0, 0, 0), 1);
  join(threads[1]);
  CHECK_EQ(vector_result[1], 2);
  CHECK_EQ(futex(word + 1, FUTEX_WAKE, INT_MAX, 0, 0, 0), 1);
  join(threads[0]);
  CHECK_EQ(vector_result[0], 1);
}

static void *everything(void *name) {
  memset(word, 0, 64);
  wake();
  requeue();
  wake_op();
  waits();
  waitv();
  printf("ok %s\n", (char *)name);
  return 0;
}

int main(void) {
  static uint32_t here[16];
  uint32_t *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  word = here;
  private = FUTEX_PRIVATE_FLAG;
  everything("private futex");
  join(start(everything, "private futex, from a thread"));
  private = 0;
  everything("shared futex on private memory");
  word = shared;
  everything("shared futex on shared memory");
  join(start(everything, "shared futex on shared memory, from a thread"));
}
