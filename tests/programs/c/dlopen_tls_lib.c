/* The library that dlopen_tls.c loads: thread-locals of both models, a constructor and a destructor that say so, a system
   call of its own, a thread started by the constructor. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern int heddle_test_loads, heddle_test_unloads; /* the program's */

__thread int lib_value = 11;
static __thread char lib_block[5000];
static __thread int lib_touched;
static int helped;

static void *helper(void *argument) {
  lib_value = 5;
  *(int *)argument = lib_value + 2;
  return 0;
}

__attribute__((constructor)) static void load(void) {
  pthread_t thread;
  __atomic_add_fetch(&heddle_test_loads, 1, __ATOMIC_SEQ_CST);
  if (pthread_create(&thread, 0, helper, &helped) == 0) pthread_join(thread, 0);
}

__attribute__((destructor)) static void unload(void) { __atomic_add_fetch(&heddle_test_unloads, 1, __ATOMIC_SEQ_CST); }

/* Counts this thread's calls; 0 if anything is wrong. */
int lib_count(int id) {
  struct timespec t = {0, 10000};
  long result;
  register long r10 __asm__("r10") = 0;
  if (lib_value != 11 + lib_touched || helped != 7) return 0;
  if (lib_touched == 0)
    for (unsigned i = 0; i < sizeof lib_block; i++)
      if (lib_block[i]) return 0;
  lib_block[lib_touched % 5000] = (char)id;
  lib_block[4999] = (char)id;
  /* A site that was not there when the program started. */
  __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_nanosleep), "D"(&t), "S"(0), "r"(r10) : "rcx", "r11", "memory");
  if (result != 0 || lib_block[4999] != (char)id) return 0;
  lib_value++;
  return ++lib_touched;
}
