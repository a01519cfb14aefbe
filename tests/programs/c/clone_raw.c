/* Asserts clone(2) without pthreads, as runtimes of other languages use it: threads with thread pointers and stacks of
   their own, PARENT_SETTID, CHILD_SETTID and CHILD_CLEARTID with its wake-up, waiting and yielding by raw system calls; and
   clone of a process that shares memory, with and without CLONE_VFORK. The new threads use no libc. */
#include "check.h"
#include <linux/futex.h>

enum { THREADS = 16, STACK = 65536, ROUNDS = 50 };

#ifndef CLONE_VM
#error "sched.h"
#endif

static long raw(long nr, long a, long b, long c, long d) {
  register long r10 __asm__("r10") = d;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
}

struct task {
  uint64_t tls[64]; /* tls[0] points to itself, as the ABI wants */
  int id, parent_tid, child_tid, own_tid, wrong, fds[2];
  long result;
};

static struct task tasks[THREADS];
static uint32_t turn, shared_word;

static uint64_t thread_pointer(void) {
  uint64_t value;
  __asm__ volatile("mov %%fs:0, %0" : "=r"(value));
  return value;
}

__attribute__((optimize("no-stack-protector"))) static int body(void *argument) {
  struct task *t = argument;
  struct timespec short_time = {0, 50000};
  char byte = 'r';
  t->own_tid = (int)raw(SYS_gettid, 0, 0, 0, 0);
  if (t->child_tid != t->own_tid) t->wrong = 1;
  for (int i = 0; i < ROUNDS; i++) {
    if (thread_pointer() != (uint64_t)t->tls || t->tls[9] != 0x1234 + (uint64_t)t->id) t->wrong = 2;
    switch (i % 4) {
      case 0: raw(SYS_sched_yield, 0, 0, 0, 0); break;
      case 1:
        if (raw(SYS_nanosleep, (long)&short_time, 0, 0, 0)) t->wrong = 3;
        break;
      case 2:
        if (raw(SYS_write, t->fds[1], (long)&byte, 1, 0) != 1 || raw(SYS_read, t->fds[0], (long)&byte, 1, 0) != 1) t->wrong = 4;
        break;
      case 3: /* in turn, by futex */
        for (uint32_t now; (now = __atomic_load_n(&turn, __ATOMIC_SEQ_CST)) % THREADS != (uint32_t)t->id;)
          raw(SYS_futex, (long)&turn, FUTEX_WAIT_PRIVATE, now, 0);
        __atomic_add_fetch(&turn, 1, __ATOMIC_SEQ_CST);
        raw(SYS_futex, (long)&turn, FUTEX_WAKE_PRIVATE, INT_MAX, 0);
        break;
    }
    if (raw(SYS_gettid, 0, 0, 0, 0) != t->own_tid) t->wrong = 5;
    t->result += i;
  }
  raw(SYS_exit, 0, 0, 0, 0);
  __builtin_unreachable();
}

static void threads(void) {
  char *stacks = mmap(0, THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
              CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
  CHECK(stacks != MAP_FAILED);
  memset(tasks, 0, sizeof tasks);
  turn = 0;
  for (int i = 0; i < THREADS; i++) {
    struct task *t = &tasks[i];
    t->id = i;
    t->tls[0] = (uint64_t)t->tls;
    t->tls[2] = (uint64_t)t->tls;
    t->tls[9] = 0x1234 + (uint64_t)i;
    t->child_tid = -1;
    OK(pipe(t->fds));
    int tid = clone(body, stacks + (i + 1) * STACK, flags, t, &t->parent_tid, t->tls, &t->child_tid);
    CHECK(tid > 0);
    CHECK_EQ(t->parent_tid, tid);
  }
  for (int i = 0; i < THREADS; i++) {
    struct task *t = &tasks[i];
    for (int tid; (tid = __atomic_load_n(&t->child_tid, __ATOMIC_SEQ_CST));) /* 0 when it has ended */
      syscall(SYS_futex, &t->child_tid, FUTEX_WAIT, tid, 0, 0, 0);
    CHECK_EQ(t->wrong, 0);
    CHECK_EQ(t->own_tid, t->parent_tid);
    CHECK_EQ(t->result, ROUNDS * (ROUNDS - 1) / 2);
    OK(close(t->fds[0]));
    OK(close(t->fds[1]));
  }
  OK(munmap(stacks, THREADS * STACK)); /* they are off them */
}

static void *threads_from_thread(void *argument) {
  threads();
  return argument;
}

/* A process that shares our memory: not a thread. */
__attribute__((optimize("no-stack-protector"))) static int process(void *argument) {
  struct timespec t = {0, 5000000};
  raw(SYS_nanosleep, (long)&t, 0, 0, 0);
  *(int *)argument = (int)raw(SYS_getpid, 0, 0, 0, 0);
  __atomic_add_fetch(&shared_word, 1, __ATOMIC_SEQ_CST);
  raw(SYS_exit_group, 21, 0, 0, 0);
  __builtin_unreachable();
}

static void processes(void) {
  char *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(stack != MAP_FAILED);
  for (int i = 0; i < 4; i++) {
    int status, seen = 0;
    pid_t pid = clone(process, stack + STACK, CLONE_VM | (i % 2 ? CLONE_VFORK : 0) | SIGCHLD, &seen);
    CHECK(pid > 0);
    if (i % 2) CHECK_EQ(seen, pid); /* it has ended already */
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 21);
    CHECK_EQ(*(volatile int *)&seen, pid);
  }
  OK(munmap(stack, STACK));
}

/* A process on our memory and a thread wake each other through a word, as a leak checker's tracer does. */
static int handover[2];

__attribute__((optimize("no-stack-protector"))) static int partner(void *unused) {
  (void)unused;
  for (int i = 1; i <= 20; i++) {
    while (__atomic_load_n(&handover[0], __ATOMIC_SEQ_CST) < i)
      raw(SYS_futex, (long)&handover[0], FUTEX_WAIT | FUTEX_PRIVATE_FLAG, i - 1, 0);
    __atomic_store_n(&handover[1], i, __ATOMIC_SEQ_CST);
    raw(SYS_futex, (long)&handover[1], FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0);
  }
  return 22;
}

static void process_and_thread(void) {
  char *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(stack != MAP_FAILED);
  handover[0] = handover[1] = 0;
  int status;
  pid_t pid = clone(partner, stack + STACK, CLONE_VM | SIGCHLD, NULL);
  CHECK(pid > 0);
  for (int i = 1; i <= 20; i++) {
    usleep(i % 2 ? 2000 : 0); /* it sleeps already, or does not yet */
    __atomic_store_n(&handover[0], i, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &handover[0], FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
    while (__atomic_load_n(&handover[1], __ATOMIC_SEQ_CST) < i)
      syscall(SYS_futex, &handover[1], FUTEX_WAIT | FUTEX_PRIVATE_FLAG, i - 1, 0, 0, 0);
  }
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 22);
  OK(munmap(stack, STACK));
}

static void *processes_from_thread(void *argument) {
  processes();
  process_and_thread();
  return argument;
}

int main(void) {
  threads();
  puts("ok threads");
  join(start(threads_from_thread, 0));
  puts("ok threads from a thread");
  processes();
  join(start(processes_from_thread, 0));
  CHECK_EQ(shared_word, 8);
  puts("ok processes that share memory");
}
