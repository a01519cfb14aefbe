/* Asserts that what a thread has in GS base (WRGSBASE, as compiled WebAssembly sets it, and ARCH_SET_GS) stays there while it yields,
   sleeps, waits, is preempted and runs handlers, also if it points to nothing; that new threads and processes have it
   from their creator, and a change by a handler stays; that other threads are not disturbed. */
#include "check.h"
#include <asm/prctl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <spawn.h>
#include <sys/auxv.h>

enum { THREADS = 6, ROUNDS = 40 };

/* The words before `number` look as a runtime's own record might. */
struct area {
  void *self, *more[7];
  long number;
};

extern char **environ;
static uint32_t words[THREADS + 2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static volatile int handled;
static char *hidden;
static sigjmp_buf way_out;

static void set(void *base) { __asm__ volatile("wrgsbase %0" : : "r"(base) : "memory"); }

static void *get(void) {
  void *base;
  __asm__ volatile("rdgsbase %0" : "=r"(base));
  return base;
}

static long number(void) {
  long value;
  __asm__ volatile("mov %%gs:64, %0" : "=r"(value));
  return value;
}

static struct area make(long i) {
  struct area area = {.number = 4711 + i};
  return area;
}

static void handler(int sig) {
  if (sig == SIGUSR1) (void)syscall(SYS_sched_yield);
  handled++;
}

static void *rounds(void *argument) {
  intptr_t own = (intptr_t)argument;
  struct area area = make(own);
  struct timespec pause = {0, 300000}, longer = {0, 200000};
  if (own % 2) area.self = &area;
  set(&area);
  for (int i = 0; i < ROUNDS; i++) {
    void *now = 0;
    if (i % 8 == 0) sched_yield();
    if (i % 8 == 1) nanosleep(&pause, 0);
    if (i % 8 == 2) syscall(SYS_futex, &words[own], FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &longer);
    if (i % 8 == 3)
      for (volatile int k = 0; k < 6000000; k++) continue;
    if (i % 8 == 4) raise(SIGUSR1);
    if (i % 8 == 5) FAILS(close(-1), EBADF);
    if (i % 8 == 6) free(malloc(200000));
    if (i % 8 == 7) {
      OK(pthread_mutex_lock(&mutex));
      pthread_cond_broadcast(&cond);
      struct timespec end;
      clock_gettime(CLOCK_REALTIME, &end);
      end.tv_nsec = (end.tv_nsec + 500000) % 1000000000;
      int r = pthread_cond_timedwait(&cond, &mutex, &end);
      CHECK(r == 0 || r == ETIMEDOUT);
      OK(pthread_mutex_unlock(&mutex));
    }
    CHECK_EQ(number(), 4711 + own);
    CHECK(get() == &area);
    OK(syscall(SYS_arch_prctl, ARCH_GET_GS, &now));
    CHECK(now == &area);
  }
  return 0;
}

static void *without(void *argument) {
  while (!__atomic_load_n((int *)argument, __ATOMIC_SEQ_CST)) {
    sched_yield();
    FAILS(close(-1), EBADF);
  }
  return 0;
}

static void *inherits(void *argument) {
  CHECK(get() == argument);
  sched_yield();
  CHECK(get() == argument);
  return 0;
}

static void *by_call(void *argument) {
  struct area area = make(50);
  void *now = 0;
  OK(syscall(SYS_arch_prctl, ARCH_SET_GS, &area));
  CHECK_EQ(number(), 4761);
  usleep(1000);
  CHECK_EQ(number(), 4761);
  OK(syscall(SYS_arch_prctl, ARCH_GET_GS, &now));
  CHECK(now == &area);
  FAILS(syscall(SYS_arch_prctl, ARCH_SET_GS, -1L), EPERM);
  join(start(inherits, &area));
  return argument;
}

static void reveal(int sig) {
  CHECK_EQ(sig, SIGSEGV);
  handled++;
  OK(mprotect(hidden, 4096, PROT_READ | PROT_WRITE));
}

/* Where nothing can be read, and no address at all. */
static void *nowhere(void *argument) {
  char *page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  void *bases[] = {page, (void *)16, (void *)0x7ffffffff000};
  for (unsigned i = 0; i < COUNT(bases); i++) {
    set(bases[i]);
    sched_yield();
    usleep(1000);
    for (volatile int k = 0; k < 3000000; k++) continue;
    handled = 0;
    raise(SIGUSR2);
    CHECK_EQ(handled, 1);
    CHECK(get() == bases[i]);
  }
  hidden = page;
  set(page);
  CHECK_EQ(number(), 0);
  CHECK_EQ(handled, 2);
  return argument;
}

/* Back to nothing; calls that wait, and the thread's end, with that. */
static void *to_nothing(void *argument) {
  struct area area = make(40);
  struct timespec longer = {0, 200000};
  for (int i = 0; i < 20; i++) {
    set(&area);
    sched_yield();
    CHECK_EQ(number(), 4751);
    set(0);
    if (i % 2) usleep(100);
    OK(pthread_mutex_lock(&mutex));
    usleep(10);
    OK(pthread_mutex_unlock(&mutex));
    syscall(SYS_futex, &words[THREADS], FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &longer);
  }
  join(start(without, (int[]){1}));
  return argument;
}

static struct area other;

static void changes(int sig) {
  CHECK_EQ(sig, SIGHUP);
  other = make(70);
  set(&other);
}

static void leaves(int sig) {
  CHECK_EQ(sig, SIGINT);
  siglongjmp(way_out, 1);
}

static void *by_handler(void *argument) {
  struct area area = make(60);
  set(&area);
  OK(pthread_kill(pthread_self(), SIGHUP));
  CHECK_EQ(number(), 4781);
  set(&area);
  if (!sigsetjmp(way_out, 1)) {
    OK(pthread_kill(pthread_self(), SIGINT));
    CHECK(0);
  }
  CHECK_EQ(number(), 4771);
  usleep(1000);
  CHECK_EQ(number(), 4771);
  return argument;
}

static void in_child(void) {
  struct area *area = get();
  CHECK_EQ(area->number, 4791);
  join(start(inherits, area));
  CHECK(get() == area);
  usleep(1000);
  CHECK(get() == area);
}

static void *processes(void *argument) {
  struct area area = make(80);
  int status;
  set(&area);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    in_child();
    pid_t grandchild = fork();
    CHECK(grandchild >= 0);
    if (grandchild == 0) {
      in_child();
      _exit(4);
    }
    CHECK_EQ(waitpid(grandchild, &status, 0), grandchild);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
    _exit(3);
  }
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  CHECK_EQ(number(), 4791);
  char *args[] = {"/bin/true", 0};
  OK(posix_spawn(&child, "/bin/true", 0, 0, args, environ));
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_EQ(number(), 4791);
  return argument;
}

