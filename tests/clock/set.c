/* Asserts what setting the system clock does to waits that are under way. Those that end at a time of CLOCK_REALTIME or CLOCK_TAI end
   at once when the clock is set past it, and last longer when it is set back; a wait that begins just after a change counts by the new
   time; all others are not moved. While all CPUs compute, and in a forked child, it is the same.

   The clock is wrong for a quarter of a second at most, a few times. `ci/clock.sh` runs this, alone, and sets the clock right if
   it fails. Arguments: "offset" prints what CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, in nanoseconds, or says that the clock may not be
   set (status 77); "restore N" sets that. */
#include "../programs/c/check.h"
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/timex.h>

enum { LONG = 3000, SHORT = 120, STEP = 4000, WRONG = 250, CHILD_STACK = 64 << 10 };

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, pi, at_cond[3];
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond[3]; /* CLOCK_REALTIME, shared between processes, CLOCK_MONOTONIC */
static sem_t sem, shared_sem;
static int word, ended, computing;
static pthread_t nobody_ends;
static char child_stack[CHILD_STACK] __attribute__((aligned(16)));

struct waitv_entry {
  uint64_t value, address;
  uint32_t flags, reserved;
};

static int64_t ahead(void) {
  int64_t best = INT64_MAX, gap = INT64_MAX;
  for (int i = 0; i < 20; i++) {
    int64_t before = now_ns(CLOCK_MONOTONIC), time = now_ns(CLOCK_REALTIME), after = now_ns(CLOCK_MONOTONIC);
    if (after - before < gap) gap = after - before, best = time - before - gap / 2;
  }
  return best;
}

static void set_ahead(int64_t ns) {
  int64_t t = now_ns(CLOCK_MONOTONIC) + ns;
  OK(clock_settime(CLOCK_REALTIME, &(struct timespec){t / 1000000000, t % 1000000000}));
}

static int at_condition(int which, const struct timespec *until) {
  int result;
  OK(pthread_mutex_lock(&at_cond[which]));
  do result = pthread_cond_timedwait(&cond[which], &at_cond[which], until);
  while (result == 0);
  OK(pthread_mutex_unlock(&at_cond[which]));
  return result;
}

static int outside(void *until) {
  int r = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, 0, until, 0, -1);
  return r == -1 && errno == ETIMEDOUT ? 0 : 1;
}

static int by_condition(const struct timespec *until) { return at_condition(0, until); }
static int by_shared_condition(const struct timespec *until) { return at_condition(1, until); }
static int by_semaphore(const struct timespec *until) { return sem_timedwait(&sem, until) ? errno : 0; }
static int by_shared_semaphore(const struct timespec *until) { return sem_timedwait(&shared_sem, until) ? errno : 0; }
static int by_mutex(const struct timespec *until) { return pthread_mutex_timedlock(&held, until); }
static int by_pi_mutex(const struct timespec *until) { return pthread_mutex_timedlock(&pi, until); }
static int by_read_lock(const struct timespec *until) { return pthread_rwlock_timedrdlock(&rwlock, until); }
static int by_write_lock(const struct timespec *until) { return pthread_rwlock_timedwrlock(&rwlock, until); }
static int by_join(const struct timespec *until) { return pthread_timedjoin_np(nobody_ends, 0, until); }
static int by_futex(const struct timespec *until) {
  long r = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, 0, until, 0, -1);
  return r < 0 ? errno : 0;
}
static int by_futexes(const struct timespec *until) {
  struct waitv_entry e = {0, (uintptr_t)&word, 2 | FUTEX_PRIVATE_FLAG, 0};
  long r = syscall(SYS_futex_waitv, &e, 1, 0, until, CLOCK_REALTIME);
  return r < 0 && errno == ENOSYS ? by_futex(until) : r < 0 ? errno : 0; /* before Linux 5.16 there is none */
}
static int by_sleep(const struct timespec *until) {
  int r = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, until, 0);
  return r ? r : ETIMEDOUT;
}
static int by_tai(const struct timespec *until) {
  int64_t tai = (now_ns(CLOCK_TAI) - now_ns(CLOCK_REALTIME) + 500000000) / 1000000000;
  struct timespec then = {until->tv_sec + tai, until->tv_nsec};
  int r = clock_nanosleep(CLOCK_TAI, TIMER_ABSTIME, &then, 0);
  return r ? r : ETIMEDOUT;
}
/* A thread of the kernel's, without an identity of its own. */
static int by_child_on_our_memory(const struct timespec *until) {
  int status, pid = clone(outside, child_stack + CHILD_STACK, CLONE_VM | SIGCHLD, (void *)until);
  CHECK(pid > 0);
  while (waitpid(pid, &status, 0) < 0) CHECK_EQ(errno, EINTR);
  return status ? EIO : ETIMEDOUT;
}

