/* Asserts that pthread_create beyond a limit returns EAGAIN or EINVAL and harms nothing: an address-space limit, absurd
   stack sizes; that a process with little address space can have threads; and that threads can be created again afterwards. */
#include "check.h"
#include <sys/resource.h>

static int released;

static void *waits(void *argument) {
  while (!__atomic_load_n(&released, __ATOMIC_SEQ_CST)) sleep_ms(1);
  return argument;
}

static void *nothing(void *argument) { return argument; }

static size_t address_space(void) {
  long pages;
  FILE *f = fopen("/proc/self/statm", "r");
  CHECK(f && fscanf(f, "%ld", &pages) == 1);
  fclose(f);
  return pages * sysconf(_SC_PAGESIZE);
}

/* A process that has little address space from the beginning. */
static void with_little(void) {
  enum { FEW = 50 };
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    struct rlimit tight = {address_space() + (96u << 20), RLIM_INFINITY};
    pthread_t threads[FEW];
    pthread_attr_t attr;
    OK(setrlimit(RLIMIT_AS, &tight));
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setstacksize(&attr, 64 << 10));
    for (int i = 0; i < FEW; i++) OK(pthread_create(&threads[i], &attr, waits, &released));
    __atomic_store_n(&released, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < FEW; i++) CHECK(join(threads[i]) == &released);
    _exit(0);
  }
  int status;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  puts("ok with little address space");
}

int main(void) {
  enum { MOST = 200 };
  with_little();
  pthread_t threads[MOST];
  pthread_attr_t attr;
  pthread_t thread;
  OK(pthread_attr_init(&attr));
  join(start(nothing, 0)); /* whatever a first thread needs is there */
  for (int shift = 40; shift < 48; shift++) {
    if (pthread_attr_setstacksize(&attr, (size_t)1 << shift)) continue;
    int result = pthread_create(&thread, &attr, nothing, 0);
    CHECK(result == 0 || result == EAGAIN || result == EINVAL);
    if (shift == 47) CHECK(result != 0); /* more than a process can have */
    if (result == 0) join(thread);
  }
  OK(pthread_attr_setstacksize(&attr, (size_t)-4096));
  int result = pthread_create(&thread, &attr, nothing, 0);
  CHECK(result == EAGAIN || result == EINVAL);
  OK(pthread_attr_setstacksize(&attr, 1 << 20));
  OK(pthread_attr_setguardsize(&attr, (size_t)1 << 30));
  result = pthread_create(&thread, &attr, nothing, 0); /* the guard is part of the stack */
  CHECK(result == 0 || result == EINVAL);
  if (result == 0) join(thread);
  join(start(nothing, 0));
  puts("ok absurd stacks");

  struct rlimit old, tight;
  OK(getrlimit(RLIMIT_AS, &old));
  tight = old;
  tight.rlim_cur = address_space() + (96u << 20);
  OK(pthread_attr_init(&attr));
  OK(pthread_attr_setstacksize(&attr, 8 << 20));
  OK(setrlimit(RLIMIT_AS, &tight));
  for (int round = 0; round < 3; round++) {
    int count = 0;
    released = 0;
    while (count < MOST && (result = pthread_create(&threads[count], &attr, waits, &released)) == 0) count++;
    CHECK(result == 0 || result == EAGAIN);
    CHECK(count >= 3);
    __atomic_store_n(&released, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < count; i++) CHECK(join(threads[i]) == &released);
  }
  OK(setrlimit(RLIMIT_AS, &old));
  puts("ok address space");
  released = 0;
  for (int i = 0; i < MOST; i++) OK(pthread_create(&threads[i], &attr, waits, &released));
  __atomic_store_n(&released, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < MOST; i++) CHECK(join(threads[i]) == &released);
  puts("ok afterwards");
}
