/* Writes to broken pipes and sockets by a process that ignores SIGPIPE and has blocked it once send no signal, by which our handler
   would be entered for nothing; to a thread that blocks it they do. The process is watched by one that traces it, to which
   the kernel tells signals that are ignored, too. For Heddle only. */
#include "../c/check.h"
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef RWF_NOSIGNAL
#define RWF_NOSIGNAL 0x100
#endif

enum { EACH = 20 };

static void *waits(void *argument) {
  char c;
  CHECK_EQ(read(*(int *)argument, &c, 1), 0);
  return argument;
}

static void writes(int fd, int socket) {
  char text[] = "x";
  struct iovec part[2] = {{text, 1}, {text, 1}};
  struct msghdr message = {.msg_iov = part, .msg_iovlen = 2};
  for (int i = 0; i < EACH; i++) {
    FAILS(write(fd, text, 1), EPIPE);
    FAILS(writev(fd, part, 2), EPIPE);
    if (!socket) continue;
    FAILS(send(fd, text, 1, 0), EPIPE);
    FAILS(send(fd, text, 1, MSG_DONTWAIT), EPIPE);
    FAILS(sendmsg(fd, &message, 0), EPIPE);
  }
}

static void traced(int go) {
  char c;
  CHECK_EQ(read(go, &c, 1), 1);
  int pipes[2], sockets[2], held[2];
  OK(pipe(pipes));
  OK(close(pipes[0]));
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
  OK(close(sockets[0]));
  OK(pipe(held));
  sigset_t set, before;
  siginfo_t info;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  signal(SIGPIPE, SIG_IGN);
  OK(pthread_sigmask(SIG_BLOCK, &set, &before)); /* the other thread goes on so */
  pthread_t other = start(waits, &held[0]);
  OK(pthread_sigmask(SIG_SETMASK, &before, 0));
  struct iovec part = {&c, 1};
  int quiet = pwritev2(pipes[1], &part, 1, -1, RWF_NOSIGNAL) == -1 && errno == EPIPE; /* since Linux 6.18 */
  if (quiet) writes(pipes[1], 0);
  writes(sockets[1], 1);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  FAILS(write(pipes[1], &c, 1), EPIPE);
  CHECK_EQ(sigwaitinfo(&set, &info), SIGPIPE);
  FAILS(write(sockets[1], &c, 1), EPIPE);
  CHECK_EQ(sigwaitinfo(&set, &info), SIGPIPE);
  OK(close(held[1]));
  join(other);
  exit(0);
}

int main(void) {
  int go[2], sent = 0;
  OK(pipe(go));
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) traced(go[0]);
  OK(ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL));
  CHECK_EQ(write(go[1], "g", 1), 1);
  for (;;) {
    int status;
    pid_t of = waitpid(-1, &status, __WALL);
    CHECK(of > 0);
    if (!WIFSTOPPED(status)) {
      if (of != pid) continue;
      CHECK_EQ(status, 0);
      break;
    }
    int signal = status >> 16 ? 0 : WSTOPSIG(status);
    sent += signal == SIGPIPE;
    ptrace(PTRACE_CONT, of, 0, signal); /* it may be gone */
  }
  CHECK_EQ(sent, 2);
  puts("ok");
}
