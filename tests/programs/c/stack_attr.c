/* Asserts stacks: the size asked for is usable to its end, pthread_getattr_np's bounds hold a local variable, the thread's
   own memory; stacks of the program's, the smallest and a 64 MiB one, guard sizes, one size after another reused. */
#include "check.h"

static size_t page;

/* Uses about `bytes` of stack, in steps below a page. */
__attribute__((noinline)) static long use(size_t bytes) {
  volatile char block[1024];
  for (unsigned i = 0; i < sizeof block; i += 64) block[i] = (char)i;
  if (bytes <= 1200) return block[64];
  return use(bytes - 1200) + block[0];
}

struct expected {
  size_t size, guard, to_use;
  char *address; /* of a stack of the program's */
};

static __thread char fresh[64];

static void *body(void *argument) {
  struct expected *e = argument;
  pthread_attr_t attr;
  void *address;
  size_t size, guard;
  char here;
  for (unsigned i = 0; i < sizeof fresh; i++) CHECK_EQ(fresh[i], 0);
  memset(fresh, 7, sizeof fresh);
  OK(pthread_getattr_np(pthread_self(), &attr));
  OK(pthread_attr_getstack(&attr, &address, &size));
  OK(pthread_attr_getguardsize(&attr, &guard));
  CHECK(&here >= (char *)address && &here < (char *)address + size);
  CHECK(size >= e->size - e->guard - page && size <= 4 * e->size + 64 * 1024); /* glibc reuses stacks up to four times too large */
  if (e->address) CHECK(address == e->address && size == e->size);
  else CHECK_EQ(guard, e->guard);
  OK(pthread_attr_destroy(&attr));
  char *low = &here - e->to_use; /* how far there is to go: all of it is ours */
  CHECK(low > (char *)address);
  use(e->to_use);
  usleep(50);
  use(e->to_use);
  return argument;
}

static void one(size_t size, size_t guard, size_t to_use) {
  pthread_attr_t attr;
  pthread_t threads[3];
  struct expected e = {size, guard, to_use, 0};
  OK(pthread_attr_init(&attr));
  OK(pthread_attr_setstacksize(&attr, size));
  OK(pthread_attr_setguardsize(&attr, guard));
  for (unsigned i = 0; i < COUNT(threads); i++) OK(pthread_create(&threads[i], &attr, body, &e));
  for (unsigned i = 0; i < COUNT(threads); i++) CHECK(join(threads[i]) == &e);
  OK(pthread_attr_destroy(&attr));
}

static void own_stack(size_t size, int times) {
  pthread_attr_t attr;
  pthread_t thread;
  char *memory = mmap(0, size + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  memory[page - 1] = 99;
  memory[page + size] = 98;
  struct expected e = {size, 0, size - size / 4 - 6000, memory + page};
  OK(pthread_attr_init(&attr));
  OK(pthread_attr_setstack(&attr, memory + page, size));
  for (int i = 0; i < times; i++) {
    OK(pthread_create(&thread, &attr, body, &e));
    CHECK(join(thread) == &e);
  }
  CHECK(memory[page - 1] == 99 && memory[page + size] == 98); /* nothing beyond it was touched */
  int used = 0;
  for (size_t i = 0; i < size; i += 64) used |= memory[page + i];
  CHECK(used); /* it really ran there */
  OK(pthread_attr_destroy(&attr));
  OK(munmap(memory, size + 2 * page));
}

static void main_stack(void) {
  pthread_attr_t attr;
  void *address;
  size_t size;
  char here;
  OK(pthread_getattr_np(pthread_self(), &attr));
  OK(pthread_attr_getstack(&attr, &address, &size));
  CHECK(&here >= (char *)address && &here < (char *)address + size && size >= 1 << 20);
  OK(pthread_attr_destroy(&attr));
  use(1 << 20);
}

int main(void) {
  page = sysconf(_SC_PAGESIZE);
  main_stack();
  puts("ok main");
  size_t least = sysconf(_SC_THREAD_STACK_MIN);
  least = (least + page - 1) & ~(page - 1);
  one(least, page, least / 4);
  one(16 * page, page, 12 * page);
  one(17 * page, page, 12 * page);
  one(64 << 20, page, 60 << 20);
  puts("ok sizes");
  one(256 * 1024, 0, 200 * 1024);
  one(256 * 1024, 16 * page, 150 * 1024);
  one(1 << 20, 64 * page, 700 * 1024);
  puts("ok guards");
  own_stack(least, 3);
  own_stack(256 * 1024, 20);
  own_stack(8 << 20, 3);
  puts("ok own stacks");
  for (int i = 0; i < 60; i++) {
    size_t size = (size_t)(16 + i * 37 % 100 * 5) * page;
    one(size, page, size / 2);
  }
  puts("ok many sizes");
  pthread_attr_t attr;
  OK(pthread_attr_init(&attr));
  CHECK_EQ(pthread_attr_setstacksize(&attr, 100), EINVAL);
  size_t size;
  OK(pthread_attr_getstacksize(&attr, &size));
  CHECK(size >= 1 << 20);
  OK(pthread_attr_destroy(&attr));
  puts("ok attributes");
}
