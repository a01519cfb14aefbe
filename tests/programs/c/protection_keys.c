/* Asserts that rights by protection keys (pkeys) are a thread's own: a new thread has those of the thread that made it, a
   change concerns no other thread, and they last while others run; a thread that was there before a key has no right
   by it; pages behind a key that a thread has no right to fault. The same in a forked child. Without protection keys
   there is nothing to assert but that. */
#include "check.h"
#include <setjmp.h>

enum { THREADS = 6, ROUNDS = 200 };

static int key;
static volatile int *page;
static pthread_barrier_t barrier;
static __thread sigjmp_buf on_fault;

static void fault(int signal) { siglongjmp(on_fault, signal); }

static int can_read(void) {
  int rights = pkey_get(key);
  if (sigsetjmp(on_fault, 1) == 0) {
    (void)*page;
    return 1;
  }
  OK(pkey_set(key, rights)); /* the handler is left without sigreturn */
  return 0;
}

static void *was_there_before(void *unused) {
  pthread_barrier_wait(&barrier);
  CHECK_EQ(pkey_get(key), PKEY_DISABLE_ACCESS);
  CHECK(!can_read());
  return unused;
}

static void *of_creator(void *rights) {
  CHECK_EQ(pkey_get(key), (intptr_t)rights);
  return 0;
}

static void *own(void *number) {
  int rights = (intptr_t)number % 3;
  OK(pkey_set(key, rights));
  for (int i = 0; i < ROUNDS; i++) {
    if (i % 3 == 0) sched_yield();
    if (i % 50 == 0) usleep(100);
    CHECK_EQ(pkey_get(key), rights);
    if (i % 40 == 0) CHECK_EQ(can_read(), !(rights & PKEY_DISABLE_ACCESS));
  }
  join(start(of_creator, (void *)(intptr_t)rights));
  return 0;
}

static void all(void) {
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(own, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
}

int main(void) {
  OK(pthread_barrier_init(&barrier, 0, 2));
  struct sigaction action = {.sa_handler = fault};
  OK(sigaction(SIGSEGV, &action, 0));
  pthread_t before = start(was_there_before, 0);
  key = pkey_alloc(0, PKEY_DISABLE_WRITE);
  if (key < 0) {
    CHECK(errno == ENOSPC || errno == ENOSYS || errno == EINVAL);
    puts("no protection keys here");
    _exit(0);
  }
  page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  OK(pkey_mprotect((void *)page, 4096, PROT_READ | PROT_WRITE, key));
  pthread_barrier_wait(&barrier);
  join(before);
  CHECK_EQ(pkey_get(key), PKEY_DISABLE_WRITE);
  all();
  CHECK_EQ(pkey_get(key), PKEY_DISABLE_WRITE);
  CHECK(can_read());
  puts("ok threads");
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK_EQ(pkey_get(key), PKEY_DISABLE_WRITE);
    all();
    CHECK_EQ(pkey_get(key), PKEY_DISABLE_WRITE);
    _exit(0);
  }
  int status;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  puts("ok child");
}
