/* Asserts what becomes of libraries with initial-exec thread-locals that dlopen loads until there is no room for more: as
   many fit as ever, the next is refused with a reason, and every thread, older or newer, asleep or not, has its own. */
#include "check.h"
#include <dlfcn.h>

enum { THREADS = 6, MOST = 200 };

static void *libraries[MOST];
static int loaded;
static pthread_barrier_t barrier;

static void copy(const char *from, const char *to) {
  char block[65536];
  int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0700);
  ssize_t n;
  CHECK(in >= 0 && out >= 0);
  while ((n = read(in, block, sizeof block)) > 0) CHECK_EQ(write(out, block, n), n);
  CHECK_EQ(n, 0);
  close(in);
  close(out);
}

static void look(int id) {
  for (int i = 0; i < loaded; i++) {
    int (*lib_mark)(int) = (int (*)(int))dlsym(libraries[i], "lib_mark");
    CHECK(lib_mark);
    CHECK_EQ(lib_mark(id), 77);
    sched_yield();
    CHECK_EQ(lib_mark(id), id);
  }
}

static void *old(void *argument) {
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier); /* they are loaded meanwhile */
  look((int)(long)argument);
  return 0;
}

static void *new(void *argument) {
  look((int)(long)argument);
  return 0;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  CHECK_EQ(argc, 2);
  OK(pthread_barrier_init(&barrier, 0, THREADS + 1));
  for (long i = 0; i < THREADS; i++) threads[i] = start(old, (void *)(i + 1));
  pthread_barrier_wait(&barrier);
  for (;;) {
    char name[40];
    CHECK(loaded < MOST);
    snprintf(name, sizeof name, "./static_tls_%d.so", loaded);
    copy(argv[1], name);
    libraries[loaded] = dlopen(name, RTLD_NOW);
    if (!libraries[loaded]) {
      CHECK(strstr(dlerror(), "static TLS"));
      OK(unlink(name));
      break;
    }
    OK(unlink(name));
    loaded++;
  }
  CHECK(loaded > 0);
  printf("ok %d libraries\n", loaded);
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok threads older than they");
  for (long i = 0; i < THREADS; i++) threads[i] = start(new, (void *)(i + 1));
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  look(THREADS + 1);
  puts("ok threads newer than they");
}
