/* Asserts barriers: nobody passes before all have come, exactly one is told so each time, reuse at once, destruction
   right after the last passed, one shared between processes. */
#include "check.h"

enum { THREADS = 16, ROUNDS = 300 };

static pthread_barrier_t barrier;
static int arrived[ROUNDS], serial[ROUNDS];

static void *body(void *argument) {
  (void)argument;
  for (int i = 0; i < ROUNDS; i++) {
    __atomic_add_fetch(&arrived[i], 1, __ATOMIC_SEQ_CST);
    int result = pthread_barrier_wait(&barrier);
    CHECK_EQ(__atomic_load_n(&arrived[i], __ATOMIC_SEQ_CST), THREADS);
    if (result == PTHREAD_BARRIER_SERIAL_THREAD) __atomic_add_fetch(&serial[i], 1, __ATOMIC_SEQ_CST);
    else OK(result);
  }
  return 0;
}

static void *pass(void *b) {
  pthread_barrier_wait(b);
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  OK(pthread_barrier_init(&barrier, 0, THREADS));
  for (int i = 1; i < THREADS; i++) threads[i] = start(body, 0);
  body(0);
  for (int i = 1; i < THREADS; i++) join(threads[i]);
  for (int i = 0; i < ROUNDS; i++) CHECK_EQ(serial[i], 1);
  OK(pthread_barrier_destroy(&barrier));
  puts("ok rounds");
  for (int i = 0; i < 200; i++) {
    pthread_barrier_t *b = malloc(sizeof *b);
    OK(pthread_barrier_init(b, 0, 2));
    pthread_t t = start(pass, b);
    pthread_barrier_wait(b);
    OK(pthread_barrier_destroy(b)); /* waits until the other is out of it */
    memset(b, 0xee, sizeof *b);
    free(b);
    join(t);
  }
  CHECK_EQ(pthread_barrier_init(&barrier, 0, 0), EINVAL);
  puts("ok destruction");
  pthread_barrierattr_t attr;
  pthread_barrier_t *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  OK(pthread_barrierattr_init(&attr));
  OK(pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
  OK(pthread_barrier_init(shared, &attr, 3));
  pid_t pid = fork();
  if (pid == 0) {
    for (int i = 0; i < 100; i++) pthread_barrier_wait(shared);
    _exit(0);
  }
  for (int i = 0; i < 100; i++) {
    pthread_t t = start(pass, shared);
    pthread_barrier_wait(shared);
    join(t);
  }
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
  puts("ok between processes");
}
