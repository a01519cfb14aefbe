/* Asserts that calls which no signal interrupts never fail with EINTR: a thread makes them over and over while another
   sends it signals whose handler, without SA_RESTART, makes such calls too. */
#include "check.h"

enum { SIGNALS = 3000 };

static timer_t timer;
static volatile int handled, sent_all;

static void calls(void) {
  struct itimerspec off = {{0, 0}, {0, 0}};
  OK(timer_settime(timer, 0, &off, 0));
  OK(timer_gettime(timer, &off));
  CHECK_EQ(timer_getoverrun(timer), 0);
  CHECK(getsid(0) >= 0);
  CHECK_EQ(access("/", R_OK), 0);
}

static void handler(int signal) {
  (void)signal;
  handled++;
  calls();
}

static void *caller(void *argument) {
  while (!sent_all) calls();
  return argument;
}

int main(void) {
  struct sigevent nothing = {.sigev_notify = SIGEV_NONE};
  OK(timer_create(CLOCK_MONOTONIC, &nothing, &timer));
  struct sigaction action = {.sa_handler = handler};
  OK(sigaction(SIGUSR1, &action, 0));
  OK(sigaction(SIGUSR2, &action, 0));
  pthread_t thread = start(caller, 0);
  for (int i = 0; i < SIGNALS; i++) {
    OK(pthread_kill(thread, i % 2 ? SIGUSR1 : SIGUSR2));
    if (i % 64 == 0) sleep_ms(1);
  }
  sent_all = 1;
  join(thread);
  CHECK(handled > 0);
  OK(timer_delete(timer));
  puts("ok never interrupted");
}
