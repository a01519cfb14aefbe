/* Calls that the kernel makes as they are, from main and from several threads at once: what they return and what they do.
   What a machine may not allow (locked memory, protection keys, asynchronous I/O of the kernel's) is left out there. */
#include "check.h"
#include <linux/aio_abi.h>
#include <sys/fsuid.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

enum { THREADS = 6, MAPPINGS = 600 };

static void process_settings(void) {
  int value = -1;
  CHECK_EQ(prctl(PR_GET_DUMPABLE), 1);
  OK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
  OK(prctl(PR_GET_CHILD_SUBREAPER, &value, 0, 0, 0));
  CHECK_EQ(value, 1);
  CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 0);
  FAILS(prctl(-5, 0, 0, 0, 0), EINVAL);
  CHECK_EQ(personality(0xffffffff), 0);
  CHECK_EQ(setfsuid((uid_t)-1), (int)geteuid());
  CHECK_EQ(setfsgid((gid_t)-1), (int)getegid());
  errno = 0;
  int nice = getpriority(PRIO_PGRP, 0);
  CHECK_EQ(errno, 0);
  CHECK_EQ(getpriority(PRIO_USER, 0) <= nice, 1);
  OK(setpriority(PRIO_PGRP, 0, nice));
  struct rlimit limit;
  OK(getrlimit(RLIMIT_NOFILE, &limit));
  OK(prlimit(getpid(), RLIMIT_NOFILE, &limit, 0));
}

/* Code made at run time has system calls of its own. */
static void generated_code(void) {
  static const unsigned char code[] = {
      0xb8, SYS_getpid, 0, 0, 0, /* mov eax, SYS_getpid */
      0x0f, 0x05,                /* syscall */
      0xc3,                      /* ret */
  };
  unsigned char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  memcpy(page, code, sizeof code);
  OK(mprotect(page, 4096, PROT_READ | PROT_EXEC));
  for (int i = 0; i < 100; i++) CHECK_EQ(((int (*)(void))page)(), getpid());
  OK(munmap(page, 4096));
}

static void kernel_aio(void) {
  aio_context_t context = 0;
  if (syscall(SYS_io_setup, 4, &context) < 0) return;
  char name[] = "/tmp/heddle-passed-on-XXXXXX", text[8] = "abcdefg", back[8] = "";
  int fd = mkstemp(name);
  CHECK(fd >= 0);
  OK(unlink(name));
  struct iocb block = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = fd, .aio_buf = (uint64_t)text, .aio_nbytes = 8};
  struct iocb *list[] = {&block};
  struct io_event event;
  CHECK_EQ(syscall(SYS_io_submit, context, 1, list), 1);
  CHECK_EQ(syscall(SYS_io_getevents, context, 1, 1, &event, 0), 1);
  CHECK_EQ(event.res, 8);
  block.aio_lio_opcode = IOCB_CMD_PREAD;
  block.aio_buf = (uint64_t)back;
  CHECK_EQ(syscall(SYS_io_submit, context, 1, list), 1);
  CHECK_EQ(syscall(SYS_io_getevents, context, 1, 1, &event, &(struct timespec){10, 0}), 1);
  CHECK_EQ(memcmp(text, back, 8), 0);
  CHECK_EQ(syscall(SYS_io_getevents, context, 1, 1, &event, &(struct timespec){0, 1000000}), 0); /* none is left */
  OK(syscall(SYS_io_destroy, context));
  OK(close(fd));
}

static void protection_keys(void) {
  int key = pkey_alloc(0, 0);
  if (key < 0) return;
  int *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  OK(pkey_mprotect(page, 4096, PROT_READ | PROT_WRITE, key));
  *page = 5;
  CHECK_EQ(*page, 5);
  OK(munmap(page, 4096));
  OK(pkey_free(key));
}

/* A timer on the CPU clock of the calling thread, which the thread alone makes go on. */
static volatile sig_atomic_t fired;
static void on_timer(int signal) {
  (void)signal;
  fired = 1;
}
static void cpu_timer(void) {
  signal(SIGRTMIN, on_timer);
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
  OK(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer));
  OK(timer_settime(timer, 0, &(struct itimerspec){.it_value = {0, 5000000}}, 0));
  int64_t before = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  while (!fired) CHECK(now_ns(CLOCK_PROCESS_CPUTIME_ID) - before < 10000000000);
  OK(timer_delete(timer));
}

/* So many shared mappings that nobody keeps track of each: processes still meet in them. */
static void *waits(void *argument) {
  pthread_mutex_t *mutex = argument;
  OK(pthread_mutex_lock(mutex));
  OK(pthread_mutex_unlock(mutex));
  return 0;
}
static void many_mappings(void) {
  static pthread_mutex_t *mutexes[MAPPINGS];
  pthread_mutexattr_t attr;
  OK(pthread_mutexattr_init(&attr));
  OK(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
  for (int i = 0; i < MAPPINGS; i++) {
    mutexes[i] = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(mutexes[i] != MAP_FAILED);
    /* Neighbours would become one mapping. */
    CHECK(mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    OK(pthread_mutex_init(mutexes[i], &attr));
  }
  pthread_mutex_t *last = mutexes[MAPPINGS - 1];
  for (int round = 0; round < 3; round++) {
    OK(pthread_mutex_lock(last));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      pthread_t threads[2] = {start(waits, last), start(waits, last)};
      for (int i = 0; i < 2; i++) join(threads[i]);
      _exit(0);
    }
    pthread_t own = start(waits, last);
    sleep_ms(20);
    OK(pthread_mutex_unlock(last));
    join(own);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
  }
  /* And those that are nobody else's. */
  pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
  OK(pthread_mutex_lock(&own));
  pthread_t thread = start(waits, &own);
  sleep_ms(5);
  OK(pthread_mutex_unlock(&own));
  join(thread);
}

static void *locked_memory(void *argument) {
  char block[30000];
  memset(block, (int)(intptr_t)argument, sizeof block);
  sched_yield();
  CHECK_EQ(block[29999], (char)(intptr_t)argument);
  return 0;
}

/* Megabytes that are resident. */
static int resident(void) {
  int pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%*d %d", &pages) == 1);
  fclose(file);
  return pages / 256;
}

static void *each(void *argument) {
  process_settings();
  generated_code();
  kernel_aio();
  protection_keys();
  return argument;
}

int main(void) {
  each(0);
  puts("ok from the only thread");
  pthread_t threads[THREADS];
  for (long i = 0; i < THREADS; i++) threads[i] = start(each, 0);
  each(0);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok from threads");
  cpu_timer();
  puts("ok timer");
  many_mappings();
  puts("ok mappings");
  if (mlockall(MCL_CURRENT | MCL_FUTURE) == 0) {
    for (int round = 0; round < 3; round++) {
      for (long i = 0; i < THREADS; i++) threads[i] = start(locked_memory, (void *)i);
      for (int i = 0; i < THREADS; i++) join(threads[i]);
    }
    CHECK(resident() < 200);
    unsigned char flags[16];
    void *future = mmap(0, sizeof flags * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(future != MAP_FAILED);
    OK(mincore(future, sizeof flags * 4096, flags));
    for (unsigned i = 0; i < sizeof flags; i++) CHECK_EQ(flags[i] & 1, 1);
    OK(munlockall());
  }
  puts("ok locked memory");
}
