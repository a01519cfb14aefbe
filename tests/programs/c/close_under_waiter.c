/* Asserts what Linux does when a descriptor is closed, or its number reused, while another thread waits on it: the wait
   goes on with the old open file, and completes with the data that arrives there; nothing else wakes it. */
#include "check.h"
#include <sys/socket.h>

struct wait {
  int fd, begun, done;
  char byte;
};

static void *reader(void *argument) {
  struct wait *w = argument;
  __atomic_store_n(&w->begun, 1, __ATOMIC_SEQ_CST);
  ssize_t n = read(w->fd, &w->byte, 1);
  __atomic_store_n(&w->done, 1, __ATOMIC_SEQ_CST);
  return (void *)(long)n;
}

static void *receiver(void *argument) {
  struct wait *w = argument;
  __atomic_store_n(&w->begun, 1, __ATOMIC_SEQ_CST);
  ssize_t n = recv(w->fd, &w->byte, 1, 0);
  __atomic_store_n(&w->done, 1, __ATOMIC_SEQ_CST);
  return (void *)(long)n;
}

static void pair_of(int kind, int fds[2]) {
  if (kind == 0) OK(pipe(fds));
  else OK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
}

/* How the descriptor goes: 0 close, 1 dup2 of another over it, 2 close and reuse of its number. */
static void one(int kind, int how) {
  int fds[2], extra[2];
  pair_of(kind, fds);
  pair_of(kind, extra);
  struct wait w = {.fd = fds[0]};
  pthread_t thread = start(kind == 1 ? receiver : reader, &w);
  while (!__atomic_load_n(&w.begun, __ATOMIC_SEQ_CST)) sleep_ms(1);
  sleep_ms(100); /* it waits by now */
  if (how == 1) CHECK_EQ(dup2(extra[0], fds[0]), fds[0]);
  else OK(close(fds[0]));
  if (how == 2) CHECK_EQ(fcntl(extra[0], F_DUPFD, fds[0]), fds[0]);
  if (how) CHECK_EQ(write(extra[1], "n", 1), 1); /* for the new owner of the number, not for the waiter */
  sleep_ms(60);
  CHECK_EQ(__atomic_load_n(&w.done, __ATOMIC_SEQ_CST), 0);
  CHECK_EQ(write(fds[1], "o", 1), 1); /* the waiter itself keeps the old file open */
  CHECK_EQ((long)join(thread), 1);
  CHECK_EQ(w.byte, 'o');
  char byte;
  if (how) {
    CHECK_EQ(read(fds[0], &byte, 1), 1);
    CHECK_EQ(byte, 'n');
    OK(close(fds[0]));
  } else {
    FAILS(read(fds[0], &byte, 1), EBADF);
  }
  OK(close(fds[1]));
  OK(close(extra[0]));
  OK(close(extra[1]));
}

int main(void) {
  static const char *const kinds[] = {"pipe", "socket, recv", "socket, read"};
  static const char *const hows[] = {"close", "dup2", "close and reuse"};
  signal(SIGPIPE, SIG_IGN);
  for (int kind = 0; kind < 3; kind++)
    for (int how = 0; how < 3; how++) {
      one(kind, how);
      printf("ok %s: %s\n", kinds[kind], hows[how]);
    }
}
