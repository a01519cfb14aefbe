/* Asserts how handlers of signals that become deliverable together run: one frame is made after the other, faults first, then the
   lowest number first, the thread's own before the process's, each under the mask that the ones before have left, and the
   last one runs first. What a handler finds of the one that it interrupts: its first instruction, its arguments, its mask. Masks,
   SA_NODEFER, SA_RESETHAND and SA_ONSTACK count as ever; what a handler unblocks or leaves by a jump is as on one that was
   interrupted later. Unblocked by a call, from calls with a mask, and sent to a thread that computes. */
#include "check.h"
#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <ucontext.h>

enum { FIRST = 40, MOST = 64 };

static __thread volatile int order[MOST], values[MOST], count;
static __thread volatile uint64_t masks[MOST], at[MOST], argument[MOST], stacks[MOST];

static uint64_t bits(const sigset_t *set) {
  uint64_t all;
  memcpy(&all, set, sizeof all);
  return all;
}

static sigset_t set_of(uint64_t all) {
  sigset_t set;
  sigemptyset(&set);
  memcpy(&set, &all, sizeof all);
  return set;
}

#define BIT(signal) (1ULL << ((signal)-1))

static void note(int signal, siginfo_t *info, ucontext_t *context) {
  order[count] = signal;
  values[count] = info->si_value.sival_int;
  masks[count] = bits(&context->uc_sigmask);
  at[count] = context->uc_mcontext.gregs[REG_RIP];
  argument[count] = context->uc_mcontext.gregs[REG_RDI];
  stacks[count] = (uint64_t)&signal;
  count++;
}

static void handler(int signal, siginfo_t *info, void *context) { note(signal, info, context); }

static void fault(int signal, siginfo_t *info, void *context) { note(signal, info, context); }

static void handle(int signal, uint64_t mask, int flags, void (*function)(int, siginfo_t *, void *)) {
  struct sigaction action = {.sa_sigaction = function, .sa_mask = set_of(mask), .sa_flags = flags | SA_SIGINFO};
  OK(sigaction(signal, &action, 0));
}

static void block(int how, uint64_t mask) {
  sigset_t set = set_of(mask);
  OK(pthread_sigmask(how, &set, 0));
}

static uint64_t blocked(void) {
  sigset_t set;
  OK(pthread_sigmask(SIG_BLOCK, 0, &set));
  return bits(&set);
}

static void ran(int n, const int *expected) {
  CHECK_EQ(count, n);
  for (int i = 0; i < n; i++) CHECK_EQ(order[i], expected[i]);
  count = 0;
}
#define RAN(...) ran(COUNT(((int[]){__VA_ARGS__})), (int[]){__VA_ARGS__})

static const uint64_t ALL = BIT(FIRST) | BIT(FIRST + 1) | BIT(FIRST + 2) | BIT(FIRST + 3) | BIT(SIGUSR1) | BIT(SIGSEGV);

static void sends(int signal, int value) { OK(pthread_sigqueue(pthread_self(), signal, (union sigval){.sival_int = value})); }

static void send_three(void) {
  for (int i = 2; i >= 0; i--) sends(FIRST + i, i);
}

static void plain(void) {
  for (int i = 0; i < 3; i++) handle(FIRST + i, 0, 0, handler);
  block(SIG_BLOCK, ALL);
  uint64_t before = blocked();
  send_three();
  block(SIG_UNBLOCK, ALL);
  /* The first to run has interrupted the second at its start, and so on. */
  CHECK_EQ(at[0], (uint64_t)handler);
  CHECK_EQ(at[1], (uint64_t)handler);
  CHECK(at[2] != (uint64_t)handler);
  CHECK_EQ(argument[0], FIRST + 1);
  CHECK_EQ(argument[1], FIRST);
  CHECK_EQ(masks[2], before & ~ALL);
  CHECK_EQ(masks[1], (before & ~ALL) | BIT(FIRST));
  CHECK_EQ(masks[0], (before & ~ALL) | BIT(FIRST) | BIT(FIRST + 1));
  CHECK(stacks[0] < stacks[1] && stacks[1] < stacks[2]);
  for (int i = 0; i < 3; i++) CHECK_EQ(values[i], 2 - i);
  RAN(FIRST + 2, FIRST + 1, FIRST);
  CHECK_EQ(blocked(), before & ~ALL);
}

static void masked(void) {
  handle(FIRST, BIT(FIRST + 2), 0, handler);
  block(SIG_BLOCK, ALL);
  send_three();
  block(SIG_UNBLOCK, ALL);
  RAN(FIRST + 1, FIRST, FIRST + 2);
  handle(FIRST, BIT(FIRST + 1) | BIT(FIRST + 2), 0, handler);
  block(SIG_BLOCK, ALL);
  send_three();
  block(SIG_UNBLOCK, ALL);
  RAN(FIRST, FIRST + 2, FIRST + 1);
  handle(FIRST, 0, 0, handler);
}

