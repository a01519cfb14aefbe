/* Ends by a signal in one of its threads, whose frames a debugger is to find in the core file: outermost, middle, innermost. */
#include "../c/check.h"

/* Frames stay frames. */
#define FRAME __attribute__((noinline, noclone, optimize("no-optimize-sibling-calls")))

static const char *how;
static volatile int zero;
static volatile int *volatile nothing;

FRAME static int descend(volatile char *above, int depth) {
  char room[4096];
  memset(room, depth, sizeof room);
  room[depth % 4096] = above[0];
  return depth < 1000000 ? descend(room, depth + 1) + room[1] : 0;
}

FRAME static int innermost(void) {
  sigset_t set;
  if (!strcmp(how, "null")) return *nothing;
  if (!strcmp(how, "overflow")) return descend((char *)how, 0);
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "blocked")) { /* comes when it is no longer */
    set = set_with(SIGQUIT);
    OK(pthread_sigmask(SIG_BLOCK, &set, 0));
    OK(pthread_kill(pthread_self(), SIGQUIT));
    OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  }
  if (!strcmp(how, "computing")) { /* and while the thread is in no call */
    set = set_with(SIGQUIT);
    OK(pthread_sigmask(SIG_BLOCK, &set, 0));
    OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      sleep_ms(50);
      _exit(kill(parent, SIGQUIT));
    }
    while (!zero) {
    }
  }
  return 0;
}

FRAME static int middle(void) { return innermost() + 1 + zero; }

static void *outermost(void *argument) {
  OK(pthread_setname_np(pthread_self(), "unlucky"));
  how = argument;
  CHECK(middle() == 12345);
  return 0;
}

static void *waits(void *argument) {
  sigset_t set = set_with(SIGQUIT);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  pause();
  return argument;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  start(waits, 0);
  pthread_t thread = start(outermost, argv[1]);
  sigset_t set = set_with(SIGQUIT);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  join(thread);
}
