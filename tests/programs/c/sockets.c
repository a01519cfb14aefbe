/* Asserts stream sockets between threads: connections accepted and echoed, O_NONBLOCK and MSG_DONTWAIT say EAGAIN,
   SO_RCVTIMEO and SO_SNDTIMEO end a wait in time, shutdown wakes a waiting reader and acceptor, a peer's close is end of
   file or EPIPE, MSG_WAITALL and MSG_PEEK, descriptors passed with SCM_RIGHTS, connect refused, accept4's flags. */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { CLIENTS = 32, MESSAGES = 50 };

static struct sockaddr_in address;

static int listener(int backlog) {
  socklen_t size = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(fd >= 0);
  address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  OK(bind(fd, (struct sockaddr *)&address, sizeof address));
  OK(listen(fd, backlog));
  OK(getsockname(fd, (struct sockaddr *)&address, &size));
  return fd;
}

static int dial(void) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  CHECK(fd >= 0);
  OK(connect(fd, (struct sockaddr *)&address, sizeof address));
  OK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
  return fd;
}

/* Both ends of a new TCP connection. */
static void tcp_pair(int pair[2]) {
  int l = listener(1);
  pair[0] = dial();
  pair[1] = accept(l, 0, 0);
  CHECK(pair[1] >= 0);
  OK(close(l));
}

static void close_both(int pair[2]) {
  OK(close(pair[0]));
  OK(close(pair[1]));
}

static void *serve(void *argument) {
  int fd = (int)(long)argument;
  char text[64];
  ssize_t n;
  while ((n = recv(fd, text, sizeof text, 0)) > 0) CHECK_EQ(send(fd, text, n, 0), n);
  CHECK_EQ(n, 0);
  OK(close(fd));
  return 0;
}

