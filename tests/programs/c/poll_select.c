/* Asserts poll, ppoll, select and pselect on several descriptors of mixed type: what is ready, time-outs (none, zero,
   some, for ever), a wake-up by another thread, POLLHUP, POLLERR and POLLNVAL, signal masks, many threads at once. */
#include "check.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>

enum { KINDS = 3, THREADS = 24 };

struct set {
  int in[KINDS], out[KINDS]; /* reading from in[k] waits for a poke of out[k]; k: pipe, socket, eventfd */
};

static void open_set(struct set *s) {
  int fds[2];
  OK(pipe(fds));
  s->in[0] = fds[0], s->out[0] = fds[1];
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
  s->in[1] = fds[0], s->out[1] = fds[1];
  CHECK((s->in[2] = eventfd(0, 0)) >= 0);
  s->out[2] = dup(s->in[2]);
}

static void poke(struct set *s, int k) {
  uint64_t one = 1;
  CHECK_EQ(write(s->out[k], &one, 8), 8);
}

static void unpoke(struct set *s, int k) {
  uint64_t value;
  CHECK_EQ(read(s->in[k], &value, 8), 8);
}

static void close_set(struct set *s) {
  for (int k = 0; k < KINDS; k++) {
    OK(close(s->in[k]));
    OK(close(s->out[k]));
  }
}

enum call { POLL, PPOLL, SELECT, PSELECT, CALLS };

/* Waits for any of the set; ms < 0: for ever. Returns the number ready, and which in *ready. */
static int wait_any(enum call call, struct set *s, int ms, int *ready) {
  struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};
  struct timeval tv = {ms / 1000, ms % 1000 * 1000L};
  struct pollfd polls[KINDS + 1];
  fd_set reads;
  sigset_t mask;
  sigemptyset(&mask);
  int n, top = 0;
  FD_ZERO(&reads);
  for (int k = 0; k < KINDS; k++) {
    polls[k] = (struct pollfd){s->in[k], POLLIN, 0x55};
    FD_SET(s->in[k], &reads);
    if (s->in[k] > top) top = s->in[k];
  }
  polls[KINDS] = (struct pollfd){-1, POLLIN, 0x55}; /* ignored */
  switch (call) {
    case POLL: n = poll(polls, KINDS + 1, ms); break;
    case PPOLL: n = ppoll(polls, KINDS + 1, ms < 0 ? 0 : &ts, &mask); break;
    case SELECT: n = select(top + 1, &reads, 0, 0, ms < 0 ? 0 : &tv); break;
    default: n = pselect(top + 1, &reads, 0, 0, ms < 0 ? 0 : &ts, &mask); break;
  }
  *ready = 0;
  if (call <= PPOLL) CHECK_EQ(polls[KINDS].revents, 0);
  if (call == SELECT && n == 0 && ms >= 0) CHECK(tv.tv_sec == 0 && tv.tv_usec == 0); /* Linux: what is left */
  for (int k = 0; k < KINDS && n >= 0; k++)
    if (call <= PPOLL ? polls[k].revents : FD_ISSET(s->in[k], &reads)) {
      if (call <= PPOLL) CHECK_EQ(polls[k].revents, POLLIN);
      *ready |= 1 << k;
    }
  return n;
}

struct late {
  struct set *set;
  int kind;
};

static void *poke_late(void *argument) {
  struct late *late = argument;
  sleep_ms(5);
  poke(late->set, late->kind);
  return 0;
}

static void *everything(void *argument) {
  long id = (long)argument;
  struct set s;
  int ready;
  open_set(&s);
  for (int call = 0; call < CALLS; call++) {
    CHECK_EQ(wait_any(call, &s, 0, &ready), 0);
    int ms = 20 + (int)(id % 7);
    int64_t from = now_ms();
    CHECK_EQ(wait_any(call, &s, ms, &ready), 0);
    TOOK_ABOUT(now_ms() - from, ms);
    for (int k = 0; k < KINDS; k++) {
      for (int i = 0; i < 3; i++) {
        struct late late = {&s, k};
        pthread_t poker = start(poke_late, &late);
        CHECK_EQ(wait_any(call, &s, i == 0 ? 30000 : -1, &ready), 1);
        CHECK_EQ(ready, 1 << k);
        join(poker);
        CHECK_EQ(wait_any(call, &s, 1000, &ready), 1); /* still there */
        unpoke(&s, k);
      }
      CHECK_EQ(wait_any(call, &s, 0, &ready), 0);
    }
    for (int k = 0; k < KINDS; k++) poke(&s, k);
    CHECK_EQ(wait_any(call, &s, -1, &ready), KINDS);
    CHECK_EQ(ready, (1 << KINDS) - 1);
    for (int k = 0; k < KINDS; k++) unpoke(&s, k);
  }
  close_set(&s);
  return 0;
}

