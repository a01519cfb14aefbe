/* Asserts that thread stacks stay what mmap and mprotect make of them while thousands come and go: zeroed thread-local
   memory, guards that fault, parts that the program protects, makes executable, unmaps or moves; memory that deep threads
   used is given back; stacks live through fork. Memory is mapped with exactly the flags that glibc uses for stacks. */
#include "check.h"
#include <sys/resource.h>

enum { FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, PAGE = 4096 };

static int probe[2];
static int gate;

static int readable(const char *p) {
  char byte;
  if (write(probe[1], p, 1) == 1) {
    CHECK_EQ(read(probe[0], &byte, 1), 1);
    return 1;
  }
  CHECK_EQ(errno, EFAULT);
  return 0;
}

static char *map(size_t size, size_t guard) {
  char *p = mmap(0, size, PROT_NONE, FLAGS, -1, 0);
  CHECK(p != MAP_FAILED);
  OK(mprotect(p + guard, size - guard, PROT_READ | PROT_WRITE));
  CHECK(guard == 0 || (!readable(p) && !readable(p + guard - 1)));
  for (size_t i = guard; i < size; i += 64) CHECK_EQ(p[i], 0);
  return p;
}

static void memory(size_t size) {
  enum { MANY = 40 };
  char *p[MANY];
  for (int round = 0; round < 4; round++) {
    size_t guard = (size_t)(1 + round % 2) * PAGE;
    for (int i = 0; i < MANY; i++) {
      p[i] = map(size, guard);
      memset(p[i] + guard, i + 1, size - guard);
    }
    for (int i = 0; i < MANY; i++) {
      char *middle = p[i] + 6 * PAGE;
      CHECK(p[i][guard] == i + 1 && p[i][size - 1] == i + 1);
      switch (round == 3 ? -1 : i) {
      case 3: /* parts */
        OK(mprotect(middle, PAGE, PROT_NONE));
        CHECK(!readable(middle) && readable(middle + PAGE) && !readable(p[i]));
        OK(mprotect(middle, PAGE, PROT_READ | PROT_WRITE));
        CHECK(*middle == i + 1);
        break;
      case 5: /* the guard opened */
        OK(mprotect(p[i], guard, PROT_READ | PROT_WRITE));
        CHECK(readable(p[i]) && readable(p[i] + guard - 1));
        p[i][0] = 1;
        break;
      case 7: /* a hole, and something else in it */
        OK(munmap(middle, PAGE));
        CHECK(!readable(middle) && middle[-1] == i + 1 && middle[PAGE] == i + 1);
        CHECK(mmap(middle, PAGE, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0) == middle && *middle == 0);
        break;
      case 9: /* executable */
        OK(mprotect(p[i] + guard, size - guard, PROT_READ | PROT_WRITE | PROT_EXEC));
        middle[0] = (char)0xc3;
        ((void (*)(void))middle)();
        CHECK(!readable(p[i]));
        break;
      case 11: { /* moved, without its guard */
        char *moved = mremap(p[i] + guard, size - guard, 2 * size, MREMAP_MAYMOVE);
        CHECK(moved != MAP_FAILED && moved[0] == i + 1 && moved[size - guard - 1] == i + 1 && moved[2 * size - 1] == 0);
        OK(munmap(moved, 2 * size));
        OK(munmap(p[i], guard));
        continue;
      }
      case 13: /* replaced altogether */
        CHECK(mmap(p[i], size, PROT_READ, FLAGS | MAP_FIXED, -1, 0) == p[i] && p[i][0] == 0 && p[i][size - 1] == 0);
        break;
      case 15: /* in two pieces */
        OK(munmap(p[i], 7 * PAGE));
        CHECK(!readable(p[i] + 7 * PAGE - 1) && p[i][size - 1] == i + 1);
        OK(munmap(p[i] + 7 * PAGE, size - 7 * PAGE));
        continue;
      case 17: /* contents dropped, the guard not */
        OK(madvise(p[i], size, MADV_DONTNEED));
        CHECK(!readable(p[i]) && p[i][guard] == 0 && p[i][size - 1] == 0);
        break;
      case 19:
        OK(madvise(p[i], size, MADV_DONTFORK));
        break;
      case 21:
        if (mlock(middle, PAGE)) CHECK(errno == ENOMEM || errno == EPERM || errno == EAGAIN);
        break;
      }
      OK(munmap(p[i], size));
    }
  }
  /* Given back and mapped again: zero, whatever was done to it. */
  for (int i = 0; i < MANY; i++) p[i] = map(size, PAGE);
  for (int i = 0; i < MANY; i++) OK(munmap(p[i], size));
}

static __thread char own[3000];

static void *shallow(void *argument) {
  for (unsigned i = 0; i < sizeof own; i++) CHECK_EQ(own[i], 0);
  memset(own, 1, sizeof own);
  while (!__atomic_load_n(&gate, __ATOMIC_SEQ_CST)) usleep(20000);
  return argument;
}