static void on(int signal, void (*function)(int)) {
  struct sigaction action = {.sa_handler = function};
  OK(sigaction(signal, &action, 0));
}

int main(void) {
  struct area area = make(90);
  int stop = 0;
  if (getauxval(AT_HWCAP2) & 2) {
    on(SIGUSR1, handler);
    on(SIGUSR2, handler);
    on(SIGSEGV, reveal);
    on(SIGHUP, changes);
    on(SIGINT, leaves);
    set((void *)16); /* before the first thread */
    OK(kill(getpid(), SIGUSR1));
    set(&area);
    pthread_t threads[THREADS], more;
    join(start(inherits, &area));
    CHECK_EQ(number(), 4801);
    more = start(without, &stop);
    for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(rounds, (void *)i);
    for (int i = 0; i < 50; i++) {
      OK(pthread_kill(threads[i % THREADS], i % 2 ? SIGUSR1 : SIGUSR2));
      usleep(500);
      CHECK_EQ(number(), 4801);
    }
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    join(start(by_call, 0));
    join(start(nowhere, 0));
    for (int i = 0; i < THREADS; i++) threads[i] = start(to_nothing, 0);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    join(start(by_handler, 0));
    join(start(processes, 0));
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    join(more);
    CHECK_EQ(number(), 4801);
  }
  puts("ok GS base");
}
