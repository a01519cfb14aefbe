/* Asserts what signals do to threads that race for the connections of one listener, where the kernel may hold the loser: each
   signal finds its thread, accept fails with EINTR only in a thread whose own handler has run without SA_RESTART, and is begun
   again otherwise, and each connection is accepted once. Signals for one thread and for the process, from it and from
   another, with and without SA_RESTART. */
#include "check.h"
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

enum { ACCEPTORS = 4, ROUNDS = 250 };

static int listener, restart;
static struct sockaddr_in where;
static pthread_t acceptors[ACCEPTORS];
static int handled[ACCEPTORS], begun, accepted, interrupted, of_process;
static __thread int own;
static __thread volatile int ran;

static void on_signal(int signal) {
  ran++;
  __atomic_add_fetch(signal == SIGUSR1 ? &handled[own] : &of_process, 1, __ATOMIC_SEQ_CST);
}

static void *accepts(void *argument) {
  own = (long)argument;
  __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
  for (;;) {
    struct pollfd p = {.fd = listener, .events = POLLIN};
    if (own % 2) poll(&p, 1, -1); /* then accept finds a connection, or another thread has it */
    int before = ran, fd = accept(listener, 0, 0);
    if (fd < 0) {
      CHECK_EQ(errno, EINTR);
      CHECK(!restart);
      CHECK(ran != before);
      __atomic_add_fetch(&interrupted, 1, __ATOMIC_SEQ_CST);
      continue;
    }
    char byte;
    ssize_t n;
    while ((n = read(fd, &byte, 1)) < 0) CHECK_EQ(errno, EINTR);
    CHECK_EQ(n, 1);
    OK(close(fd));
    if (byte == 'q') return 0;
    __atomic_add_fetch(&accepted, 1, __ATOMIC_SEQ_CST);
  }
}

static void connects(char byte) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  OK(connect(fd, (struct sockaddr *)&where, sizeof where));
  CHECK_EQ(write(fd, &byte, 1), 1);
  OK(close(fd));
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
  OK(sigaction(SIGUSR2, &action, 0));
  begun = accepted = interrupted = of_process = 0;
  memset(handled, 0, sizeof handled);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  for (long i = 0; i < ACCEPTORS; i++) acceptors[i] = start(accepts, (void *)i);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0)); /* for them */
  until(&begun, ACCEPTORS);
  for (int i = 0; i < ROUNDS; i++) {
    connects('a');
    for (volatile int wait = 0; wait < i % 50 * 400; wait++) continue;
    OK(pthread_kill(acceptors[i % ACCEPTORS], SIGUSR1));
    until(&handled[i % ACCEPTORS], i / ACCEPTORS + 1);
    until(&accepted, i + 1);
  }
  for (int i = 0; i < ROUNDS / 10; i++) {
    connects('a');
    if (i % 2 == 0) {
      OK(kill(getpid(), SIGUSR2));
    } else {
      pid_t parent = getpid(), pid = fork();
      int status;
      CHECK(pid >= 0);
      if (pid == 0) _exit(kill(parent, SIGUSR2));
      CHECK_EQ(waitpid(pid, &status, 0), pid);
      CHECK_EQ(status, 0);
    }
    until(&of_process, i + 1);
  }
  until(&accepted, ROUNDS + ROUNDS / 10);
  for (int i = 0; i < ACCEPTORS; i++) connects('q');
  for (int i = 0; i < ACCEPTORS; i++) join(acceptors[i]);
  CHECK_EQ(accepted, ROUNDS + ROUNDS / 10);
  CHECK_EQ(of_process, ROUNDS / 10);
  for (int i = 0; i < ACCEPTORS; i++) CHECK_EQ(handled[i], (ROUNDS - i + ACCEPTORS - 1) / ACCEPTORS);
}

int main(void) {
  socklen_t size = sizeof where;
  listener = socket(AF_INET, SOCK_STREAM, 0);
  where = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  OK(bind(listener, (struct sockaddr *)&where, size));
  OK(listen(listener, 64));
  OK(getsockname(listener, (struct sockaddr *)&where, &size));
  signals(SA_RESTART);
  puts("ok restarted");
  signals(0);
  CHECK(interrupted > 0);
  puts("ok interrupted");
}