static int (*const waits[])(const struct timespec *) = {
    by_condition, by_shared_condition, by_semaphore, by_shared_semaphore, by_mutex, by_pi_mutex, by_read_lock,
    by_write_lock, by_join, by_futex, by_futexes, by_sleep, by_tai, by_child_on_our_memory};
enum { WAITS = COUNT(waits) };

static struct timespec until;

static void *wait_until(void *which) {
  CHECK_EQ(waits[(intptr_t)which](&until), ETIMEDOUT);
  __atomic_fetch_add(&ended, 1, __ATOMIC_SEQ_CST);
  return 0;
}

static int have_ended(void) { return __atomic_load_n(&ended, __ATOMIC_SEQ_CST); }

static void start_waits(pthread_t *threads, int ms) {
  ended = 0;
  until = in_ms(CLOCK_REALTIME, ms);
  for (intptr_t i = 0; i < WAITS; i++) threads[i] = start(wait_until, (void *)i);
  sleep_ms(50);
}

static void join_all(pthread_t *threads, int count) {
  for (int i = 0; i < count; i++) join(threads[i]);
}

/* What the clock does not move. */
static void *relative_sleep(void *unused) {
  OK(clock_nanosleep(CLOCK_REALTIME, 0, &(struct timespec){0, 300000000}, 0));
  return unused;
}
static void *monotonic_wait(void *unused) {
  struct timespec then = in_ms(CLOCK_MONOTONIC, 300);
  CHECK_EQ(at_condition(2, &then), ETIMEDOUT);
  return unused;
}
static void *boottime_sleep(void *unused) {
  struct timespec then = in_ms(CLOCK_BOOTTIME, 300);
  OK(clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &then, 0));
  return unused;
}
static void *poll_alone(void *unused) {
  CHECK_EQ(poll(0, 0, 300), 0);
  return unused;
}
static void *(*const unmoved[])(void *) = {relative_sleep, monotonic_wait, boottime_sleep, poll_alone};

static void *timed(void *which) {
  int64_t from = now_ms();
  unmoved[(intptr_t)which](0);
  TOOK_ABOUT(now_ms() - from, 300);
  return 0;
}

static void forward(void) {
  pthread_t threads[WAITS], others[COUNT(unmoved)];
  for (intptr_t i = 0; i < (intptr_t)COUNT(unmoved); i++) others[i] = start(timed, (void *)i);
  start_waits(threads, LONG);
  int before = have_ended();
  int64_t right = ahead(), from = now_ms();
  set_ahead(right + STEP * 1000000LL);
  while (have_ended() != WAITS && now_ms() - from < WRONG) sleep_ms(1);
  int at_once = have_ended();
  set_ahead(right);
  CHECK_EQ(before, 0);
  CHECK_EQ(at_once, WAITS);
  join_all(threads, WAITS);
  join_all(others, COUNT(unmoved));
}

static void backward(void) {
  pthread_t threads[WAITS];
  start_waits(threads, SHORT);
  int64_t right = ahead();
  set_ahead(right - STEP * 1000000LL);
  sleep_ms(SHORT);
  int early = have_ended();
  set_ahead(right);
  join_all(threads, WAITS);
  CHECK_EQ(early, 0);
}

