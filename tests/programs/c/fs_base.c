/* Asserts that a thread that has set its thread pointer (ARCH_SET_FS) keeps it while it yields, sleeps, waits and is
   preempted, and has its old one when it sets that again; others keep theirs. What runs meanwhile has no libc. */
#include "check.h"
#include <asm/prctl.h>
#include <linux/futex.h>

enum { THREADS = 6, ROUNDS = 40 };

static uint32_t words[THREADS];
static __thread int own;

/* No errno, no stack protector: both are where the thread pointer says. */
__attribute__((always_inline)) static inline long call(long number, long a, long b, long c, long d) {
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
}

/* What is at the thread pointer. */
__attribute__((always_inline)) static inline long at_pointer(void) {
  long value;
  __asm__ volatile("mov %%fs:0, %0" : "=r"(value));
  return value;
}

__attribute__((noinline, optimize("no-stack-protector"))) static int moves(long number) {
  long area[8], old = 0, now = 0, wrong = 0;
  struct timespec pause = {0, 300000}, longer = {0, 200000};
  area[0] = 4711 + number;
  call(SYS_arch_prctl, ARCH_GET_FS, (long)&old, 0, 0);
  call(SYS_arch_prctl, ARCH_SET_FS, (long)area, 0, 0);
  for (int i = 0; i < ROUNDS; i++) {
    if (i % 4 == 0) call(SYS_sched_yield, 0, 0, 0, 0);
    if (i % 4 == 1) call(SYS_nanosleep, (long)&pause, 0, 0, 0);
    if (i % 4 == 2) call(SYS_futex, (long)&words[number], FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, (long)&longer);
    if (i % 4 == 3)
      for (volatile int k = 0; k < 300000; k++) continue;
    if (at_pointer() != 4711 + number) wrong++;
    call(SYS_arch_prctl, ARCH_GET_FS, (long)&now, 0, 0);
    if (now != (long)area) wrong++;
  }
  call(SYS_arch_prctl, ARCH_SET_FS, old, 0, 0);
  return (int)wrong;
}

static void *body(void *argument) {
  own = (int)(intptr_t)argument;
  for (int i = 0; i < 3; i++) {
    CHECK_EQ(moves((intptr_t)argument), 0);
    CHECK_EQ(own, (int)(intptr_t)argument);
    FAILS(close(-1), EBADF);
  }
  return 0;
}

static void *other(void *argument) {
  own = 99;
  while (!__atomic_load_n((int *)argument, __ATOMIC_SEQ_CST)) {
    CHECK_EQ(own, 99);
    sched_yield();
  }
  return 0;
}

int main(void) {
  int stop = 0;
  pthread_t threads[THREADS], more = start(other, &stop);
  for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  join(more);
  CHECK_EQ(moves(0), 0); /* main's */
  puts("ok thread pointers");
}