static void *acceptor(void *argument) {
  int fd = (int)(long)argument;
  pthread_t threads[CLIENTS];
  for (int i = 0; i < CLIENTS; i++) {
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    int c = accept(fd, (struct sockaddr *)&peer, &size);
    CHECK(c >= 0 && size == sizeof peer && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    threads[i] = start(serve, (void *)(long)c);
  }
  for (int i = 0; i < CLIENTS; i++) join(threads[i]);
  return 0;
}

static void *client(void *argument) {
  long id = (long)argument;
  int fd = dial();
  for (int i = 0; i < MESSAGES; i++) {
    char text[64], reply[64];
    int n = snprintf(text, sizeof text, "client %ld message %d", id, i);
    CHECK_EQ(send(fd, text, n, MSG_NOSIGNAL), n);
    CHECK_EQ(recv(fd, reply, n, MSG_WAITALL), n);
    CHECK(memcmp(text, reply, n) == 0);
  }
  OK(shutdown(fd, SHUT_WR));
  CHECK_EQ(recv(fd, &fd, 1, 0), 0);
  return 0;
}

static void *blocked_recv(void *argument) {
  char byte;
  return (void *)(long)recv((int)(long)argument, &byte, 1, 0);
}

static void *blocked_accept(void *argument) {
  CHECK_EQ(accept((int)(long)argument, 0, 0), -1);
  return (void *)(long)errno;
}

static void *send_slowly(void *argument) {
  for (int i = 0; i < 5; i++) {
    CHECK_EQ(send((int)(long)argument, "abcdefgh", 8, 0), 8);
    sleep_ms(3);
  }
  return 0;
}

static void *drain(void *argument) {
  static char sink[65536];
  long total = 0;
  ssize_t n;
  while ((n = recv((int)(long)argument, sink, sizeof sink, 0)) > 0) total += n;
  return (void *)total;
}

static void nonblocking(int pair[2]) {
  char byte;
  FAILS(recv(pair[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
  OK(fcntl(pair[0], F_SETFL, fcntl(pair[0], F_GETFL) | O_NONBLOCK));
  FAILS(recv(pair[0], &byte, 1, 0), EAGAIN);
  FAILS(read(pair[0], &byte, 1), EAGAIN);
  static char big[1 << 16];
  ssize_t n, total = 0;
  while ((n = send(pair[0], big, sizeof big, 0)) > 0) total += n;
  CHECK(n == -1 && errno == EAGAIN && total > 0);
  pthread_t drainer = start(drain, (void *)(long)pair[1]);
  OK(shutdown(pair[0], SHUT_WR));
  CHECK_EQ((long)join(drainer), total);
}

static void timeouts(int pair[2]) {
  static char big[1 << 16];
  struct timeval t = {0, 50000};
  OK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
  OK(setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t));
  for (int i = 0; i < 2; i++) {
    int64_t from = now_ms();
    FAILS(i ? read(pair[0], big, 1) : recv(pair[0], big, 1, 0), EAGAIN);
    TOOK_ABOUT(now_ms() - from, 50);
  }
  int64_t from = now_ms();
  ssize_t n;
  while ((n = send(pair[0], big, sizeof big, 0)) > 0) from = n == sizeof big ? now_ms() : from;
  CHECK(n == -1 && errno == EAGAIN);
  CHECK(now_ms() - from >= 49);
  t.tv_usec = 0; /* none again */
  OK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
  pthread_t waiter = start(blocked_recv, (void *)(long)pair[0]);
  sleep_ms(80);
  CHECK_EQ(send(pair[1], "x", 1, 0), 1);
  CHECK_EQ((long)join(waiter), 1);
  int l = listener(1);
  t.tv_usec = 50000;
  OK(setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
  from = now_ms();
  FAILS(accept(l, 0, 0), EAGAIN);
  TOOK_ABOUT(now_ms() - from, 50);
  OK(close(l));
}

static void *timeouts_thread(void *pair) {
  timeouts(pair);
  return 0;
}

static void pass_descriptor(void) {
  int pair[2], fds[2];
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  OK(pipe(fds));
  char byte = 'm', room[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(head), &fds[1], sizeof(int));
  CHECK_EQ(sendmsg(pair[0], &message, 0), 1);
  OK(close(fds[1]));
  memset(room, 0, sizeof room);
  CHECK_EQ(recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC), 1);
  head = CMSG_FIRSTHDR(&message);
  CHECK(head && head->cmsg_type == SCM_RIGHTS);
  int passed;
  memcpy(&passed, CMSG_DATA(head), sizeof passed);
  CHECK_EQ(fcntl(passed, F_GETFD), FD_CLOEXEC);
  pthread_t waiter = start(blocked_recv, (void *)(long)pair[1]);
  CHECK_EQ(write(passed, "hello", 5), 5);
  char text[5];
  CHECK_EQ(read(fds[0], text, 5), 5);
  OK(close(passed));
  CHECK_EQ(read(fds[0], text, 5), 0); /* that was the last writer */
  OK(close(pair[0]));
  CHECK_EQ((long)join(waiter), 0); /* the peer's close ends the wait */
  OK(close(pair[1]));
  OK(close(fds[0]));
}

static void *datagrams(void *argument) {
  long sum = 0;
  for (int i = 0; i < 100; i++) {
    int value;
    struct sockaddr_un from;
    socklen_t size = sizeof from;
    CHECK_EQ(recvfrom((int)(long)argument, &value, sizeof value, 0, (struct sockaddr *)&from, &size), sizeof value);
    sum += value;
  }
  return (void *)sum;
}

int main(void) {
  int pair[2];
  signal(SIGPIPE, SIG_IGN);
  int l = listener(CLIENTS);
  pthread_t server = start(acceptor, (void *)(long)l), clients[CLIENTS];
  for (long i = 0; i < CLIENTS; i++) clients[i] = start(client, (void *)i);
  for (int i = 0; i < CLIENTS; i++) join(clients[i]);
  join(server);
  puts("ok echo");

  pthread_t stuck = start(blocked_accept, (void *)(long)l);
  sleep_ms(30);
  OK(shutdown(l, SHUT_RDWR)); /* Linux: wakes accept with EINVAL */
  CHECK_EQ((long)join(stuck), EINVAL);
  OK(close(l));
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  for (int i = 0; i < 2; i++) {
    stuck = start(blocked_recv, (void *)(long)pair[0]);
    sleep_ms(30);
    OK(shutdown(pair[0], SHUT_RD));
    CHECK_EQ((long)join(stuck), 0);
    close_both(pair);
    tcp_pair(pair);
  }
  puts("ok shutdown under a waiter");

  stuck = start(blocked_recv, (void *)(long)pair[0]);
  sleep_ms(20);
  OK(close(pair[1]));
  CHECK_EQ((long)join(stuck), 0);
  pair[1] = dup(pair[0]);
  sleep_ms(5);
  send(pair[0], "x", 1, 0); /* answered with a reset */
  sleep_ms(50);
  CHECK_EQ(send(pair[0], "x", 1, MSG_NOSIGNAL), -1);
  CHECK(errno == EPIPE || errno == ECONNRESET);
  close_both(pair);
  puts("ok close of the peer");

  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  nonblocking(pair);
  close_both(pair);
  tcp_pair(pair);
  nonblocking(pair);
  close_both(pair);
  puts("ok non-blocking");

  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  timeouts(pair);
  close_both(pair);
  tcp_pair(pair);
  join(start(timeouts_thread, pair));
  close_both(pair);
  puts("ok socket time-outs");

  tcp_pair(pair);
  char text[64];
  pthread_t sender = start(send_slowly, (void *)(long)pair[1]);
  CHECK_EQ(recv(pair[0], text, 4, MSG_PEEK), 4);
  CHECK(memcmp(text, "abcd", 4) == 0);
  CHECK_EQ(recv(pair[0], text, 40, MSG_WAITALL), 40);
  for (int i = 0; i < 40; i++) CHECK_EQ(text[i], 'a' + i % 8);
  join(sender);
  CHECK_EQ(send(pair[1], "end", 3, 0), 3);
  OK(shutdown(pair[1], SHUT_WR));
  CHECK_EQ(recv(pair[0], text, 40, MSG_WAITALL), 3); /* less only because of the end */
  close_both(pair);
  puts("ok MSG_PEEK and MSG_WAITALL");

  pass_descriptor();
  puts("ok descriptor passing");

  l = listener(1);
  OK(close(l)); /* nobody listens there any more */
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  FAILS(connect(fd, (struct sockaddr *)&address, sizeof address), ECONNREFUSED);
  OK(close(fd));
  puts("ok connect refused");

  l = listener(4);
  fd = dial();
  int a = accept4(l, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
  CHECK(a >= 0 && fcntl(a, F_GETFD) == FD_CLOEXEC && fcntl(a, F_GETFL) & O_NONBLOCK);
  FAILS(read(a, text, 1), EAGAIN);
  int fd2 = dial(), b = accept(l, 0, 0);
  CHECK(b >= 0 && fcntl(b, F_GETFD) == 0 && !(fcntl(b, F_GETFL) & O_NONBLOCK));
  OK(fcntl(l, F_SETFL, O_NONBLOCK));
  FAILS(accept(l, 0, 0), EAGAIN);
  int all[] = {fd, fd2, a, b, l};
  for (unsigned i = 0; i < COUNT(all); i++) OK(close(all[i]));
  puts("ok accept4");

  OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
  pthread_t receiver = start(datagrams, (void *)(long)pair[0]);
  for (int i = 0; i < 100; i++) CHECK_EQ(send(pair[1], &i, sizeof i, 0), sizeof i); /* blocks when the queue is full */
  CHECK_EQ((long)join(receiver), 4950);
  close_both(pair);
  puts("ok datagrams");
}
