/* Asserts epoll: waiters in several threads, level- and edge-triggered, ONESHOT with re-arming, EXCLUSIVE, time-outs,
   changes while others wait, and eventfd, timerfd, pidfd, signalfd, sockets and another epoll as what is watched. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

enum { THREADS = 8, SOCKETS = 32, MESSAGES = 200 };

static int ep, handled, stop_fd;

static void watch(int epfd, int fd, uint32_t events) {
  struct epoll_event e = {.events = events, .data.fd = fd};
  OK(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e));
}

static int one_event(int epfd, int ms, uint32_t *events) {
  struct epoll_event e;
  int n = epoll_wait(epfd, &e, 1, ms);
  CHECK(n >= 0);
  if (events) *events = n ? e.events : 0;
  return n ? e.data.fd : -1;
}

/* Workers of a server: a socket is one thread's until it arms it again. */
static void *worker(void *argument) {
  for (;;) {
    struct epoll_event events[4];
    int n = epoll_wait(ep, events, 4, -1);
    CHECK(n > 0);
    for (int i = 0; i < n; i++) {
      int fd = events[i].data.fd;
      if (fd == stop_fd) return argument;
      char text[16];
      ssize_t got;
      while ((got = recv(fd, text, sizeof text, MSG_DONTWAIT)) > 0) {
        for (ssize_t b = 0; b < got; b++) {
          __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
          CHECK_EQ(send(fd, &text[b], 1, 0), 1);
        }
      }
      CHECK(got == -1 && errno == EAGAIN);
      struct epoll_event again = {.events = EPOLLIN | EPOLLONESHOT | EPOLLET, .data.fd = fd};
      OK(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &again));
    }
  }
}

static void *talker(void *argument) {
  int fd = (int)(long)argument;
  for (int i = 0; i < MESSAGES; i++) {
    char out = (char)i, in;
    CHECK_EQ(send(fd, &out, 1, 0), 1);
    CHECK_EQ(recv(fd, &in, 1, 0), 1);
    CHECK_EQ(in, out);
  }
  return 0;
}

static void server(void) {
  pthread_t workers[THREADS], talkers[SOCKETS];
  int pairs[SOCKETS][2];
  ep = epoll_create1(EPOLL_CLOEXEC);
  stop_fd = eventfd(0, 0);
  CHECK(ep >= 0 && stop_fd >= 0);
  watch(ep, stop_fd, EPOLLIN);
  for (int i = 0; i < THREADS; i++) workers[i] = start(worker, 0);
  for (int i = 0; i < SOCKETS; i++) {
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]));
    watch(ep, pairs[i][0], EPOLLIN | EPOLLONESHOT | EPOLLET); /* while they wait */
    talkers[i] = start(talker, (void *)(long)pairs[i][1]);
  }
  for (int i = 0; i < SOCKETS; i++) join(talkers[i]);
  uint64_t one = 1;
  CHECK_EQ(write(stop_fd, &one, 8), 8); /* level-triggered: all see it */
  for (int i = 0; i < THREADS; i++) join(workers[i]);
  CHECK_EQ(handled, SOCKETS * MESSAGES);
  for (int i = 0; i < SOCKETS; i++) {
    OK(close(pairs[i][0]));
    OK(close(pairs[i][1]));
  }
  OK(close(stop_fd));
  OK(close(ep));
}

static void *write_late(void *argument) {
  uint64_t one = 1;
  sleep_ms(20);
  CHECK_EQ(write((int)(long)argument, &one, 8), 8);
  return 0;
}

static void triggers(void) {
  int e = epoll_create1(0), fds[2];
  uint32_t events;
  uint64_t value = 1;
  OK(pipe(fds));
  watch(e, fds[0], EPOLLIN | EPOLLET);
  CHECK_EQ(one_event(e, 0, 0), -1);
  int64_t from = now_ms();
  CHECK_EQ(one_event(e, 30, 0), -1);
  TOOK_ABOUT(now_ms() - from, 30);
  pthread_t writer = start(write_late, (void *)(long)fds[1]);
  CHECK_EQ(one_event(e, -1, &events), fds[0]);
  CHECK_EQ(events, EPOLLIN);
  join(writer);
  CHECK_EQ(one_event(e, 5, 0), -1); /* no new edge */
  CHECK_EQ(write(fds[1], &value, 8), 8);
  CHECK_EQ(one_event(e, -1, 0), fds[0]);
  CHECK_EQ(read(fds[0], &value, 8), 8);
  CHECK_EQ(one_event(e, 0, 0), -1); /* something is left, but no new edge */
  struct epoll_event change = {.events = EPOLLIN, .data.fd = fds[0]};
  OK(epoll_ctl(e, EPOLL_CTL_MOD, fds[0], &change));
  for (int i = 0; i < 3; i++) CHECK_EQ(one_event(e, -1, 0), fds[0]); /* level-triggered */
  CHECK_EQ(read(fds[0], &value, 8), 8);
  CHECK_EQ(one_event(e, 0, 0), -1);
  change.events = EPOLLIN | EPOLLONESHOT;
  OK(epoll_ctl(e, EPOLL_CTL_MOD, fds[0], &change));
  CHECK_EQ(write(fds[1], &value, 8), 8);
  CHECK_EQ(one_event(e, -1, 0), fds[0]);
  CHECK_EQ(one_event(e, 5, 0), -1); /* disarmed */
  OK(epoll_ctl(e, EPOLL_CTL_MOD, fds[0], &change));
  CHECK_EQ(one_event(e, -1, 0), fds[0]);
  OK(close(fds[1]));
  OK(epoll_ctl(e, EPOLL_CTL_MOD, fds[0], &change));
  CHECK_EQ(one_event(e, -1, &events), fds[0]);
  CHECK_EQ(events, EPOLLIN | EPOLLHUP);
  FAILS(epoll_ctl(e, EPOLL_CTL_ADD, fds[0], &change), EEXIST);
  OK(epoll_ctl(e, EPOLL_CTL_DEL, fds[0], 0));
  FAILS(epoll_ctl(e, EPOLL_CTL_MOD, fds[0], &change), ENOENT);
  FAILS(epoll_wait(e, &change, 0, 0), EINVAL);
  FAILS(epoll_wait(fds[0], &change, 1, 0), EINVAL);
  OK(close(fds[0]));
  OK(close(e));
}

