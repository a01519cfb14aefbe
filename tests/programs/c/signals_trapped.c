/* Asserts that a seccomp filter that traps calls (SIGSYS) traps those of the program, whose handler gives them their result, and
   no others: reading, waiting for descriptors and for children, and signals work under one that knows the calls of this program only. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <ucontext.h>

static volatile int trapped, usr1;

static void on_trap(int sig, siginfo_t *info, void *context) {
  greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
  CHECK_EQ(sig, SIGSYS);
  CHECK_EQ(regs[REG_RAX], info->si_syscall);
  CHECK_EQ(regs[REG_RIP], (intptr_t)info->si_call_addr); /* what Chromium's and Firefox's sandboxes ask */
  if (info->si_syscall != SYS_fchmod && info->si_syscall != SYS_getppid && info->si_syscall != SYS_truncate)
    check_failed(__FILE__, __LINE__, "trapped %d", info->si_syscall);
  trapped++;
  regs[REG_RAX] = info->si_syscall == SYS_fchmod ? -EXDEV : 1000 + regs[REG_RDI] % 1000;
}

static void on_usr1(int sig) { usr1 += sig == SIGUSR1; }

static int ends[2], back[2];

static void *echo(void *argument) {
  char byte;
  while (read(ends[0], &byte, 1) == 1) CHECK_EQ(write(back[1], &byte, 1), 1);
  return argument;
}

static void *compute(void *argument) {
  while (!*(volatile int *)argument) __asm__ volatile("" ::: "memory");
  return 0;
}

#define TRAP(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)

int main(void) {
  struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO}, other = {.sa_handler = on_usr1};
  OK(sigaction(SIGSYS, &trap, 0));
  OK(sigaction(SIGUSR1, &other, 0));
  OK(pipe(ends));
  OK(pipe(back));
  pthread_t thread, busy;
  int stop = 0;
  OK(pthread_create(&thread, 0, echo, 0));
  OK(pthread_create(&busy, 0, compute, &stop));
  /* What this program does not call, and may be called in its stead. */
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      TRAP(SYS_preadv2), TRAP(SYS_pwritev2), TRAP(SYS_rt_sigtimedwait), TRAP(SYS_rt_sigpending), TRAP(SYS_pidfd_open),
      TRAP(SYS_fchmod), TRAP(SYS_getppid), TRAP(SYS_truncate),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));

  for (int i = 0; i < 300; i++) {
    char byte = (char)i, got;
    struct pollfd ready = {.fd = back[0], .events = POLLIN};
    CHECK_EQ(write(ends[1], &byte, 1), 1);
    if (i % 2) CHECK_EQ(poll(&ready, 1, -1), 1);
    CHECK_EQ(read(back[0], &got, 1), 1);
    CHECK_EQ(got, byte);
  }
  CHECK_EQ(trapped, 0);
  printf("pipes\n");

  CHECK(fchmod(ends[0], 0) == -1 && errno == EXDEV);
  CHECK_EQ(syscall(SYS_getppid, 7), 1007);
  CHECK_EQ(syscall(SYS_truncate, 8, 0), 1008);
  CHECK_EQ(trapped, 3);
  printf("trapped\n");

  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK_EQ(syscall(SYS_getppid, 9), 1009);
    usleep(20000);
    _exit(3);
  }
  int status;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  OK(kill(getpid(), SIGUSR1));
  while (!usr1) usleep(1000);
  stop = 1;
  OK(pthread_join(busy, 0));
  OK(close(ends[1]));
  OK(pthread_join(thread, 0));
  CHECK_EQ(trapped, 3);
  printf("a child, a signal, the end\n");
  return 0;
}