static void of_one_number(void) {
  for (int flags = 0; flags < 2; flags++) {
    handle(FIRST, 0, flags ? SA_NODEFER : 0, handler);
    block(SIG_BLOCK, ALL);
    for (int i = 0; i < 3; i++) sends(FIRST, i);
    block(SIG_UNBLOCK, ALL);
    for (int i = 0; i < 3; i++) CHECK_EQ(values[i], flags ? 2 - i : i);
    RAN(FIRST, FIRST, FIRST);
  }
  handle(FIRST, 0, 0, handler);
}

static void faults_and_queues(void) {
  handle(SIGSEGV, 0, 0, fault);
  handle(SIGUSR1, 0, 0, handler);
  block(SIG_BLOCK, ALL);
  OK(raise(SIGUSR1));
  OK(raise(SIGSEGV));
  sends(FIRST, 0);
  block(SIG_UNBLOCK, ALL);
  CHECK_EQ(at[1], (uint64_t)fault);
  CHECK_EQ(at[0], (uint64_t)handler);
  RAN(FIRST, SIGUSR1, SIGSEGV);
  signal(SIGSEGV, SIG_DFL);
  /* The thread's own first. */
  block(SIG_BLOCK, ALL);
  OK(sigqueue(getpid(), FIRST, (union sigval){.sival_int = 0}));
  sends(FIRST + 1, 0);
  block(SIG_UNBLOCK, ALL);
  RAN(FIRST, FIRST + 1);
}

static void by_calls(void) {
  struct pollfd none = {.fd = -1};
  sigset_t open = set_of(blocked());
  int epoll = epoll_create1(0);
  CHECK(epoll >= 0);
  for (int how = 0; how < 4; how++) {
    block(SIG_BLOCK, ALL);
    uint64_t before = blocked();
    send_three();
    struct epoll_event event;
    if (how == 0) FAILS(sigsuspend(&open), EINTR);
    if (how == 1) FAILS(ppoll(&none, 1, 0, &open), EINTR);
    if (how == 2) FAILS(pselect(0, 0, 0, 0, 0, &open), EINTR);
    if (how == 3) FAILS(epoll_pwait(epoll, &event, 1, -1, &open), EINTR);
    CHECK_EQ(masks[2], before);
    CHECK_EQ(masks[1], bits(&open) | BIT(FIRST));
    RAN(FIRST + 2, FIRST + 1, FIRST);
    CHECK_EQ(blocked(), before);
    block(SIG_UNBLOCK, ALL);
  }
  OK(close(epoll));
}

static void unblocks(int signal, siginfo_t *info, void *context) {
  note(signal, info, context);
  block(SIG_UNBLOCK, BIT(FIRST + 2));
  CHECK_EQ(order[count - 1], FIRST + 2);
}

static sigjmp_buf place;

static void jumps(int signal, siginfo_t *info, void *context) {
  note(signal, info, context);
  siglongjmp(place, 1);
}

static void other_ends(void) {
  handle(FIRST, BIT(FIRST + 2), 0, unblocks);
  block(SIG_BLOCK, ALL);
  send_three();
  block(SIG_UNBLOCK, ALL);
  RAN(FIRST + 1, FIRST, FIRST + 2);
  handle(FIRST, 0, 0, handler);
  /* The handlers that a jump leaves never run. */
  handle(FIRST + 1, 0, 0, jumps);
  block(SIG_BLOCK, ALL);
  send_three();
  uint64_t before = blocked();
  if (!sigsetjmp(place, 1)) {
    block(SIG_UNBLOCK, ALL);
    CHECK(0);
  }
  CHECK_EQ(blocked(), before);
  RAN(FIRST + 2, FIRST + 1);
  block(SIG_UNBLOCK, ALL);
  RAN();
  handle(FIRST + 1, 0, 0, handler);
  /* Used up before it runs. */
  handle(FIRST, 0, SA_RESETHAND, handler);
  block(SIG_BLOCK, ALL);
  send_three();
  block(SIG_UNBLOCK, ALL);
  RAN(FIRST + 2, FIRST + 1, FIRST);
  struct sigaction action;
  OK(sigaction(FIRST, 0, &action));
  CHECK(action.sa_handler == SIG_DFL);
  handle(FIRST, 0, 0, handler);
}

static void changes(int signal, siginfo_t *info, void *context) {
  note(signal, info, context);
  ucontext_t *c = context;
  if (c->uc_mcontext.gregs[REG_RIP] == (greg_t)handler) c->uc_mcontext.gregs[REG_RIP] = (greg_t)fault;
}

