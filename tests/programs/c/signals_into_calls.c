/* Asserts that a signal from another process is handled at once, not when the next call returns, if it comes while
   threads are on their way into calls in which the kernel waits (semaphores shared between processes). */
#include "check.h"
#include <semaphore.h>

enum { THREADS = 3, ROUNDS = 150 };

struct shared {
  sem_t handled, go, done;
  int over;
};
static struct shared *shared;
static pthread_t threads[THREADS];

static void post(int sig) {
  (void)sig;
  int saved = errno;
  OK(sem_post(&shared->handled));
  errno = saved;
}

/* Main's: nobody else takes it. */
static void pass_on(int sig) {
  (void)sig;
  for (int i = 0; i < THREADS; i++) OK(pthread_kill(threads[i], SIGUSR2));
}

static void wait_for(sem_t *semaphore) {
  while (sem_wait(semaphore)) CHECK_EQ(errno, EINTR);
}

static void *waits(void *argument) {
  do wait_for(&shared->go);
  while (!__atomic_load_n(&shared->over, __ATOMIC_SEQ_CST));
  return argument;
}

static int child(void) {
  sigset_t usr1, before;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  OK(pthread_sigmask(SIG_BLOCK, &usr1, &before));
  signal(SIGUSR2, post);
  for (int i = 0; i < THREADS; i++) threads[i] = start(waits, 0);
  signal(SIGUSR1, pass_on);
  OK(sem_post(&shared->handled));
  OK(pthread_sigmask(SIG_SETMASK, &before, 0));
  wait_for(&shared->done);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  return 0;
}

int main(void) {
  shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  OK(sem_init(&shared->handled, 1, 0));
  OK(sem_init(&shared->go, 1, 0));
  OK(sem_init(&shared->done, 1, 0));
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) _exit(child());
  wait_for(&shared->handled);
  for (int i = 0; i < ROUNDS; i++) {
    for (int k = 0; k < THREADS; k++) OK(sem_post(&shared->go)); /* out of one wait, into the next */
    OK(kill(pid, SIGUSR1));
    for (int k = 0; k < THREADS; k++) {
      struct timespec limit = in_ms(CLOCK_REALTIME, 30000);
      while (sem_timedwait(&shared->handled, &limit)) {
        if (errno != EINTR) kill(pid, SIGKILL);
        CHECK_EQ(errno, EINTR);
      }
    }
  }
  __atomic_store_n(&shared->over, 1, __ATOMIC_SEQ_CST);
  for (int k = 0; k < THREADS; k++) OK(sem_post(&shared->go));
  OK(sem_post(&shared->done));
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
  puts("ok handled at once");
}
