/* Asserts that a thread keeps what glibc gave it wherever it runs: errno, __thread variables and their addresses, the
   address of its id that is cleared at its end (PR_GET_TID_ADDRESS), thread-specific data with destructors, pthread_self and gettid (unique among live threads, stable, known to tgkill),
   across yields, sleeps, pipe reads and contended locks. */
#include "check.h"

#include <sys/prctl.h>

enum { THREADS = 64, ROUNDS = 40, KEYS = 8 };

static __thread int own = -1;
static __thread char own_block[3000] = {[2999] = 42};
static pthread_key_t keys[KEYS], late_key;
static int destroyed[KEYS], late_destroyed;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all_here;
static pid_t tids[THREADS];
static pthread_t selves[THREADS];
static long shared_sum;

static void destroy(void *value) {
  long key = (long)value % KEYS;
  CHECK(own >= 0);
  CHECK_EQ((long)value / KEYS, own);
  __atomic_add_fetch(&destroyed[key], 1, __ATOMIC_SEQ_CST);
}

/* Sets its key again once: glibc must call it a second time. */
static void destroy_late(void *value) {
  if ((long)value == 1) OK(pthread_setspecific(late_key, (void *)2L));
  __atomic_add_fetch(&late_destroyed, 1, __ATOMIC_SEQ_CST);
}

static void check_identity(int id, pid_t tid, pthread_t self, void *addresses[3]) {
  CHECK_EQ(own, id);
  CHECK_EQ(own_block[0], (char)id);
  CHECK_EQ(own_block[2999], 42);
  CHECK(addresses[0] == &own && addresses[1] == own_block && addresses[2] == &errno);
  CHECK(pthread_equal(self, pthread_self()));
  CHECK_EQ(gettid(), tid);
  CHECK_EQ(syscall(SYS_gettid), tid);
  for (long k = 0; k < KEYS; k++) CHECK_EQ((long)pthread_getspecific(keys[k]), id * (long)KEYS + k);
  pid_t *cleared = 0;
  if (prctl(PR_GET_TID_ADDRESS, &cleared, 0, 0, 0) == 0) {
    CHECK_EQ(*cleared, tid);
    CHECK_EQ(syscall(SYS_set_tid_address, cleared), tid); /* as it was: else nobody could join */
  } else {
    CHECK_EQ(errno, EINVAL); /* a kernel without CONFIG_CHECKPOINT_RESTORE */
  }
}

static void *body(void *argument) {
  int id = (int)(long)argument, fds[2];
  CHECK_EQ(own, -1);
  CHECK(pthread_getspecific(keys[0]) == 0);
  own = id;
  own_block[0] = (char)id;
  void *addresses[3] = {&own, own_block, &errno};
  pid_t tid = gettid();
  tids[id] = tid;
  selves[id] = pthread_self();
  for (long k = 0; k < KEYS; k++) OK(pthread_setspecific(keys[k], (void *)(id * (long)KEYS + k)));
  OK(pthread_setspecific(late_key, (void *)1L));
  OK(pipe(fds));
  pthread_barrier_wait(&all_here);
  for (int round = 0; round < ROUNDS; round++) {
    char byte = (char)round;
    errno = 1000 + id;
    switch (round % 6) {
      case 0: sched_yield(); break;
      case 1: usleep(100); break;
      case 2: CHECK_EQ(write(fds[1], &byte, 1), 1); CHECK_EQ(read(fds[0], &byte, 1), 1); break;
      case 3:
        OK(pthread_mutex_lock(&mutex));
        shared_sum += id;
        sched_yield();
        OK(pthread_mutex_unlock(&mutex));
        break;
      case 4: CHECK_EQ(close(-1), -1); CHECK_EQ(errno, EBADF); errno = 1000 + id; sched_yield(); break;
      case 5: OK(syscall(SYS_tgkill, getpid(), tid, 0)); break;
    }
    CHECK_EQ(errno, 1000 + id); /* no call above fails, and success leaves errno alone */
    check_identity(id, tid, selves[id], addresses);
  }
  close(fds[0]);
  close(fds[1]);
  pthread_barrier_wait(&all_here); /* everyone alive: ids are unique now */
  return (void *)(long)(id + 1);
}

int main(void) {
  pthread_t threads[THREADS];
  CHECK_EQ(gettid(), getpid());
  for (int k = 0; k < KEYS; k++) OK(pthread_key_create(&keys[k], destroy));
  OK(pthread_key_create(&late_key, destroy_late));
  pthread_barrier_init(&all_here, 0, THREADS);
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (long i = 0; i < THREADS; i++) {
    CHECK_EQ((long)join(threads[i]), i + 1);
    CHECK(pthread_equal(threads[i], selves[i]));
  }
  for (int i = 0; i < THREADS; i++) {
    CHECK(tids[i] > 0 && tids[i] != getpid());
    for (int j = 0; j < i; j++) CHECK(tids[i] != tids[j] && !pthread_equal(selves[i], selves[j]));
  }
  CHECK_EQ(destroyed[0], THREADS - 1); /* thread 0's value for key 0 is a null pointer: no destructor */
  for (int k = 1; k < KEYS; k++) CHECK_EQ(destroyed[k], THREADS);
  CHECK_EQ(late_destroyed, 2 * THREADS);
  CHECK_EQ(own, -1);
  int rounds = 0;
  for (int round = 0; round < ROUNDS; round++) rounds += round % 6 == 3;
  CHECK_EQ(shared_sum, (long)rounds * THREADS * (THREADS - 1) / 2);
  puts("ok identity");
}
