/* Asserts that queued signals of another process, sent just before it ends a wait for a pipe, are handled, in their order, when the
   read returns, whichever kernel thread gets them; all are, and each once. Nothing but those has a handler. */
#include "check.h"

enum { ROUNDS = 300, EACH = 3 };

static volatile int handled;
static int ask[2], answer[2];

static void on_signal(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  CHECK_EQ(info->si_value.sival_int, handled);
  handled++;
}

static void other_process(pid_t parent) {
  char c;
  for (int n = 0; read(ask[0], &c, 1) == 1;) {
    for (int i = 0; i < EACH; i++) OK(sigqueue(parent, SIGRTMIN + 1, (union sigval){.sival_int = n++}));
    CHECK_EQ(write(answer[1], &c, 1), 1);
  }
  _exit(0);
}

static void *receives(void *unused) {
  sigset_t set;
  int late = 0, start = handled;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 1);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  for (int i = 1; i <= ROUNDS; i++) {
    char c = 'x';
    CHECK_EQ(write(ask[1], &c, 1), 1);
    CHECK_EQ(read(answer[0], &c, 1), 1);
    /* The kernel may take the CPU from who is about to enter the handler. */
    if (handled != start + EACH * i) late++;
    for (int k = 0; k < 20000 && handled < start + EACH * i; k++) usleep(500);
    CHECK_EQ(handled, start + EACH * i);
  }
  CHECK(late <= ROUNDS / 10);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  return unused;
}

int main(void) {
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
  OK(sigaction(SIGRTMIN + 1, &action, 0));
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 1);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  OK(pipe(ask));
  OK(pipe(answer));
  pid_t parent = getpid(), other = fork();
  CHECK(other >= 0);
  if (other == 0) {
    OK(close(ask[1]));
    other_process(parent);
  }
  join(start(receives, 0));
  puts("ok in a thread");
  receives(0);
  puts("ok in main");
  OK(close(ask[1]));
  CHECK_EQ(waitpid(other, 0, 0), other);
}