/* What a handler changes in the context of the one that it interrupts. */
static void changed(void) {
  handle(FIRST + 2, 0, 0, changes);
  handle(FIRST, 0, 0, jumps);
  handle(FIRST + 1, 0, 0, handler);
  block(SIG_BLOCK, ALL);
  send_three();
  if (!sigsetjmp(place, 1)) {
    block(SIG_UNBLOCK, ALL);
    CHECK(0);
  }
  RAN(FIRST + 2, FIRST + 1, FIRST);
  block(SIG_UNBLOCK, ALL);
  for (int i = 0; i < 3; i++) handle(FIRST + i, 0, 0, handler);
}

static void on_stacks(void) {
  static __thread char memory[65536];
  stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory}, none = {.ss_flags = SS_DISABLE};
  OK(sigaltstack(&stack, 0));
  for (int which = 0; which < 8; which++) {
    int expected_alt[3], alt = 0;
    for (int i = 0; i < 3; i++) handle(FIRST + i, 0, which & 1 << i ? SA_ONSTACK : 0, handler);
    block(SIG_BLOCK, ALL);
    send_three();
    block(SIG_UNBLOCK, ALL);
    for (int i = 0; i < 3; i++) expected_alt[2 - i] = alt |= which >> i & 1;
    for (int i = 0; i < 3; i++) CHECK_EQ(stacks[i] - (uint64_t)memory < sizeof memory, expected_alt[i]);
    RAN(FIRST + 2, FIRST + 1, FIRST);
  }
  OK(sigaltstack(&none, 0));
  for (int i = 0; i < 3; i++) handle(FIRST + i, 0, 0, handler);
}

static volatile int seen, deepest;
static __thread volatile int depth;

/* Each finds its own stack as it left it, however they interrupt each other. */
static void deep(int signal, siginfo_t *info, void *context) {
  volatile char own[300];
  (void)info, (void)context;
  if (++depth > deepest) deepest = depth;
  for (size_t i = 0; i < sizeof own; i++) own[i] = (char)(signal + i);
  for (volatile int wait = 0; wait < 20000; wait++) continue;
  for (size_t i = 0; i < sizeof own; i++) CHECK_EQ(own[i], (char)(signal + i));
  depth--;
  seen++;
}

static void while_computing(int from_outside) {
  static __thread char memory[65536];
  enum { EACH = 50 };
  stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory}, none = {.ss_flags = SS_DISABLE};
  OK(sigaltstack(&stack, 0));
  for (int i = 0; i < 4; i++) handle(FIRST + i, 0, i % 2 ? SA_ONSTACK : 0, deep);
  seen = deepest = 0;
  pid_t to = getpid(), pid = 0;
  if (from_outside) {
    pid = fork();
    CHECK(pid >= 0);
  }
  if (pid == 0) {
    for (int i = 0; i < 4 * EACH; i++) {
      while (sigqueue(to, FIRST + 3 - i % 4, (union sigval){0})) {
        CHECK_EQ(errno, EAGAIN);
        sleep_ms(1);
      }
      if (from_outside && i % 8 == 7) usleep(200);
    }
    if (from_outside) _exit(0);
  }
  volatile uint64_t sum = 0;
  int64_t end = now_ms() + 20000;
  while (seen < 4 * EACH) {
    for (int i = 0; i < 10000; i++) sum += i;
    CHECK(now_ms() < end);
  }
  int status = 0;
  if (from_outside) while (waitpid(pid, &status, 0) < 0) CHECK_EQ(errno, EINTR);
  CHECK_EQ(status, 0);
  CHECK_EQ(depth, 0);
  OK(sigaltstack(&none, 0));
  for (int i = 0; i < 4; i++) handle(FIRST + i, 0, 0, handler);
}

static void *all(void *parameter) {
  plain();
  masked();
  of_one_number();
  faults_and_queues();
  by_calls();
  other_ends();
  changed();
  on_stacks();
  for (int i = 0; i < 5; i++) {
    while_computing(1);
    while_computing(0);
  }
  return parameter;
}

static void *waits(void *parameter) {
  char c;
  CHECK_EQ(read(*(int *)parameter, &c, 1), 0);
  return parameter;
}

int main(void) {
  for (int i = 0; i < 4; i++) handle(FIRST + i, 0, 0, handler);
  all(0);
  puts("ok alone");
  int ends[2];
  OK(pipe(ends));
  block(SIG_BLOCK, ALL);
  pthread_t other = start(waits, &ends[0]);
  block(SIG_UNBLOCK, ALL);
  all(0);
  block(SIG_BLOCK, ALL);
  join(start(all, 0));
  OK(close(ends[1]));
  join(other);
  puts("ok with others");
}
