/* Asserts that a system call made by an instruction in the program itself keeps every register but rax, rcx and r11:
   the other general ones, flags (carry, direction, overflow ...), the red zone, xmm, ymm and zmm, mask registers, MXCSR,
   the x87 stack with its control and status words; while many threads wait, wake each other and yield. */
#include "check.h"
#include <linux/futex.h>
#include <poll.h>
#include <stddef.h>

struct regs {
  uint64_t gpr[12]; /* rbx rbp rdi rsi rdx r8 r9 r10 r12 r13 r14 r15 */
  uint64_t flags;
  uint64_t nr;                 /* in: system call; out: result */
  unsigned char x87[8][16];    /* 10 bytes used of each */
  uint64_t red_zone[16];
  uint32_t mxcsr;
  uint16_t control, status;
  uint64_t mask[8];
  __attribute__((aligned(64))) unsigned char vector[32][64];
};

enum { BASE, AVX, AVX512 };

/* Loads everything from in, makes the system call, stores everything to out. */
void call(const struct regs *in, struct regs *out, int level);

#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define FLAGS 96
#define NR 104
#define X87 112
#define RED 240
#define MXCSR 368
#define CONTROL 372
#define STATUS 374
#define MASK 376
#define VECTOR 448
_Static_assert(offsetof(struct regs, flags) == FLAGS && offsetof(struct regs, nr) == NR &&
                   offsetof(struct regs, x87) == X87 && offsetof(struct regs, red_zone) == RED &&
                   offsetof(struct regs, mxcsr) == MXCSR && offsetof(struct regs, control) == CONTROL &&
                   offsetof(struct regs, status) == STATUS && offsetof(struct regs, mask) == MASK &&
                   offsetof(struct regs, vector) == VECTOR,
               "the assembly below knows these");

__asm__(
    ".text\n.globl call\n.type call,@function\ncall:\n"
    "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "push %rsi\n push %rdx\n sub $16, %rsp\n stmxcsr (%rsp)\n fnstcw 4(%rsp)\n"
    "mov %rdi, %rax\n"
    "cmp $2, %edx\n je 3f\n cmp $1, %edx\n je 2f\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movups " STRING(VECTOR) "+64*\\n(%rax), %xmm\\n\n .endr\n jmp 4f\n"
    "2: .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n vmovdqu " STRING(VECTOR) "+64*\\n(%rax), %ymm\\n\n .endr\n jmp 4f\n"
    "3: .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
    "   vmovdqu64 " STRING(VECTOR) "+64*\\n(%rax), %zmm\\n\n .endr\n"
    "   .irp n,0,1,2,3,4,5,6,7\n kmovq " STRING(MASK) "+8*\\n(%rax), %k\\n\n .endr\n"
    "4: fninit\n .irp n,0,1,2,3,4,5,6,7\n fldt " STRING(X87) "+16*\\n(%rax)\n .endr\n"
    "fldcw " STRING(CONTROL) "(%rax)\n ldmxcsr " STRING(MXCSR) "(%rax)\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n mov " STRING(RED) "+8*\\n(%rax), %rcx\n mov %rcx, -8-8*\\n(%rsp)\n .endr\n"
    "mov 0(%rax), %rbx\n mov 8(%rax), %rbp\n mov 16(%rax), %rdi\n mov 24(%rax), %rsi\n mov 32(%rax), %rdx\n"
    "mov 40(%rax), %r8\n mov 48(%rax), %r9\n mov 56(%rax), %r10\n"
    "mov 64(%rax), %r12\n mov 72(%rax), %r13\n mov 80(%rax), %r14\n mov 88(%rax), %r15\n"
    "mov " STRING(FLAGS) "(%rax), %rcx\n lea -128(%rsp), %rsp\n push %rcx\n popfq\n"
    "mov " STRING(NR) "(%rax), %rax\n lea 128(%rsp), %rsp\n"
    "syscall\n"
    /* rcx and r11 are free now; lea and mov leave the flags alone. */
    "mov 24(%rsp), %rcx\n"                    /* out */
    "mov %rax, " STRING(NR) "(%rcx)\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n mov -8-8*\\n(%rsp), %r11\n mov %r11, " STRING(RED) "+8*\\n(%rcx)\n .endr\n"
    "pushfq\n pop %r11\n mov %r11, " STRING(FLAGS) "(%rcx)\n cld\n"
    "mov %rbx, 0(%rcx)\n mov %rbp, 8(%rcx)\n mov %rdi, 16(%rcx)\n mov %rsi, 24(%rcx)\n mov %rdx, 32(%rcx)\n"
    "mov %r8, 40(%rcx)\n mov %r9, 48(%rcx)\n mov %r10, 56(%rcx)\n"
    "mov %r12, 64(%rcx)\n mov %r13, 72(%rcx)\n mov %r14, 80(%rcx)\n mov %r15, 88(%rcx)\n"
    "stmxcsr " STRING(MXCSR) "(%rcx)\n fnstcw " STRING(CONTROL) "(%rcx)\n fnstsw " STRING(STATUS) "(%rcx)\n"
    ".irp n,7,6,5,4,3,2,1,0\n fstpt " STRING(X87) "+16*\\n(%rcx)\n .endr\n"
    "mov 16(%rsp), %rdx\n cmp $2, %edx\n je 3f\n cmp $1, %edx\n je 2f\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movups %xmm\\n, " STRING(VECTOR) "+64*\\n(%rcx)\n .endr\n jmp 4f\n"
    "2: .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n vmovdqu %ymm\\n, " STRING(VECTOR) "+64*\\n(%rcx)\n .endr\n"
    "   vzeroupper\n jmp 4f\n"
    "3: .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
    "   vmovdqu64 %zmm\\n, " STRING(VECTOR) "+64*\\n(%rcx)\n .endr\n"
    "   .irp n,0,1,2,3,4,5,6,7\n kmovq %k\\n, " STRING(MASK) "+8*\\n(%rcx)\n .endr\n vzeroupper\n"
    "4: fninit\n ldmxcsr (%rsp)\n fldcw 4(%rsp)\n add $32, %rsp\n"
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n ret\n.size call,.-call\n");

enum { THREADS = 16, ROUNDS = 25, MOST = 1 << 30 };

static int levels[3], level_count;
static uint32_t words[THREADS];

static uint64_t next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 11 ^ *state << 21;
}

