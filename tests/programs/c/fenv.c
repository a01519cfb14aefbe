/* Asserts the floating-point environment: rounding mode, exception masks, flush-to-zero and precision control are each
   thread's own (MXCSR and the x87 control word), inherited by new threads, and kept across every kind of wait; so are
   the sticky exception flags of both units. */
#include "check.h"
#include <fenv.h>
#include <xmmintrin.h>

enum { THREADS = 24, ROUNDS = 30 };

static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static unsigned x87_control(void) {
  unsigned short word;
  __asm__ volatile("fnstcw %0" : "=m"(word));
  return word;
}

static unsigned x87_status(void) {
  unsigned short word;
  __asm__ volatile("fnstsw %0" : "=m"(word));
  return word & 0x3f;
}

static void set_x87_control(unsigned value) {
  unsigned short word = value;
  __asm__ volatile("fldcw %0" : : "m"(word));
}

static void sticky_x87(unsigned flags) {
  struct {
    unsigned short w[14];
  } env;
  __asm__ volatile("fnstenv %0" : "=m"(env));
  env.w[2] = (env.w[2] & ~0x3f) | flags;
  __asm__ volatile("fldenv %0" : : "m"(env));
}

/* What 1/3 and its negative come to says which way both units round. */
static void check_rounding(int mode) {
  volatile double one = 1, three = 3, positive = one / three, negative = -one / three;
  volatile long double lone = 1, lthree = 3, lpositive = lone / lthree, lnegative = -lone / lthree;
  int up = mode == FE_UPWARD, down = mode == FE_DOWNWARD;
  CHECK(positive == (up ? 0x1.5555555555556p-2 : 0x1.5555555555555p-2));
  CHECK(negative == (down ? -0x1.5555555555556p-2 : -0x1.5555555555555p-2));
  /* To nearest, the 64-bit significand of 1/3 goes up. */
  int lup = up || mode == FE_TONEAREST, ldown = down || mode == FE_TONEAREST;
  CHECK(lpositive == (lup ? 0xa.aaaaaaaaaaaaaabp-5L : 0xa.aaaaaaaaaaaaaaap-5L));
  CHECK(lnegative == (ldown ? -0xa.aaaaaaaaaaaaaabp-5L : -0xa.aaaaaaaaaaaaaaap-5L));
  CHECK_EQ(fegetround(), mode);
}

static void wait_somehow(int round, int fds[2]) {
  char byte = 1;
  switch (round % 4) {
    case 0: sched_yield(); break;
    case 1: usleep(200); break;
    case 2:
      OK(pthread_mutex_lock(&mutex));
      sched_yield();
      OK(pthread_mutex_unlock(&mutex));
      break;
    case 3: CHECK_EQ(write(fds[1], &byte, 1), 1); CHECK_EQ(read(fds[0], &byte, 1), 1); break;
  }
}

static void *inherits(void *argument) {
  unsigned *expected = argument;
  CHECK_EQ(_mm_getcsr() & ~0x3fu, expected[0]);
  CHECK_EQ(x87_control(), expected[1]);
  set_x87_control(0x37f); /* changes nothing for the creator */
  _mm_setcsr(0x1f80);
  usleep(100);
  CHECK_EQ(_mm_getcsr() & ~0x3fu, 0x1f80);
  return 0;
}

static void *body(void *argument) {
  int id = (int)(long)argument, mode = modes[id % 4], fds[2];
  OK(pipe(fds));
  CHECK_EQ(fegetround(), FE_TONEAREST); /* as in main */
  OK(fesetround(mode));
  unsigned csr = _mm_getcsr() & ~0x3fu;
  if (id % 3 == 0) csr |= 0x8040;                        /* flush to zero, denormals are zero */
  if (id % 2) csr &= ~0x800u;                            /* underflow would trap; nothing here raises it */
  unsigned control = x87_control();
  if (id % 5 == 1) control = (control & ~0x300u) | 0x200; /* double precision instead of extended */
  for (int round = 0; round < ROUNDS; round++) {
    unsigned flags = (unsigned)(id * 7 + round) & 0x2f, x87_flags = (unsigned)(id * 11 + round * 5) & 0x3f;
    _mm_setcsr(csr | flags);
    set_x87_control(control);
    sticky_x87(x87_flags);
    wait_somehow(round, fds);
    CHECK_EQ(_mm_getcsr(), csr | flags);
    CHECK_EQ(x87_control(), control);
    CHECK_EQ(x87_status(), x87_flags);
    if (id % 5 != 1) check_rounding(mode);
    _mm_setcsr(csr);
  }
  unsigned expected[2] = {csr, control};
  pthread_t child = start(inherits, expected);
  join(child);
  CHECK_EQ(_mm_getcsr() & ~0x3fu, csr);
  CHECK_EQ(x87_control(), control);
  OK(close(fds[0]));
  OK(close(fds[1]));
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (long i = 0; i < THREADS; i++) join(threads[i]);
  check_rounding(FE_TONEAREST);
  puts("ok threads");
  int fds[2];
  OK(pipe(fds));
  for (int m = 0; m < 4; m++) { /* and on the main thread */
    OK(fesetround(modes[m]));
    for (int round = 0; round < 8; round++) {
      wait_somehow(round, fds);
      check_rounding(modes[m]);
    }
    unsigned expected[2] = {_mm_getcsr() & ~0x3fu, x87_control()};
    join(start(inherits, expected));
  }
  OK(fesetround(FE_TONEAREST));
  puts("ok main");
}
