/* Asserts that threads with the smallest stack a program may ask for can be preempted as often as it happens, also where
   there are far more processes than CPUs: they wait, print and compute for two seconds beside processes that compute. */
#include "check.h"

enum { THREADS = 8, HOGS = 24 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int taken, leaving;
static FILE *null;

static void *worker(void *argument) {
  for (int stop = 0; !stop;) {
    OK(pthread_mutex_lock(&lock));
    while (taken && !leaving) OK(pthread_cond_wait(&cond, &lock));
    taken = 1;
    OK(pthread_mutex_unlock(&lock));
    CHECK(fputs(".", null) >= 0);
    for (volatile int i = 0; i < 20000; i++) {
    }
    OK(pthread_mutex_lock(&lock));
    taken = 0;
    stop = leaving;
    OK(pthread_mutex_unlock(&lock));
    OK(pthread_cond_broadcast(&cond));
  }
  return argument;
}

int main(void) {
  pid_t hogs[HOGS];
  for (int i = 0; i < HOGS; i++) {
    CHECK((hogs[i] = fork()) >= 0);
    if (hogs[i] == 0) {
      alarm(10);
      for (;;) {
      }
    }
  }
  null = fopen("/dev/null", "w");
  CHECK(null);
  pthread_attr_t small;
  OK(pthread_attr_init(&small));
  OK(pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN));
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) OK(pthread_create(&threads[i], &small, worker, 0));
  sleep_ms(2000);
  OK(pthread_mutex_lock(&lock));
  leaving = 1;
  OK(pthread_mutex_unlock(&lock));
  OK(pthread_cond_broadcast(&cond));
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  for (int i = 0; i < HOGS; i++) {
    OK(kill(hogs[i], SIGKILL));
    CHECK_EQ(waitpid(hogs[i], 0, 0), hogs[i]);
  }
  puts("ok small stacks");
}
