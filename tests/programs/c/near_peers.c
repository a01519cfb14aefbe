/* Asserts that every request is answered, once and in order, when clients and threads that serve them take each other's CPU: the
   clients are threads of another process that ask again as soon as they have the answer, and a request is waited for as database
   servers do it, by a receive that does not wait and a poll. */
#include "check.h"
#include <poll.h>
#include <sys/socket.h>

enum { CONNECTIONS = 12, REQUESTS = 3000 };

static int pairs[CONNECTIONS][2];

static void work(unsigned turns) {
  for (volatile unsigned i = 0; i < turns; i++) {
  }
}

static int take(int fd, unsigned *number) {
  for (;;) {
    ssize_t n = recv(fd, number, sizeof *number, MSG_DONTWAIT);
    if (n == sizeof *number) return 1;
    if (n == 0) return 0;
    CHECK(n < 0 && errno == EAGAIN);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    CHECK_EQ(poll(&p, 1, -1), 1);
  }
}

static void *serve(void *argument) {
  int fd = pairs[(long)argument][0];
  unsigned number, expected = 0;
  while (take(fd, &number)) {
    CHECK_EQ(number, expected);
    expected++;
    work(number % 30000);
    number = ~number;
    CHECK_EQ(send(fd, &number, sizeof number, MSG_DONTWAIT), sizeof number);
  }
  CHECK_EQ(expected, REQUESTS);
  return 0;
}

static void *ask(void *argument) {
  int fd = pairs[(long)argument][1];
  for (unsigned i = 0; i < REQUESTS; i++) {
    unsigned answer;
    CHECK_EQ(send(fd, &i, sizeof i, 0), sizeof i);
    CHECK_EQ(recv(fd, &answer, sizeof answer, MSG_WAITALL), sizeof answer);
    CHECK_EQ(answer, ~i);
  }
  OK(shutdown(fd, SHUT_WR));
  return 0;
}

static void all(void *(*f)(void *)) {
  pthread_t threads[CONNECTIONS];
  for (long i = 0; i < CONNECTIONS; i++) OK(pthread_create(&threads[i], 0, f, (void *)i));
  for (int i = 0; i < CONNECTIONS; i++) OK(pthread_join(threads[i], 0));
}

int main(void) {
  for (int i = 0; i < CONNECTIONS; i++) OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]));
  pid_t clients = fork();
  CHECK(clients >= 0);
  if (clients == 0) {
    for (int i = 0; i < CONNECTIONS; i++) OK(close(pairs[i][0]));
    all(ask);
    _exit(0);
  }
  for (int i = 0; i < CONNECTIONS; i++) OK(close(pairs[i][1]));
  all(serve);
  int status;
  CHECK_EQ(waitpid(clients, &status, 0), clients);
  CHECK_EQ(status, 0);
  puts("ok");
  return 0;
}