static int seen;

static void *exclusive_waiter(void *argument) {
  int fd = (int)(long)argument, e = epoll_create1(0);
  uint64_t value;
  watch(e, fd, EPOLLIN | EPOLLEXCLUSIVE);
  for (;;) {
    CHECK_EQ(one_event(e, -1, 0), fd);
    if (read(fd, &value, 8) != 8) continue; /* another was faster */
    if (__atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST) <= 1000) continue;
    OK(close(e));
    return 0;
  }
}

static void exclusive(void) {
  pthread_t threads[THREADS];
  int fd = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
  for (int i = 0; i < THREADS; i++) threads[i] = start(exclusive_waiter, (void *)(long)fd);
  for (int i = 0; i < 1000 + THREADS; i++) {
    uint64_t one = 1;
    CHECK_EQ(write(fd, &one, 8), 8);
    if (i % 100 == 0) usleep(100);
  }
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  CHECK_EQ(seen, 1000 + THREADS);
  OK(close(fd));
}

static void *many_kinds(void *argument) {
  int e = epoll_create1(0), inner = epoll_create1(0);
  uint32_t events;
  uint64_t value;
  int timer = timerfd_create(CLOCK_MONOTONIC, 0), event = eventfd(0, 0);
  CHECK(e >= 0 && inner >= 0 && timer >= 0 && event >= 0);
  watch(e, timer, EPOLLIN);
  watch(e, event, EPOLLIN);
  struct itimerspec in_20 = {.it_value.tv_nsec = 20000000};
  int64_t from = now_ms();
  OK(timerfd_settime(timer, 0, &in_20, 0));
  CHECK_EQ(one_event(e, -1, 0), timer);
  TOOK_ABOUT(now_ms() - from, 20);
  CHECK_EQ(read(timer, &value, 8), 8);
  CHECK_EQ(value, 1);
  pthread_t writer = start(write_late, (void *)(long)event);
  CHECK_EQ(one_event(e, -1, 0), event);
  join(writer);
  CHECK_EQ(read(event, &value, 8), 8);

  watch(inner, event, EPOLLIN);
  OK(epoll_ctl(e, EPOLL_CTL_DEL, event, 0));
  watch(e, inner, EPOLLIN);
  writer = start(write_late, (void *)(long)event);
  CHECK_EQ(one_event(e, -1, 0), inner);
  CHECK_EQ(one_event(inner, 0, 0), event);
  join(writer);
  CHECK_EQ(read(event, &value, 8), 8);

  pid_t pid = fork();
  if (pid == 0) {
    sleep_ms(20);
    _exit(0);
  }
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), status;
  CHECK(pidfd >= 0);
  watch(e, pidfd, EPOLLIN);
  CHECK_EQ(one_event(e, -1, &events), pidfd);
  CHECK_EQ(events & EPOLLIN, EPOLLIN);
  CHECK_EQ(waitpid(pid, &status, WNOHANG), pid);
  OK(close(pidfd));
  OK(close(timer));
  OK(close(event));
  OK(close(inner));
  OK(close(e));
  return argument;
}

/* SIGUSR2 is blocked everywhere, so a signal to the process waits for whoever reads the signalfd. */
static void *signal_reader(void *argument) {
  int e = epoll_create1(0), fd = (int)(long)argument;
  struct signalfd_siginfo info;
  watch(e, fd, EPOLLIN);
  CHECK_EQ(one_event(e, -1, 0), fd);
  CHECK_EQ(read(fd, &info, sizeof info), sizeof info);
  CHECK_EQ(info.ssi_signo, SIGUSR2);
  CHECK_EQ(info.ssi_pid, getpid());
  OK(close(e));
  return 0;
}

int main(void) {
  sigset_t usr2;
  sigemptyset(&usr2);
  sigaddset(&usr2, SIGUSR2);
  OK(pthread_sigmask(SIG_BLOCK, &usr2, 0));
  server();
  puts("ok server");
  triggers();
  puts("ok triggers");
  exclusive();
  puts("ok exclusive");
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) threads[i] = start(many_kinds, 0);
  many_kinds(0);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok kinds");
  int fd = signalfd(-1, &usr2, SFD_CLOEXEC);
  CHECK(fd >= 0);
  threads[0] = start(signal_reader, (void *)(long)fd);
  sleep_ms(20);
  OK(kill(getpid(), SIGUSR2));
  join(threads[0]);
  OK(close(fd));
  puts("ok signalfd");
}
