/* Asserts handlers for faults, in many threads at once: SIGSEGV with siglongjmp and with a repaired context, SIGBUS,
   SIGFPE, SIGILL and SIGTRAP with the right address, on the thread's alternate stack, and a stack overflow survived. */
#include "check.h"
#include <setjmp.h>
#include <ucontext.h>

enum { THREADS = 12, ROUNDS = 10, ALTERNATE = 65536 };

static __thread sigjmp_buf jump;
static __thread void *volatile address;
static __thread volatile int signo, code, mode, id, on_alternate;
static __thread char *alternate;
enum { JUMP, SKIP, MAP };

static void on_fault(int sig, siginfo_t *info, void *context) {
  ucontext_t *u = context;
  char here;
  signo = sig;
  code = info->si_code;
  address = info->si_addr;
  on_alternate = &here >= alternate && &here < alternate + ALTERNATE;
  if (mode == JUMP) siglongjmp(jump, 1);
  if (mode == SKIP) u->uc_mcontext.gregs[REG_RIP] += 3, u->uc_mcontext.gregs[REG_RAX] = 1234 + id;
  if (mode == MAP) CHECK_EQ(mprotect((void *)((uintptr_t)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE), 0);
}

/* An instruction of exactly three bytes that reads where p points to. */
static long load(const void *p) {
  register const void *where __asm__("rbx") = p;
  long result = 0;
  __asm__ volatile(".byte 0x48, 0x8b, 0x03" : "+a"(result) : "r"(where) : "memory"); /* mov (%rbx), %rax */
  return result;
}

__attribute__((noinline)) static int overflow(int depth) {
  volatile char block[4096];
  if (depth < 0) return 0;
  block[depth % 4096] = (char)depth;
  return overflow(depth + 1) + block[(depth * 7) % 4096];
}

static void *body(void *argument) {
  id = (int)(long)argument;
  stack_t stack = {.ss_sp = alternate = malloc(ALTERNATE), .ss_size = ALTERNATE};
  OK(sigaltstack(&stack, 0));
  char name[40];
  snprintf(name, sizeof name, "empty-%d", id);
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  char *empty = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  char *closed = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(fd >= 0 && empty != MAP_FAILED && closed != MAP_FAILED);
  OK(close(fd));
  OK(unlink(name));
  for (int round = 0; round < ROUNDS; round++) {
    volatile int zero = 0, hundred = 100;
    volatile int *volatile low = (int *)8;
    mode = JUMP;
    if (sigsetjmp(jump, 1) == 0) *(volatile int *)(closed + 16) = 1;
    CHECK(signo == SIGSEGV && code == SEGV_ACCERR && address == closed + 16 && on_alternate);
    sched_yield();
    if (sigsetjmp(jump, 1) == 0) *low = 1;
    CHECK(signo == SIGSEGV && code == SEGV_MAPERR && address == (void *)8);
    if (sigsetjmp(jump, 1) == 0) *(volatile char *)(empty + 5) = 1;
    CHECK(signo == SIGBUS && address == empty + 5);
    usleep(100);
    if (sigsetjmp(jump, 1) == 0) hundred = hundred / zero;
    CHECK(signo == SIGFPE && code == FPE_INTDIV);
    if (sigsetjmp(jump, 1) == 0) __asm__ volatile("ud2");
    CHECK(signo == SIGILL);
    sigset_t now; /* siglongjmp gave the mask back */
    OK(pthread_sigmask(SIG_BLOCK, 0, &now));
    CHECK(!sigismember(&now, SIGSEGV) && !sigismember(&now, SIGILL));
    mode = SKIP;
    CHECK_EQ(load(closed), 1234 + id);
    mode = MAP;
    *(volatile int *)(closed + 8) = round + id; /* goes on after the repair */
    CHECK(signo == SIGSEGV && address == closed + 8);
    CHECK_EQ(*(int *)(closed + 8), round + id);
    OK(mprotect(closed, 4096, PROT_NONE));
    mode = SKIP;
    /* A trap comes after its instruction. Often, so that some coincide with the end of a time slice. */
    for (int i = 0; i < 100; i++) {
      signo = 0;
      __asm__ volatile("int3; nop; nop; nop" ::: "rax");
      CHECK_EQ(signo, SIGTRAP);
    }
    mode = JUMP;
    if (round % 5 == 0 && sigsetjmp(jump, 1) == 0) zero = overflow(id);
    if (round % 5 == 0) CHECK(signo == SIGSEGV && on_alternate);
  }
  OK(munmap(empty, 4096));
  OK(munmap(closed, 4096));
  stack.ss_flags = SS_DISABLE;
  OK(sigaltstack(&stack, 0));
  free(alternate);
  return 0;
}

int main(void) {
  static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
  pthread_t threads[THREADS];
  pthread_attr_t attr;
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  for (unsigned i = 0; i < COUNT(signals); i++) OK(sigaction(signals[i], &action, 0));
  OK(pthread_attr_init(&attr));
  OK(pthread_attr_setstacksize(&attr, 256 * 1024));
  for (long i = 0; i < THREADS; i++) OK(pthread_create(&threads[i], &attr, body, (void *)i));
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok threads");
  body((void *)99L);
  puts("ok main");
}