static pthread_attr_t *sized(pthread_attr_t *attr, size_t size) {
  OK(pthread_attr_init(attr));
  OK(pthread_attr_setstacksize(attr, size));
  return attr;
}

static void waves(void) {
  enum { MOST = 1500 };
  static pthread_t threads[MOST];
  pthread_attr_t attr;
  for (int wave = 0; wave < 5; wave++) {
    int count = wave % 2 ? MOST / 4 : MOST;
    gate = 0;
    sized(&attr, (size_t)(wave == 3 ? 80 : 64) * 1024);
    for (int i = 0; i < count; i++) OK(pthread_create(&threads[i], &attr, shallow, (void *)(long)i));
    __atomic_store_n(&gate, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < count; i++) CHECK_EQ((long)join(threads[i]), i);
  }
}

__attribute__((noinline)) static long use(size_t bytes) {
  volatile char block[2048];
  for (unsigned i = 0; i < sizeof block; i += 256) block[i] = (char)i;
  if (bytes <= 2300) return block[256];
  return use(bytes - 2300) + block[0];
}

static void *deep(void *argument) {
  use((size_t)argument);
  return argument;
}

static void *overflows(void *argument) {
  use((size_t)argument);
  return argument;
}

static long resident_kib(void) {
  long total, pages;
  FILE *f = fopen("/proc/self/statm", "r");
  CHECK(f && fscanf(f, "%ld %ld", &total, &pages) == 2);
  fclose(f);
  return pages * 4;
}

static void gives_back(size_t stack, int count) {
  pthread_attr_t attr;
  pthread_t threads[64];
  sized(&attr, stack);
  long before = resident_kib();
  for (int i = 0; i < count; i++) OK(pthread_create(&threads[i], &attr, deep, (void *)(stack - 64 * 1024)));
  for (int i = 0; i < count; i++) join(threads[i]);
  long limit = before + 4096;
  for (int i = 0; resident_kib() > limit; i++) {
    if (i == 100) check_failed(__FILE__, __LINE__, "%ld KiB, %ld KiB before", resident_kib(), before);
    sleep_ms(50);
  }
}

static void *protects_its_own(void *argument) {
  pthread_attr_t attr;
  void *address;
  size_t size;
  OK(pthread_getattr_np(pthread_self(), &attr));
  OK(pthread_attr_getstack(&attr, &address, &size));
  OK(pthread_attr_destroy(&attr));
  char *low = (char *)address + 8 * PAGE; /* as the JVM does */
  OK(mprotect(low, 3 * PAGE, PROT_NONE));
  CHECK(!readable(low));
  use(size / 2);
  OK(mprotect(low, 3 * PAGE, PROT_READ | PROT_WRITE));
  use(size - size / 8);
  return argument;
}

static void *forks(void *argument) {
  for (int i = 0; i < 10; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      for (int k = 0; k < 20; k++) {
        pthread_t threads[8];
        for (int j = 0; j < 8; j++) threads[j] = start(deep, (void *)100000L);
        for (int j = 0; j < 8; j++) join(threads[j]);
      }
      _exit(7);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  }
  return argument;
}

static void *churns(void *argument) {
  pthread_attr_t attr;
  sized(&attr, 100 * 1024);
  for (int i = 0; i < 150; i++) {
    pthread_t threads[20];
    for (int j = 0; j < 20; j++) OK(pthread_create(&threads[j], &attr, deep, (void *)30000L));
    for (int j = 0; j < 20; j++) join(threads[j]);
  }
  return argument;
}

int main(void) {
  OK(pipe(probe));
  OK(fcntl(probe[0], F_SETFL, O_NONBLOCK));
  join(start(deep, (void *)10000L));
  memory(64 * 1024);
  memory(256 * 1024);
  memory(13 * PAGE);
  puts("ok memory");
  waves();
  puts("ok waves");
  gives_back(512 * 1024, 64);
  gives_back(2 << 20, 30);
  puts("ok given back");
  pthread_t threads[60];
  for (int round = 0; round < 4; round++) {
    for (unsigned i = 0; i < COUNT(threads); i++) threads[i] = start(protects_its_own, probe);
    for (unsigned i = 0; i < COUNT(threads); i++) CHECK(join(threads[i]) == probe);
  }
  puts("ok protected");
  for (int i = 0; i < 2; i++) threads[i] = start(forks, 0);
  for (int i = 2; i < 5; i++) threads[i] = start(churns, 0);
  for (int i = 0; i < 5; i++) join(threads[i]);
  puts("ok forks");
  for (int i = 0; i < 3; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      struct rlimit none = {0, 0};
      OK(setrlimit(RLIMIT_CORE, &none));
      pthread_attr_t attr;
      pthread_t thread;
      if (!freopen("/dev/null", "w", stderr)) _exit(3);
      for (int k = 0; k < 20; k++) join(start(deep, (void *)100L));
      OK(pthread_create(&thread, sized(&attr, 256 * 1024), overflows, (void *)(i ? 300000L : 1000000L)));
      join(thread);
      _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  }
  puts("ok overflow");
}
