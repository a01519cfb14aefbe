/* Asserts that a thread whose stack pointer is where nothing can be pushed, as compiled Erlang and OCaml code has it,
   finds what is below it unchanged: while it computes others run, and handlers that run on its alternate stack. The
   same for main. A handler that does not ask for the alternate stack runs on the other, also if its signal comes while
   the thread has been preempted. */
#include "check.h"
#include <stdatomic.h>

enum { ROUNDS = 40, AREA = 16384, SPINNERS = 3 };

struct place {
  unsigned char low[AREA];
  unsigned char above[256] __attribute__((aligned(64)));
};

struct spinner {
  pthread_t thread;
  struct place *place;
  atomic_int ready, leave;
};

static atomic_int on_alternate, elsewhere;
static __thread char *alternate;
enum { ALTERNATE = 65536 };

static int is_on_alternate(const void *at) {
  return (const char *)at >= alternate && (const char *)at < alternate + ALTERNATE;
}

static void on_usr1(int signal) {
  CHECK(is_on_alternate(&signal));
  on_alternate++;
}

static void on_usr2(int signal) {
  CHECK(!is_on_alternate(&signal));
  elsewhere++;
}

static void set_alternate(void) {
  alternate = malloc(ALTERNATE);
  CHECK(alternate);
  stack_t stack = {.ss_sp = alternate, .ss_size = ALTERNATE};
  OK(sigaltstack(&stack, 0));
}

/* Spins with the stack pointer at `top` until *leave is not 0. */
static void spin_there(void *top, atomic_int *leave) {
  __asm__ volatile(
      "mov %%rsp, %%r12\n\t"
      "mov %[top], %%rsp\n"
      "1:\n\t"
      "pause\n\t"
      "cmpl $0, (%[leave])\n\t"
      "je 1b\n\t"
      "mov %%r12, %%rsp"
      :
      : [top] "r"(top), [leave] "r"(leave)
      : "r12", "memory", "cc");
}

static void spin(struct spinner *s) {
  s->place = malloc(sizeof *s->place);
  CHECK(s->place);
  memset(s->place, 0x5a, sizeof *s->place);
  s->ready = 1;
  spin_there(s->place->above, &s->leave);
  for (size_t i = 0; i < sizeof s->place->low; i++) CHECK_EQ(s->place->low[i], 0x5a);
}

static void *spinner(void *argument) {
  set_alternate();
  spin(argument);
  return 0;
}

/* Needs the CPU again and again while the others spin. */
static void disturb(struct spinner *spinners, int count) {
  for (int i = 0; i < count; i++)
    while (!spinners[i].ready) sleep_ms(1);
  for (int round = 0; round < ROUNDS; round++) {
    int before = on_alternate;
    for (int i = 0; i < count; i++) OK(pthread_kill(spinners[i].thread, SIGUSR1));
    while (on_alternate < before + count) sleep_ms(1);
  }
  for (int i = 0; i < count; i++) spinners[i].leave = 1;
}

static void *disturb_main(void *argument) {
  disturb(argument, 1);
  return 0;
}

static void *compute(void *leave) {
  while (!*(atomic_int *)leave) {
  }
  return 0;
}

int main(void) {
  struct sigaction action = {.sa_handler = on_usr1, .sa_flags = SA_ONSTACK | SA_RESTART};
  OK(sigaction(SIGUSR1, &action, 0));
  action = (struct sigaction){.sa_handler = on_usr2, .sa_flags = SA_RESTART};
  OK(sigaction(SIGUSR2, &action, 0));

  static struct spinner spinners[SPINNERS];
  for (int i = 0; i < SPINNERS; i++) spinners[i].thread = start(spinner, &spinners[i]);
  disturb(spinners, SPINNERS);
  for (int i = 0; i < SPINNERS; i++) join(spinners[i].thread);
  CHECK_EQ(on_alternate, SPINNERS * ROUNDS);
  puts("ok threads");

  set_alternate();
  static struct spinner own;
  own.thread = pthread_self();
  pthread_t other = start(disturb_main, &own);
  spin(&own);
  join(other);
  puts("ok main");

  /* Main computes on its ordinary stack beside others, and is sent signals whose handler runs there. */
  static atomic_int leave;
  pthread_t others[3];
  for (int i = 0; i < 3; i++) others[i] = start(compute, &leave);
  pid_t sender = fork();
  CHECK(sender >= 0);
  if (sender == 0) {
    for (int i = 0; i < 200; i++) {
      if (kill(getppid(), SIGUSR2) != 0) _exit(1);
      usleep(1000);
    }
    _exit(0);
  }
  while (elsewhere == 0) {
  }
  int status;
  CHECK_EQ(waitpid(sender, &status, 0), sender);
  CHECK_EQ(status, 0);
  leave = 1;
  for (int i = 0; i < 3; i++) join(others[i]);
  puts("ok the other stack");
}
