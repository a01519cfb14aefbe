/* Asserts waiting for children from threads: waitpid, wait4, waitid and wait, several threads each for its own child,
   WNOHANG, WNOWAIT, __WNOTHREAD, stopped and continued children, ECHILD, ids and statuses. */
#include "check.h"
#include <sys/resource.h>

enum { THREADS = 16 };

/* It begins when it can read a byte from `until`, if that is a descriptor. */
static pid_t spawn_held(int code, int ms, int until) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    char byte;
    if (until >= 0) CHECK_EQ(read(until, &byte, 1), 1);
    sleep_ms(ms);
    _exit(code);
  }
  return pid;
}

static pid_t spawn(int code, int ms) { return spawn_held(code, ms, -1); }

static void *own_child(void *argument) {
  int id = (int)(long)argument, status, hold[2];
  OK(pipe(hold));
  for (int i = 0; i < 4; i++) {
    pid_t pid = spawn_held(id + i, 10 + id % 5, hold[0]);
    CHECK_EQ(waitpid(pid, &status, WNOHANG), 0);
    CHECK_EQ(write(hold[1], "", 1), 1);
    if (i == 0) {
      CHECK_EQ(waitpid(pid, &status, 0), pid);
    } else if (i == 1) {
      struct rusage usage;
      CHECK_EQ(wait4(pid, &status, 0, &usage), pid);
      CHECK(usage.ru_utime.tv_sec >= 0 && usage.ru_maxrss > 0);
    } else {
      siginfo_t info;
      memset(&info, 0, sizeof info);
      OK(waitid(P_PID, pid, &info, WEXITED | (i == 3 ? WNOWAIT : 0)));
      CHECK(info.si_pid == pid && info.si_code == CLD_EXITED && info.si_status == id + i && info.si_signo == SIGCHLD);
      if (i == 2) continue;
      CHECK_EQ(waitpid(pid, &status, 0), pid); /* still there */
    }
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), id + i);
    FAILS(waitpid(pid, &status, 0), ECHILD);
  }
  OK(close(hold[0]));
  OK(close(hold[1]));
  return 0;
}

/* Its own child, wherever the thread has been since. */
static void *of_this_thread(void *argument) {
  for (int i = 0; i < 6; i++) {
    int status;
    pid_t pid = spawn(i, i % 3 * 10);
    for (int k = 0; k < 5; k++) sleep_ms(1);
    if (i == 2) {
      siginfo_t info = {0};
      OK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT | __WNOTHREAD));
      CHECK_EQ(info.si_pid, pid);
    }
    CHECK_EQ(waitpid(pid, &status, __WNOTHREAD), pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), i);
  }
  return argument;
}

static int reaped;
static char done[5000];

/* Any of them will do: each is reaped once. */
static void *any_child(void *argument) {
  int status;
  pid_t pid;
  while ((pid = wait(&status)) > 0) {
    CHECK(WIFEXITED(status));
    CHECK_EQ(__atomic_add_fetch(&done[WEXITSTATUS(status)], 1, __ATOMIC_SEQ_CST), 1);
    __atomic_add_fetch(&reaped, 1, __ATOMIC_SEQ_CST);
  }
  CHECK_EQ(errno, ECHILD);
  return argument;
}

static void *kinds(void *argument) {
  int status;
  siginfo_t info;
  pid_t pid = fork();
  if (pid == 0)
    for (;;) pause();
  OK(kill(pid, SIGSTOP));
  CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
  CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
  OK(kill(pid, SIGCONT));
  CHECK_EQ(waitpid(pid, &status, WCONTINUED), pid);
  CHECK(WIFCONTINUED(status));
  memset(&info, 0, sizeof info);
  OK(waitid(P_PID, pid, &info, WEXITED | WNOHANG));
  CHECK_EQ(info.si_pid, 0);
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  CHECK(pidfd >= 0);
  OK(kill(pid, SIGTERM));
  OK(waitid(P_PIDFD, pidfd, &info, WEXITED));
  CHECK(info.si_pid == pid && info.si_code == CLD_KILLED && info.si_status == SIGTERM);
  OK(close(pidfd));
  FAILS(waitpid(getpid(), &status, 0), ECHILD);
  FAILS(waitpid(pid, &status, 0x1000000), EINVAL);
  return argument;
}

/* Lets a child end that main waits for. */
static void *ticker(void *argument) {
  for (int i = 0; i < 10; i++) sleep_ms(1);
  CHECK_EQ(write((int)(long)argument, "", 1), 1);
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  int status;
  FAILS(wait(&status), ECHILD);
  for (long i = 0; i < THREADS; i++) threads[i] = start(own_child, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  own_child((void *)50L);
  for (int i = 0; i < THREADS; i++) threads[i] = start(of_this_thread, 0);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok own children");
  for (int i = 0; i < 40; i++) spawn(i, 20);
  for (int i = 0; i < THREADS; i++) threads[i] = start(any_child, 0);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  CHECK_EQ(reaped, 40);
  puts("ok any child");
  kinds(0);
  for (int i = 0; i < THREADS; i++) threads[i] = start(kinds, 0);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok kinds");
  int hold[2];
  OK(pipe(hold));
  pid_t pid = spawn_held(3, 0, hold[0]);
  threads[0] = start(ticker, (void *)(long)hold[1]);
  CHECK_EQ(waitpid(pid, &status, 0), pid); /* main waits, others go on */
  join(threads[0]);
  puts("ok others go on");
}