static void fill(struct regs *r, uint64_t *state) {
  memset(r, 0, sizeof *r);
  for (int i = 0; i < 12; i++) r->gpr[i] = next(state);
  r->flags = 0x202 | (next(state) & 0xcd5); /* CF PF AF ZF SF DF OF */
  for (int i = 0; i < 8; i++) {
    uint64_t bits = next(state) | 1ull << 63;
    memcpy(r->x87[i], &bits, 8);
    r->x87[i][8] = (unsigned char)next(state);
    r->x87[i][9] = 0x3f;
  }
  for (int i = 0; i < 16; i++) r->red_zone[i] = next(state);
  r->mxcsr = 0x1f80 | (next(state) & 0xe03f);
  r->control = (0x37f & ~(next(state) & 0x100)) | (next(state) & 0xc00);
  for (int i = 0; i < 8; i++) r->mask[i] = next(state);
  for (int i = 0; i < 32; i++)
    for (int b = 0; b < 64; b++) r->vector[i][b] = (unsigned char)next(state);
}

static long checked(uint64_t *state, int level, long nr, const uint64_t arguments[6]) {
  static const char *const names[] = {"rbx", "rbp", "rdi", "rsi", "rdx", "r8", "r9", "r10", "r12", "r13", "r14", "r15"};
  static const int where[] = {2, 3, 4, 7, 5, 6}; /* rdi rsi rdx r10 r8 r9 */
  struct regs in, out;
  fill(&in, state);
  memset(&out, 0, sizeof out);
  for (int i = 0; i < 6; i++)
    if (arguments[i] != MOST) in.gpr[where[i]] = arguments[i];
  in.nr = nr;
  call(&in, &out, level);
  for (int i = 0; i < 12; i++)
    if (in.gpr[i] != out.gpr[i])
      check_failed(__FILE__, __LINE__, "call %ld: %s was %lx, is %lx", nr, names[i], in.gpr[i], out.gpr[i]);
  if ((in.flags ^ out.flags) & 0xcd5)
    check_failed(__FILE__, __LINE__, "call %ld: flags were %lx, are %lx", nr, in.flags, out.flags);
  for (int i = 0; i < 16; i++)
    if (in.red_zone[i] != out.red_zone[i]) check_failed(__FILE__, __LINE__, "call %ld: red zone at -%d", nr, 8 + 8 * i);
  if (in.mxcsr != out.mxcsr) check_failed(__FILE__, __LINE__, "call %ld: MXCSR was %x, is %x", nr, in.mxcsr, out.mxcsr);
  if (in.control != out.control)
    check_failed(__FILE__, __LINE__, "call %ld: x87 control was %x, is %x", nr, in.control, out.control);
  if (out.status & 0x7f) check_failed(__FILE__, __LINE__, "call %ld: x87 status is %x", nr, out.status);
  for (int i = 0; i < 8; i++)
    if (memcmp(in.x87[i], out.x87[i], 10)) check_failed(__FILE__, __LINE__, "call %ld: x87 register %d", nr, i);
  int width = 16 << level;
  for (int i = 0; i < (level == AVX512 ? 32 : 16); i++)
    for (int b = 0; b < width; b++)
      if (in.vector[i][b] != out.vector[i][b])
        check_failed(__FILE__, __LINE__, "call %ld: byte %d of vector register %d", nr, b, i);
  for (int i = 0; i < 8 && level == AVX512; i++)
    if (in.mask[i] != out.mask[i]) check_failed(__FILE__, __LINE__, "call %ld: mask register %d", nr, i);
  return (long)out.nr;
}

