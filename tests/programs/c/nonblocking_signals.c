/* Asserts that accept on a non-blocking listener returns at once (a connection, or EAGAIN), whatever signals come: threads
   that are told of each connection race for it, while each of them is sent signals whose handler has SA_RESTART, or has not.
   So it is for reads of a socket that is made non-blocking by one thread while another has read from it. */
#include "check.h"
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { ACCEPTORS = 4, ROUNDS = 1000 };

static int listener, quit[2], accepted, ended, handled, restart;

static void on_signal(int signal) {
  (void)signal;
  __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
}

static void *accepts(void *unused) {
  for (;;) {
    struct pollfd p[2] = {{.fd = listener, .events = POLLIN}, {.fd = quit[0], .events = POLLIN}};
    if (poll(p, 2, -1) < 0) {
      CHECK_EQ(errno, EINTR);
      continue;
    }
    if (p[1].revents) break;
    for (;;) {
      int fd = accept4(listener, 0, 0, SOCK_NONBLOCK);
      if (fd < 0) {
        CHECK(errno == EAGAIN || (errno == EINTR && !restart));
        if (errno == EAGAIN) break;
        continue;
      }
      OK(close(fd));
      __atomic_add_fetch(&accepted, 1, __ATOMIC_SEQ_CST);
    }
  }
  __atomic_add_fetch(&ended, 1, __ATOMIC_SEQ_CST);
  return unused;
}

static void until(int *count, int is) {
  int64_t end = now_ms() + 10000;
  while (__atomic_load_n(count, __ATOMIC_SEQ_CST) < is) {
    CHECK(now_ms() < end);
    usleep(20);
  }
}

static void signals(int flags) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
  restart = flags & SA_RESTART;
  OK(sigaction(SIGUSR1, &action, 0));
  accepted = ended = handled = 0;
  OK(pipe(quit));
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof where;
  listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  OK(bind(listener, (struct sockaddr *)&where, size));
  OK(listen(listener, 64));
  OK(getsockname(listener, (struct sockaddr *)&where, &size));
  pthread_t acceptors[ACCEPTORS];
  for (long i = 0; i < ACCEPTORS; i++) acceptors[i] = start(accepts, 0);
  for (int i = 0; i < ROUNDS; i++) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    OK(connect(fd, (struct sockaddr *)&where, sizeof where));
    for (volatile int wait = 0; wait < i % 50 * 400; wait++) continue;
    for (int k = 0; k < ACCEPTORS; k++) OK(pthread_kill(acceptors[k], SIGUSR1));
    until(&accepted, i + 1);
    OK(close(fd));
  }
  /* No more connections, which would end an accept that waits. */
  CHECK_EQ(write(quit[1], "q", 1), 1);
  until(&ended, ACCEPTORS);
  for (int i = 0; i < ACCEPTORS; i++) join(acceptors[i]);
  CHECK_EQ(accepted, ROUNDS);
  CHECK(handled > 0);
  OK(close(listener));
  OK(close(quit[0]));
  OK(close(quit[1]));
}

static int pair[2];

static void *reads(void *unused) {
  char byte;
  ssize_t n = read(pair[0], &byte, 1);
  CHECK(n == 1 || (n < 0 && errno == EAGAIN));
  return unused;
}

static void made_nonblocking(int by_ioctl) {
  for (int i = 0; i < 200; i++) {
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pthread_t reader = start(reads, 0);
    if (i % 2) usleep(10);
    if (by_ioctl) {
      OK(ioctl(pair[0], FIONBIO, &(int){1}));
    } else {
      OK(fcntl(pair[0], F_SETFL, O_NONBLOCK));
    }
    CHECK_EQ(write(pair[1], "a", 1), 1);
    join(reader);
    char byte;
    if (read(pair[0], &byte, 1) == 1) CHECK_EQ(read(pair[0], &byte, 1), -1); /* the reader came late */
    CHECK_EQ(errno, EAGAIN);
    OK(close(pair[0]));
    OK(close(pair[1]));
  }
}

int main(void) {
  signals(SA_RESTART);
  puts("ok restarted");
  signals(0);
  puts("ok interrupted");
  made_nonblocking(0);
  made_nonblocking(1);
  puts("ok made non-blocking");
}
