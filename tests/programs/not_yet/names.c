/* Asserts that a thread's name can be read and set by another thread. */
#include "../c/check.h"

static pthread_barrier_t barrier;

static void *body(void *argument) {
  OK(pthread_setname_np(pthread_self(), "its own"));
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  char name[16];
  OK(pthread_getname_np(pthread_self(), name, sizeof name));
  CHECK(strcmp(name, "given") == 0);
  return argument;
}

int main(void) {
  char name[16];
  OK(pthread_barrier_init(&barrier, 0, 2));
  pthread_t thread = start(body, 0);
  pthread_barrier_wait(&barrier);
  OK(pthread_getname_np(thread, name, sizeof name));
  CHECK(strcmp(name, "its own") == 0);
  OK(pthread_setname_np(thread, "given"));
  pthread_barrier_wait(&barrier);
  join(thread);
  puts("ok names");
}
