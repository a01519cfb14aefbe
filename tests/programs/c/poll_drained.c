/* Asserts that who waits for input of a TCP socket that has been read to its end is woken by what comes next, whatever call took
   the last of it (all, a part, with MSG_DONTWAIT, after MSG_PEEK), whatever call waits, and though the same or another thread has
   read meanwhile; that a handler ends the wait; that a socket of
   another kind with the same number is not taken for one that is read to its end; and that what is there already is told at once. */
#include "tcp_pair.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

enum { PAIRS = 6, BYTES = 60000, LONGEST = 700, MOST_MS = 20000 };

struct pair {
  int ends[2];
  unsigned seed;
  int nonblocking;
  pthread_mutex_t lock;
  long taken;
};

static unsigned next(unsigned *seed) { return (*seed = *seed * 1664525 + 1013904223) >> 8; }

/* Waits until the socket can be read: by poll, ppoll, select or epoll_wait. */
static void wait_for_input(int fd, int epoll, unsigned how) {
  struct pollfd p = {.fd = fd, .events = how & 8 ? POLLIN | POLLPRI : POLLIN | POLLRDHUP};
  struct timespec time = {MOST_MS / 1000, 0};
  struct timeval value = {MOST_MS / 1000, 0};
  struct epoll_event event;
  fd_set set;
  switch (how % 8) {
    case 0: CHECK_EQ(ppoll(&p, 1, &time, 0), 1); break;
    case 1:
      FD_ZERO(&set);
      FD_SET(fd, &set);
      CHECK_EQ(select(fd + 1, &set, 0, 0, &value), 1);
      break;
    case 2: CHECK_EQ(epoll_wait(epoll, &event, 1, MOST_MS), 1); break;
    default: CHECK_EQ(poll(&p, 1, MOST_MS), 1);
  }
}

static void *sends(void *argument) {
  struct pair *p = argument;
  unsigned seed = p->seed + 1;
  for (long sent = 0; sent < BYTES;) {
    char bytes[LONGEST];
    long len = 1 + next(&seed) % LONGEST;
    if (len > BYTES - sent) len = BYTES - sent;
    for (long i = 0; i < len; i++) bytes[i] = (char)(sent + i);
    CHECK_EQ(write(p->ends[1], bytes, len), len);
    sent += len;
    if (next(&seed) % 4 == 0) usleep(next(&seed) % 200);
    for (volatile unsigned n = next(&seed) % 500; n; n--) continue;
  }
  return argument;
}

/* Two of them read from one socket; the lock makes the order of the bytes known, and not who waits. */
static void *receives(void *argument) {
  struct pair *p = argument;
  static unsigned readers;
  unsigned seed = p->seed + 100 * __atomic_add_fetch(&readers, 1, __ATOMIC_RELAXED);
  int epoll = epoll_create1(0), done = 0;
  struct epoll_event event = {.events = EPOLLIN};
  OK(epoll_ctl(epoll, EPOLL_CTL_ADD, p->ends[0], &event));
  while (!done) {
    wait_for_input(p->ends[0], epoll, next(&seed));
    OK(pthread_mutex_lock(&p->lock));
    char bytes[LONGEST];
    int peeks = next(&seed) % 4 == 0;
    long len = next(&seed) % 3 ? LONGEST : 1 + next(&seed) % 20;
    long got = peeks ? recv(p->ends[0], bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT) : 1;
    if (got > 0) got = recv(p->ends[0], bytes, len, p->nonblocking ? 0 : MSG_DONTWAIT);
    if (got < 0) CHECK_EQ(errno, EAGAIN); /* the other was first */
    for (long i = 0; i < got; i++) CHECK_EQ(bytes[i], (char)(p->taken + i));
    if (got > 0) p->taken += got;
    done = p->taken == BYTES;
    if (done) OK(shutdown(p->ends[0], SHUT_RD)); /* and the other sees the end */
    OK(pthread_mutex_unlock(&p->lock));
  }
  OK(close(epoll));
  return argument;
}

