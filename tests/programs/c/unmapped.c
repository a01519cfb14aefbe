/* Asserts what calls answer whose memory comes and goes meanwhile, or cannot be written: EFAULT or what they found, and nothing else
   breaks. Futexes of all kinds, poll and select, on a page that another thread takes away and gives back all the time; a result
   that cannot be written does not leave a mask or a wait behind; a kernel thread without an identity of its own is answered too. A mapping
   of a file that has become shorter can be made executable. */
#include "check.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/select.h>

enum { PAGE = 4096, ROUNDS = 20000, WAITED = 6, CHILD_STACK = 64 << 10 };

static char *page;
static int done, quiet[2];

static void *come_and_go(void *unused) {
  while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
    OK(mprotect(page, PAGE, PROT_NONE));
    OK(mprotect(page, PAGE, PROT_READ | PROT_WRITE));
  }
  return unused;
}

static long futex(void *address, int op, long value, const void *timeout, void *second, long third) {
  return syscall(SYS_futex, address, op | FUTEX_PRIVATE_FLAG, value, timeout, second, third);
}

/* One of the answers that are right; EFAULT always is. */
#define ANSWERS(call, ...)                                                                            \
  do {                                                                                                \
    static const int right_[] = {EFAULT, __VA_ARGS__};                                                \
    unsigned i_ = 0;                                                                                  \
    int r_ = (call) < 0 ? errno : 0;                                                                  \
    while (i_ < COUNT(right_) && right_[i_] != r_) i_++;                                              \
    if (i_ == COUNT(right_)) check_failed(__FILE__, __LINE__, "%s answers %d", #call, r_);            \
  } while (0)

/* No word on the page but those of the locks ever has another value than 0. */
static void *waits(void *unused) {
  static const struct timespec at_once = {0, 1};
  int *word = (int *)page;
  for (int i = 0; i < ROUNDS; i++) {
    ANSWERS(futex(word, FUTEX_WAIT, 1, 0, 0, 0), EAGAIN);
    if (i % 16 == 0) ANSWERS(futex(word, FUTEX_WAIT_BITSET, 0, &at_once, 0, -1), ETIMEDOUT);
    ANSWERS(futex(word, FUTEX_CMP_REQUEUE, 1, 0, word + 1, 1), EAGAIN);
    ANSWERS(futex(word, FUTEX_WAKE_OP, 1, 0, word + 2, FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)), 0);
  }
  return unused;
}

static void *locks(void *unused) {
  int *lock = (int *)page + 16;
  for (int i = 0; i < ROUNDS; i++) {
    if (futex(lock, FUTEX_TRYLOCK_PI, 0, 0, 0, 0) == 0)
      while (futex(lock, FUTEX_UNLOCK_PI, 0, 0, 0, 0) < 0) CHECK_EQ(errno, EFAULT);
    else
      CHECK(errno == EFAULT || errno == EAGAIN);
  }
  return unused;
}

struct waitv_entry {
  uint64_t value, address;
  uint32_t flags, reserved;
};

/* The list itself comes and goes, and the words that it names. */
static void *many_waits(void *unused) {
  static const struct timespec long_ago = {1, 0};
  static int elsewhere;
  struct waitv_entry own[WAITED], *there = (struct waitv_entry *)(page + 1024);
  for (int i = 0; i < WAITED; i++)
    own[i] = (struct waitv_entry){0, (uintptr_t)(i == WAITED - 1 ? (int *)page + 32 : &elsewhere), 2 | FUTEX_PRIVATE_FLAG, 0};
  own[WAITED - 1].value = 1;
  for (int i = 0; i < ROUNDS; i++) {
    ANSWERS(syscall(SYS_futex_waitv, own, WAITED, 0, 0, 0), EAGAIN, ENOSYS);
    ANSWERS(syscall(SYS_futex_waitv, there, WAITED, 0, &long_ago, CLOCK_MONOTONIC), ETIMEDOUT, ENOSYS);
  }
  return unused;
}

static void *polls(void *unused) {
  static const struct timespec short_time = {0, 1000};
  struct pollfd *list = (struct pollfd *)(page + 2048);
  fd_set *set = (fd_set *)(page + 3072);
  for (int i = 0; i < ROUNDS / 20; i++) {
    ANSWERS(syscall(SYS_ppoll, list, 12, &short_time, 0, 8), 0);
    ANSWERS(syscall(SYS_pselect6, quiet[0] + 1, set, 0, 0, &short_time, 0), 0);
  }
  return unused;
}