static void *close_late(void *fd) {
  sleep_ms(20);
  OK(close((int)(long)fd));
  return 0;
}

static void poll_flags(void) {
  int fds[2], more[2];
  OK(pipe(fds));
  OK(pipe(more));
  struct pollfd p[4] = {{fds[0], POLLIN, 0}, {fds[1], POLLOUT, 0}, {9999, POLLIN, 0}, {fds[0], 0, 0}};
  CHECK_EQ(poll(p, 4, -1), 2);
  CHECK(p[0].revents == 0 && p[1].revents == POLLOUT && p[2].revents == POLLNVAL && p[3].revents == 0);
  CHECK_EQ(poll(p, 1, 0), 0);
  pthread_t closer = start(close_late, (void *)(long)fds[1]);
  CHECK_EQ(poll(p, 1, -1), 1); /* the writer goes: hang-up */
  CHECK_EQ(p[0].revents, POLLHUP);
  join(closer);
  CHECK_EQ(poll(p + 3, 1, -1), 1); /* hang-up needs no asking */
  CHECK_EQ(p[3].revents, POLLHUP);
  OK(close(more[0]));
  p[0] = (struct pollfd){more[1], POLLOUT, 0};
  CHECK_EQ(poll(p, 1, -1), 1);
  CHECK_EQ(p[0].revents, POLLOUT | POLLERR);
  OK(close(more[1]));
  OK(close(fds[0]));
  struct pollfd *volatile nowhere = (struct pollfd *)8;
  FAILS(poll(nowhere, 1, 0), EFAULT);
  int64_t from = now_ms();
  CHECK_EQ(poll(0, 0, 30), 0); /* a way to sleep */
  CHECK_EQ(select(0, 0, 0, 0, &(struct timeval){0, 30000}), 0);
  TOOK_ABOUT(now_ms() - from, 59);
}

static void select_flags(void) {
  int fds[2];
  fd_set reads, writes;
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
  FD_ZERO(&reads);
  FD_ZERO(&writes);
  FD_SET(fds[0], &reads), FD_SET(fds[0], &writes), FD_SET(fds[1], &reads);
  CHECK_EQ(write(fds[1], "x", 1), 1);
  CHECK_EQ(select(fds[1] + 1, &reads, &writes, 0, 0), 2);
  CHECK(FD_ISSET(fds[0], &reads) && FD_ISSET(fds[0], &writes) && !FD_ISSET(fds[1], &reads));
  OK(close(fds[1]));
  FD_ZERO(&reads);
  FD_SET(fds[1], &reads);
  FAILS(select(fds[1] + 1, &reads, 0, 0, 0), EBADF);
  FAILS(select(-1, 0, 0, 0, 0), EINVAL);
  FAILS(select(0, 0, 0, 0, &(struct timeval){-1, 0}), EINVAL);
  OK(close(fds[0]));
}

static int caught;
static void on_signal(int sig) { caught += sig == SIGUSR1; }

/* A pending signal that only the call's own mask lets through ends the wait. */
static void *masks(void *argument) {
  (void)argument;
  sigset_t block, empty;
  sigemptyset(&empty);
  sigemptyset(&block);
  sigaddset(&block, SIGUSR1);
  OK(pthread_sigmask(SIG_BLOCK, &block, 0));
  for (int i = 0; i < 4; i++) {
    caught = 0;
    OK(pthread_kill(pthread_self(), SIGUSR1));
    CHECK_EQ(poll(0, 0, 1), 0);
    CHECK_EQ(caught, 0);
    if (i % 2) FAILS(ppoll(0, 0, 0, &empty), EINTR);
    else FAILS(pselect(0, 0, 0, 0, 0, &empty), EINTR);
    CHECK_EQ(caught, 1);
    sigset_t now;
    OK(pthread_sigmask(SIG_BLOCK, 0, &now));
    CHECK(sigismember(&now, SIGUSR1)); /* the old mask is back */
  }
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  signal(SIGPIPE, SIG_IGN);
  everything(0);
  puts("ok main");
  for (long i = 0; i < THREADS; i++) threads[i] = start(everything, (void *)i);
  for (long i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok threads");
  poll_flags();
  select_flags();
  puts("ok flags");
  signal(SIGUSR1, on_signal);
  masks(0);
  sigset_t block;
  sigemptyset(&block);
  OK(pthread_sigmask(SIG_SETMASK, &block, 0));
  join(start(masks, 0));
  puts("ok masks");
}
