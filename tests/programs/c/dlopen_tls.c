/* Asserts dlopen from threads: thread-locals of a library loaded late, in threads older and newer than it, fresh after
   each loading; constructors and destructors run once each; dlclose and loading again; dlerror is each thread's own. */
#include "check.h"
#include <dlfcn.h>

enum { THREADS = 12, ROUNDS = 10, CALLS = 20 };

int heddle_test_loads, heddle_test_unloads;
static const char *path;
static pthread_barrier_t barrier;
static void *library;

static void *body(void *argument) {
  int id = (int)(long)argument;
  for (int round = 0; round < ROUNDS; round++) {
    pthread_barrier_wait(&barrier);
    void *lib = dlopen(path, round % 2 ? RTLD_NOW : RTLD_LAZY); /* all at once */
    CHECK(lib);
    if (id == 0) library = lib;
    int (*count)(int) = (int (*)(int))dlsym(lib, "lib_count");
    int *value = dlsym(lib, "lib_value");
    CHECK(count && value);
    CHECK_EQ(*value, 11);
    for (int i = 1; i <= CALLS; i++) CHECK_EQ(count(id), i);
    CHECK(value == dlsym(lib, "lib_value"));
    CHECK_EQ(*value, 11 + CALLS);
    pthread_barrier_wait(&barrier);
    CHECK(lib == library); /* one copy */
    CHECK_EQ(heddle_test_loads, round + 1);
    pthread_barrier_wait(&barrier);
    OK(dlclose(lib));
    pthread_barrier_wait(&barrier);
    CHECK_EQ(heddle_test_unloads, round + 1);
    char name[40];
    snprintf(name, sizeof name, "./missing-%d.so", id);
    CHECK(!dlopen(name, RTLD_NOW));
    sched_yield();
    const char *error = dlerror();
    CHECK(error && strstr(error, name));
    CHECK(!dlerror());
  }
  return 0;
}

static void *young(void *argument) {
  int (*count)(int) = (int (*)(int))dlsym(argument, "lib_count");
  for (int i = 1; i <= CALLS; i++) CHECK_EQ(count(1), i);
  return 0;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  CHECK_EQ(argc, 2);
  path = argv[1];
  OK(pthread_barrier_init(&barrier, 0, THREADS));
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok loading in threads");
  void *lib = dlopen(path, RTLD_NOW);
  CHECK(lib);
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < THREADS; i++) threads[i] = start(young, lib);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
  }
  OK(dlclose(lib));
  CHECK_EQ(heddle_test_loads, ROUNDS + 1);
  CHECK_EQ(heddle_test_unloads, ROUNDS + 1);
  puts("ok threads after loading");
}
