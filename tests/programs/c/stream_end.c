/* Asserts that what ends a wait for a stream is never missed: the end that comes with the last data, a byte that comes while
   another thread polls, and two readers of one socket. */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

static int ends[2];

static void tcp_pair(void) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof where;
  OK(bind(listener, (struct sockaddr *)&where, size));
  OK(listen(listener, 1));
  OK(getsockname(listener, (struct sockaddr *)&where, &size));
  ends[1] = socket(AF_INET, SOCK_STREAM, 0);
  OK(connect(ends[1], (struct sockaddr *)&where, size));
  ends[0] = accept(listener, 0, 0);
  CHECK(ends[0] >= 0);
  OK(close(listener));
}

static void *reads_to_end(void *argument) {
  char bytes[100];
  long total = 0, got;
  while ((got = read(ends[0], bytes, sizeof bytes)) > 0) {
    total += got;
    sleep_ms(20);
  }
  CHECK_EQ(got, 0);
  CHECK_EQ(total, 2);
  return argument;
}

static void *recv_poll_recv(void *argument) {
  char byte;
  for (int i = 0; i < 50; i++) {
    CHECK_EQ(recv(ends[0], &byte, 1, 0), 1);
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    CHECK_EQ(poll(&p, 1, -1), 1);
    char many[16];
    CHECK_EQ(recv(ends[0], many, sizeof many, 0), 1);
  }
  return argument;
}

static int taken;

static void *one_of_two(void *argument) {
  char bytes[16];
  long got;
  while ((got = read(ends[0], bytes, sizeof bytes)) > 0) __atomic_add_fetch(&taken, (int)got, __ATOMIC_SEQ_CST);
  CHECK_EQ(got, 0);
  return argument;
}

int main(void) {
  for (int kind = 0; kind < 2; kind++) {
    if (kind) tcp_pair();
    else OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pthread_t thread = start(reads_to_end, 0);
    sleep_ms(20);
    CHECK_EQ(write(ends[1], "a", 1), 1);
    sleep_ms(10);
    CHECK_EQ(write(ends[1], "b", 1), 1);
    OK(close(ends[1]));
    join(thread);
    OK(close(ends[0]));
  }
  puts("ok the end with the last data");

  tcp_pair();
  pthread_t thread = start(recv_poll_recv, 0);
  for (int i = 0; i < 100; i++) {
    sleep_ms(2);
    CHECK_EQ(write(ends[1], "x", 1), 1);
  }
  join(thread);
  OK(close(ends[0]));
  OK(close(ends[1]));
  puts("ok poll between reads");

  tcp_pair();
  pthread_t readers[2] = {start(one_of_two, 0), start(one_of_two, 0)};
  for (int i = 0; i < 2000; i++) {
    CHECK_EQ(write(ends[1], "y", 1), 1);
    while (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) != i + 1) sched_yield();
  }
  OK(shutdown(ends[1], SHUT_WR));
  for (int i = 0; i < 2; i++) join(readers[i]);
  puts("ok two readers");
}