static int ends[2];
static volatile int handled;

static void on_signal(int number) { handled += number == SIGUSR1; }

static void *polls(void *result) {
  struct pollfd p = {.fd = ends[0], .events = POLLIN};
  *(int *)result = poll(&p, 1, MOST_MS) < 0 ? -errno : p.revents;
  return result;
}

static void ended_by_a_handler(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  OK(sigaction(SIGUSR1, &action, 0));
  tcp_pair(ends);
  char bytes[100];
  for (int i = 0; i < 20; i++) {
    int result = 0;
    pthread_t thread = start(polls, &result);
    if (i % 2) sleep_ms(2);
    CHECK_EQ(write(ends[1], "four", 4), 4);
    join(thread);
    CHECK_EQ(result, POLLIN);
    CHECK_EQ(read(ends[0], bytes, sizeof bytes), 4); /* drained */
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    CHECK_EQ(poll(&p, 1, 0), 0);
    CHECK_EQ(poll(&p, 1, 1), 0);
    thread = start(polls, &result);
    sleep_ms(5);
    OK(pthread_kill(thread, SIGUSR1));
    join(thread);
    CHECK_EQ(result, -EINTR);
    CHECK_EQ(handled, i + 1);
  }
  OK(close(ends[1]));
  struct pollfd p = {.fd = ends[0], .events = POLLIN};
  CHECK_EQ(poll(&p, 1, MOST_MS), 1);
  CHECK_EQ(read(ends[0], bytes, sizeof bytes), 0);
  CHECK_EQ(poll(&p, 1, MOST_MS), 1); /* and again */
  OK(close(ends[0]));
  CHECK_EQ(poll(&p, 1, MOST_MS), 1);
  CHECK_EQ(p.revents, POLLNVAL);
}

/* The number was a TCP socket's, and is one of datagrams: a short one does not mean that there is no other. */
static void number_used_again(void) {
  struct pollfd p = {.events = POLLIN};
  char bytes[100];
  tcp_pair(ends);
  p.fd = ends[0];
  CHECK_EQ(write(ends[1], "four", 4), 4);
  CHECK_EQ(poll(&p, 1, MOST_MS), 1);
  CHECK_EQ(recv(ends[0], bytes, sizeof bytes, 0), 4);
  CHECK_EQ(poll(&p, 1, 1), 0);
  OK(close(ends[1]));
  int pair[2];
  OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
  CHECK_EQ(dup2(pair[0], p.fd), p.fd);
  CHECK_EQ(poll(&p, 1, 1), 0);
  for (int i = 0; i < 2; i++) CHECK_EQ(send(pair[1], "five!", 5, 0), 5);
  for (int i = 0; i < 2; i++) {
    sleep_ms(20); /* all that there is to hear has been heard */
    int64_t begin = now_ms();
    CHECK_EQ(poll(&p, 1, MOST_MS), 1);
    CHECK(now_ms() - begin < MOST_MS / 2);
    CHECK_EQ(recv(p.fd, bytes, sizeof bytes, MSG_DONTWAIT), 5);
  }
  OK(close(p.fd));
  OK(close(pair[0]));
  OK(close(pair[1]));
}

int main(void) {
  struct pair pairs[PAIRS];
  pthread_t threads[PAIRS][3];
  for (int i = 0; i < PAIRS; i++) {
    pairs[i] = (struct pair){.seed = 1000u * i, .nonblocking = i % 2, .lock = PTHREAD_MUTEX_INITIALIZER};
    tcp_pair(pairs[i].ends);
    if (i % 2) OK(fcntl(pairs[i].ends[0], F_SETFL, O_NONBLOCK));
    threads[i][0] = start(receives, &pairs[i]);
    threads[i][1] = start(receives, &pairs[i]);
    threads[i][2] = start(sends, &pairs[i]);
  }
  for (int i = 0; i < PAIRS; i++)
    for (int k = 0; k < 3; k++) join(threads[i][k]);
  ended_by_a_handler();
  number_used_again();
  puts("ok");
}