/* Waits that begin before anybody can have told of the change. */
static void just_after(int step) {
  int64_t right = ahead();
  set_ahead(right + step * 1000000LL);
  struct timespec then = in_ms(CLOCK_REALTIME, 50);
  int64_t from = now_ns(CLOCK_MONOTONIC);
  int result = by_semaphore(&then);
  int64_t took = now_ns(CLOCK_MONOTONIC) - from;
  set_ahead(right);
  CHECK_EQ(result, ETIMEDOUT);
  CHECK(took > 49000000 && took < 2000000000);
}

static void *compute(void *unused) {
  while (__atomic_load_n(&computing, __ATOMIC_RELAXED)) {
  }
  return unused;
}

static void *wait_for_ever(void *unused) {
  sleep_ms(1000000);
  return unused;
}

static void in_a_child(void) {
  int ready[2], set[2];
  char byte = 0;
  CHECK(!pipe(ready) && !pipe(set));
  int pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    pthread_t threads[3];
    ended = 0;
    until = in_ms(CLOCK_REALTIME, LONG);
    threads[0] = start(wait_until, (void *)0L);
    threads[1] = start(wait_until, (void *)2L);
    threads[2] = start(wait_until, (void *)11L);
    sleep_ms(50);
    CHECK_EQ(write(ready[1], &byte, 1), 1);
    CHECK_EQ(read(set[0], &byte, 1), 1);
    int at_once = have_ended();
    CHECK_EQ(write(ready[1], &byte, 1), 1);
    CHECK_EQ(at_once, 3);
    join_all(threads, 3);
    _exit(0);
  }
  CHECK_EQ(read(ready[0], &byte, 1), 1);
  int64_t right = ahead();
  set_ahead(right + STEP * 1000000LL);
  sleep_ms(150);
  CHECK_EQ(write(set[1], &byte, 1), 1);
  CHECK_EQ(read(ready[0], &byte, 1), 1);
  set_ahead(right);
  ends_well(pid);
}

int main(int count, char **arguments) {
  if (count > 1 && !strcmp(arguments[1], "offset")) {
    struct timex nothing = {.modes = ADJ_SETOFFSET};
    if (clock_adjtime(CLOCK_REALTIME, &nothing) < 0) return 77;
    printf("%lld\n", (long long)ahead());
    return 0;
  }
  if (count > 2 && !strcmp(arguments[1], "restore")) {
    set_ahead(atoll(arguments[2]));
    return 0;
  }
  pthread_mutexattr_t mutex_kind;
  OK(pthread_mutexattr_init(&mutex_kind));
  OK(pthread_mutexattr_setprotocol(&mutex_kind, PTHREAD_PRIO_INHERIT));
  OK(pthread_mutex_init(&pi, &mutex_kind));
  for (int i = 0; i < 3; i++) {
    pthread_condattr_t kind;
    OK(pthread_condattr_init(&kind));
    if (i == 1) OK(pthread_condattr_setpshared(&kind, PTHREAD_PROCESS_SHARED));
    if (i == 2) OK(pthread_condattr_setclock(&kind, CLOCK_MONOTONIC));
    OK(pthread_cond_init(&cond[i], &kind));
    OK(pthread_mutex_init(&at_cond[i], 0));
  }
  OK(sem_init(&sem, 0, 0));
  OK(sem_init(&shared_sem, 1, 0));
  nobody_ends = start(wait_for_ever, 0);
  OK(pthread_mutex_lock(&held));
  OK(pthread_mutex_lock(&pi));
  OK(pthread_rwlock_wrlock(&rwlock));

  forward();
  puts("ok forward");
  backward();
  puts("ok backward");
  just_after(-STEP);
  just_after(STEP);
  puts("ok just after");
  in_a_child();
  puts("ok child");

  pthread_t threads[4];
  computing = 1;
  for (int i = 0; i < 4; i++) threads[i] = start(compute, 0);
  forward();
  puts("ok forward while others compute");
  backward();
  puts("ok backward while others compute");
  __atomic_store_n(&computing, 0, __ATOMIC_RELAXED);
  join_all(threads, 4);
}