#define CALL(nr, ...) checked(&state, level, nr, (uint64_t[6]){__VA_ARGS__})
#define P(x) ((uint64_t)(x))

/* Pairs hand a token to and fro; in between, everything else that parks, and calls that do not. */
static void *body(void *argument) {
  int id = (int)(long)argument, fds[2];
  uint32_t *mine = &words[id], *other = &words[id ^ 1];
  uint64_t state = id * 77 + 5;
  struct timespec short_time = {0, 50000}, long_time = {20, 0};
  OK(pipe(fds));
  for (int round = 1; round <= ROUNDS; round++) {
    int level = levels[round % level_count];
    char byte = 'x';
    if (round % 2 == (id & 1)) usleep(100); /* so that the other one waits already, mostly */
    __atomic_store_n(other, round, __ATOMIC_SEQ_CST);
    CHECK(CALL(SYS_futex, P(other), FUTEX_WAKE_PRIVATE, 1, MOST, MOST, MOST) >= 0);
    while (__atomic_load_n(mine, __ATOMIC_SEQ_CST) < (uint32_t)round) {
      long r = CALL(SYS_futex, P(mine), FUTEX_WAIT_PRIVATE, round - 1, round % 3 ? 0 : P(&long_time), MOST, MOST);
      CHECK(r == 0 || r == -EAGAIN);
    }
    CHECK_EQ(CALL(SYS_futex, P(mine), FUTEX_WAIT_PRIVATE, round + 5, 0, MOST, MOST), -EAGAIN);
    uint32_t alone = 3;
    CHECK_EQ(CALL(SYS_futex, P(&alone), FUTEX_WAIT_PRIVATE, 3, P(&short_time), MOST, MOST), -ETIMEDOUT);
    CHECK_EQ(CALL(SYS_sched_yield, MOST, MOST, MOST, MOST, MOST, MOST), 0);
    CHECK_EQ(CALL(SYS_nanosleep, P(&short_time), 0, MOST, MOST, MOST, MOST), 0);
    CHECK_EQ(CALL(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, P(&short_time), 0, MOST, MOST), 0);
    CHECK_EQ(CALL(SYS_gettid, MOST, MOST, MOST, MOST, MOST, MOST), gettid());
    CHECK_EQ(CALL(SYS_getpid, MOST, MOST, MOST, MOST, MOST, MOST), getpid());
    CHECK_EQ(CALL(SYS_write, (uint64_t)fds[1], P(&byte), 1, MOST, MOST, MOST), 1);
    struct pollfd p = {fds[0], POLLIN, 0};
    CHECK_EQ(CALL(SYS_poll, P(&p), 1, 1000, MOST, MOST, MOST), 1);
    CHECK_EQ(CALL(SYS_read, (uint64_t)fds[0], P(&byte), 1, MOST, MOST, MOST), 1);
    CHECK_EQ(CALL(SYS_poll, P(&p), 1, 1, MOST, MOST, MOST), 0);
    CHECK_EQ(CALL(SYS_close, 999999, MOST, MOST, MOST, MOST, MOST), -EBADF);
  }
  OK(close(fds[0]));
  OK(close(fds[1]));
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  levels[level_count++] = BASE;
  if (__builtin_cpu_supports("avx2")) levels[level_count++] = AVX;
  if (__builtin_cpu_supports("avx512bw")) levels[level_count++] = AVX512;
  for (long i = 1; i < THREADS; i++) threads[i] = start(body, (void *)i);
  body((void *)0L); /* thread 1's partner is main */
  for (int i = 1; i < THREADS; i++) join(threads[i]);
  puts("ok registers");
}
