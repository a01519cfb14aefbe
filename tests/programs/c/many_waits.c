/* Asserts that thousands of threads can wait at the same time for what only another process will do. */
#include "check.h"
#include <semaphore.h>

enum { THREADS = 4500 };

static struct {
  sem_t go;
  int waiting;
} *shared;

static void *waits(void *argument) {
  __atomic_add_fetch(&shared->waiting, 1, __ATOMIC_SEQ_CST);
  while (sem_wait(&shared->go)) CHECK_EQ(errno, EINTR);
  return argument;
}

int main(void) {
  static pthread_t threads[THREADS];
  pthread_attr_t small;
  int status;
  shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  OK(sem_init(&shared->go, 1, 0));
  pid_t child = fork();
  if (child == 0) {
    while (__atomic_load_n(&shared->waiting, __ATOMIC_SEQ_CST) < THREADS) sleep_ms(1);
    for (int i = 0; i < THREADS; i++) OK(sem_post(&shared->go));
    _exit(0);
  }
  OK(pthread_attr_init(&small));
  OK(pthread_attr_setstacksize(&small, 64 << 10));
  for (int i = 0; i < THREADS; i++) OK(pthread_create(&threads[i], &small, waits, 0));
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  puts("ok waits");
}
