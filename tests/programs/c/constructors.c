/* Asserts threads before main and after it: constructors start some that stay, and some that end; main uses them; an
   atexit handler and a destructor start and join more. */
#include "check.h"

enum { THREADS = 6 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER, answered = PTHREAD_COND_INITIALIZER;
static int questions, answers, stop, early_sum;
static pthread_t servants[THREADS];
static __thread int own = 3;

static void *servant(void *argument) {
  own += (int)(long)argument;
  OK(pthread_mutex_lock(&mutex));
  for (;;) {
    while (!questions && !stop) OK(pthread_cond_wait(&asked, &mutex));
    if (!questions) break;
    questions--;
    answers += own;
    OK(pthread_cond_signal(&answered));
  }
  OK(pthread_mutex_unlock(&mutex));
  return (void *)(long)own;
}

static void *adds(void *argument) {
  __atomic_add_fetch(&early_sum, (int)(long)argument, __ATOMIC_SEQ_CST);
  usleep(100);
  return argument;
}

static void in_threads(void) {
  pthread_t threads[THREADS];
  for (long i = 0; i < THREADS; i++) threads[i] = start(adds, (void *)(i + 1));
  for (long i = 0; i < THREADS; i++) CHECK_EQ((long)join(threads[i]), i + 1);
}

__attribute__((constructor(101))) static void first(void) {
  for (long i = 0; i < THREADS; i++) servants[i] = start(servant, (void *)i);
  sched_yield();
}

__attribute__((constructor(102))) static void second(void) {
  in_threads();
  CHECK_EQ(early_sum, 21);
}

static void at_exit(void) {
  in_threads();
  puts("ok atexit");
}

__attribute__((destructor)) static void last(void) {
  in_threads();
  CHECK_EQ(early_sum, 63);
  puts("ok destructor");
}

int main(void) {
  atexit(at_exit);
  OK(pthread_mutex_lock(&mutex));
  for (int i = 0; i < 200; i++) {
    questions++;
    OK(pthread_cond_signal(&asked));
    if (i % 20 == 0)
      while (questions) OK(pthread_cond_wait(&answered, &mutex));
  }
  while (questions) OK(pthread_cond_wait(&answered, &mutex));
  CHECK(answers >= 200 * 3 && answers <= 200 * (3 + THREADS));
  stop = 1;
  OK(pthread_cond_broadcast(&asked));
  OK(pthread_mutex_unlock(&mutex));
  for (long i = 0; i < THREADS; i++) CHECK_EQ((long)join(servants[i]), 3 + i);
  puts("ok threads from constructors");
}
