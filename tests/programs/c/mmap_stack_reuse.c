/* Asserts that memory mapped like a stack (MAP_STACK) is memory like any other: zeroed, protected, discarded, moved, cut
   and given back as asked, shared with fork as a copy; while threads come and go on stacks of their own and of ours. */
#include "check.h"

enum { FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE };

static int probe[2], stop;

/* Can it be read? The kernel says so without a fault. */
static int readable(const char *p) {
  char byte;
  if (write(probe[1], p, 1) == 1) {
    CHECK_EQ(read(probe[0], &byte, 1), 1);
    return 1;
  }
  CHECK_EQ(errno, EFAULT);
  return 0;
}

static void *deep(void *argument) {
  volatile char block[30000];
  memset((char *)block, (int)(long)argument, sizeof block);
  sched_yield();
  return (void *)(long)block[100];
}

static void *churn(void *argument) {
  while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) CHECK_EQ((long)join(start(deep, (void *)33L)), 33);
  return argument;
}

static char *map(size_t size) {
  char *p = mmap(0, size, PROT_NONE, FLAGS, -1, 0); /* as glibc does */
  CHECK(p != MAP_FAILED);
  CHECK(!readable(p + size / 2));
  OK(mprotect(p + 4096, size - 4096, PROT_READ | PROT_WRITE)); /* its guard: the first page */
  CHECK(!readable(p));
  for (size_t i = 4096; i < size; i += 512) CHECK_EQ(p[i], 0);
  return p;
}

static void one(size_t size) {
  char *p = map(size), *q = map(size);
  memset(p + 4096, 1, size - 4096);
  memset(q + 4096, 2, size - 4096);
  pid_t pid = fork();
  if (pid == 0) {
    memset(p + 4096, 3, size - 4096);
    _exit(q[5000]);
  }
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(WEXITSTATUS(status), 2);
  CHECK_EQ(p[5000], 1);
  OK(madvise(p + 8192, 4096, MADV_DONTNEED));
  CHECK(p[8191] == 1 && p[8192] == 0 && p[12287] == 0 && p[12288] == 1);
  OK(mprotect(p + 12288, 4096, PROT_READ));
  CHECK(readable(p + 12288));
  OK(mprotect(p + 12288, 4096, PROT_NONE));
  CHECK(!readable(p + 12288) && readable(p + 12287) && readable(p + 16384));
  OK(mprotect(p + 12288, 4096, PROT_READ | PROT_WRITE));
  CHECK_EQ(p[12288], 1);
  OK(munmap(p + 16384, 4096)); /* a hole */
  CHECK(!readable(p + 16384) && p[16383] == 1 && p[20480] == 1);
  char *again = mmap(p + 16384, 4096, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0);
  CHECK(again == p + 16384 && *again == 0);
  OK(munmap(p, size));
  CHECK(q[4096] == 2 && q[size - 1] == 2);
  char *moved = mremap(q, size, 2 * size, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) { /* two mappings (the guard's and the rest) cannot grow as one */
    CHECK_EQ(errno, EFAULT);
    OK(munmap(q, size));
  } else {
    CHECK(moved[size - 1] == 2 && moved[2 * size - 1] == 0);
    OK(munmap(moved, 2 * size));
  }
}

static void on_ours(size_t size) {
  pthread_attr_t attr;
  OK(pthread_attr_init(&attr));
  for (int i = 0; i < 30; i++) {
    char *p = map(size);
    pthread_t thread;
    OK(pthread_attr_setstack(&attr, p + 4096, size - 4096));
    OK(pthread_create(&thread, &attr, deep, (void *)(long)(i + 1)));
    CHECK_EQ((long)join(thread), i + 1);
    OK(munmap(p, size)); /* and mapped again, most likely at the same place, zeroed */
  }
}

int main(void) {
  pthread_t churners[4];
  OK(pipe(probe));
  OK(fcntl(probe[0], F_SETFL, O_NONBLOCK));
  for (int i = 0; i < 4; i++) churners[i] = start(churn, 0);
  static const size_t sizes[] = {64 * 1024, 256 * 1024, 1 << 20, 8 << 20, 3 * 4096 * 7};
  for (unsigned i = 0; i < COUNT(sizes); i++) {
    one(sizes[i]);
    on_ours(sizes[i]);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < 4; i++) join(churners[i]);
  puts("ok memory");
}
