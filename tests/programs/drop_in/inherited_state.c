/* Prints what a process inherits across execve and the loader: everything here must be the same without and with Heddle. */
#include "../c/check.h"
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern char **environ;

static void last_part(const char *name, const char *path) {
  const char *slash = strrchr(path, '/');
  printf("%s %s\n", name, slash ? slash + 1 : path);
}

int main(int argc, char **argv) {
  char text[4096];
  ssize_t n = readlink("/proc/self/exe", text, sizeof text - 1);
  CHECK(n > 0);
  text[n] = 0;
  last_part("exe", text);
  last_part("invocation", program_invocation_name);
  last_part("execfn", (const char *)getauxval(AT_EXECFN));
  printf("secure %lu\n", getauxval(AT_SECURE));
  prctl(PR_GET_NAME, text);
  printf("comm %s\n", text);
  for (int i = 0; i < argc; i++) printf("argument %d %s\n", i, i ? argv[i] : "");
  FILE *cmdline = fopen("/proc/self/cmdline", "r");
  CHECK(cmdline);
  size_t bytes = fread(text, 1, sizeof text, cmdline), words = 0;
  fclose(cmdline);
  for (size_t i = 0; i < bytes; i++) words += text[i] == 0;
  printf("cmdline of %zu\n", words);
  for (char **e = environ; *e; e++)
    if (strncmp(*e, "HEDDLE_", 7) && strncmp(*e, "LD_PRELOAD=", 11)) printf("environment %s\n", *e);
  printf("umask %o\n", umask(022));
  printf("dumpable %d, personality %x, keepcaps %d, nice %d\n", prctl(PR_GET_DUMPABLE), personality(0xffffffff),
         prctl(PR_GET_KEEPCAPS), getpriority(PRIO_PROCESS, 0));
  for (int r = 0; r < RLIM_NLIMITS; r++) {
    struct rlimit limit;
    OK(getrlimit(r, &limit));
    printf("limit %d: %lu %lu\n", r, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
  }
  sigset_t mask;
  OK(pthread_sigmask(SIG_BLOCK, 0, &mask));
  for (int s = 1; s <= 64; s++) {
    struct sigaction action;
    if (s == 32 || s == 33) continue;
    OK(sigaction(s, 0, &action));
    if (sigismember(&mask, s)) printf("signal %d blocked\n", s);
    if (action.sa_handler == SIG_IGN) printf("signal %d ignored\n", s);
    else if (action.sa_handler != SIG_DFL) printf("signal %d has a handler\n", s);
  }
  stack_t stack;
  OK(sigaltstack(0, &stack));
  printf("alternate stack %d\n", stack.ss_flags);
  for (int fd = 0; fd < 1024; fd++) {
    int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && fd < 100) printf("descriptor %d: flags %x, status %x\n", fd, flags, fcntl(fd, F_GETFL));
  }
  printf("next descriptor %d\n", open("/dev/null", O_RDONLY));
  printf("parent is %s\n", getppid() == getpgrp() ? "the leader" : "another");
  printf("thread is %s\n", gettid() == getpid() ? "the first" : "another");
}