static void storm(void) {
  void *(*const callers[])(void *) = {waits, locks, many_waits, polls};
  pthread_t threads[COUNT(callers)];
  struct waitv_entry *entries = (struct waitv_entry *)(page + 1024);
  static int nobody;
  for (int i = 0; i < WAITED; i++) entries[i] = (struct waitv_entry){0, (uintptr_t)&nobody, 2 | FUTEX_PRIVATE_FLAG, 0};
  for (int i = 0; i < 12; i++) ((struct pollfd *)(page + 2048))[i] = (struct pollfd){quiet[0], POLLIN, 0};
  FD_SET(quiet[0], (fd_set *)(page + 3072));
  pthread_t other = start(come_and_go, 0);
  for (unsigned i = 0; i < COUNT(callers); i++) threads[i] = start(callers[i], 0);
  for (unsigned i = 0; i < COUNT(callers); i++) join(threads[i]);
  done = 1;
  join(other);
}

static void *wake_all(void *word) {
  *(int *)word = 1;
  CHECK(futex(word, FUTEX_WAKE, INT_MAX, 0, 0, 0) >= 0);
  return 0;
}

/* The words that were waited for are as good as any other. */
static void usual(void) {
  int places[] = {0, 1, 2, 16, 32};
  for (unsigned i = 0; i < COUNT(places); i++) {
    int *word = (int *)page + places[i];
    *word = 0;
    pthread_t other = start(wake_all, word);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0)
      CHECK(futex(word, FUTEX_WAIT, 0, 0, 0, 0) == 0 || errno == EAGAIN || errno == EINTR);
    join(other);
  }
}

static void read_only(void) {
  static const struct timespec short_time = {0, 1000};
  sigset_t inside = set_with(SIGUSR1), now;
  struct {
    sigset_t *mask;
    size_t size;
  } with_mask = {&inside, 8};
  OK(mprotect(page, PAGE, PROT_READ));
  FAILS(syscall(SYS_pselect6, quiet[0] + 1, page + 3072, 0, 0, &short_time, &with_mask), EFAULT);
  OK(pthread_sigmask(SIG_BLOCK, 0, &now));
  CHECK_EQ(sigismember(&now, SIGUSR1), 0);
  /* What is left of the time cannot be written: that is no error. */
  OK(mprotect(page, PAGE, PROT_READ | PROT_WRITE));
  memcpy(page, &short_time, sizeof short_time);
  OK(mprotect(page, PAGE, PROT_READ));
  struct pollfd one = {quiet[0], POLLIN, 0};
  OK(syscall(SYS_ppoll, &one, 1, page, 0, 8));
  OK(syscall(SYS_pselect6, 0, 0, 0, 0, page, 0));
  OK(mprotect(page, PAGE, PROT_READ | PROT_WRITE));
}

static void *wait_for_signal(void *set) {
  int signal;
  OK(sigwait(set, &signal));
  CHECK_EQ(signal, SIGUSR1);
  return 0;
}

/* Who could not be told of a signal does not wait for the next one. */
static void untold(void) {
  sigset_t set = set_with(SIGUSR1);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  OK(pthread_kill(pthread_self(), SIGUSR1));
  FAILS(syscall(SYS_rt_sigtimedwait, &set, (void *)8, 0, 8), EFAULT);
  pthread_t other = start(wait_for_signal, &set);
  sleep_ms(20);
  OK(kill(getpid(), SIGUSR1));
  join(other);
}

static int bad_calls(void *unused) {
  (void)unused;
  int *volatile nowhere = (int *)4096;
  int word = 0;
  if (syscall(SYS_futex, nowhere, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, 0, 0, 0) != -1 || errno != EFAULT) return 1;
  if (syscall(SYS_futex, &word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, nowhere, 0, 0) != -1 || errno != EFAULT) return 2;
  if (syscall(SYS_futex_waitv, nowhere, 1, 0, 0, 0) != -1 || (errno != EFAULT && errno != ENOSYS)) return 3;
  return 0;
}

static void without_identity(void) {
  static char stack[CHILD_STACK] __attribute__((aligned(16)));
  int status, pid = clone(bad_calls, stack + CHILD_STACK, CLONE_VM | SIGCHLD, 0);
  CHECK(pid > 0);
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
}

static void shortened(void) {
  int fd = memfd_create("shortened", 0), program = open("/proc/self/exe", O_RDONLY);
  CHECK(fd >= 0 && program >= 0);
  OK(ftruncate(fd, PAGE));
  char *there = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, program, 0), *gone = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
  CHECK(there != MAP_FAILED && gone != MAP_FAILED);
  OK(ftruncate(fd, 0));
  OK(mprotect(gone, PAGE, PROT_READ | PROT_EXEC));
  OK(mprotect(there, PAGE, PROT_READ | PROT_EXEC)); /* nor does that leave anything behind */
}

static void *nothing(void *unused) { return unused; }

int main(void) {
  page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  OK(pipe(quiet));
  join(start(nothing, 0)); /* from here on there are threads */
  storm();
  puts("ok comes and goes");
  usual();
  puts("ok afterwards");
  read_only();
  puts("ok read-only");
  untold();
  puts("ok untold");
  without_identity();
  puts("ok without an identity");
  shortened();
  puts("ok shortened");
}
