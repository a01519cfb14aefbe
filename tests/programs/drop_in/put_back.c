/* Puts into GS base what another thread has read there: on Linux 0, under Heddle the runtime's. For Heddle only, which ends the program
   by SIGABRT with a line on standard error, once it looks. */
#include "../c/check.h"

enum { THREADS = 8 }; /* more than workers: then the monitor interrupts them */

static uint64_t found[THREADS];

static uint64_t get(void) {
  uint64_t base;
  __asm__ volatile("rdgsbase %0" : "=r"(base));
  return base;
}

static void *body(void *argument) {
  intptr_t own = (intptr_t)argument;
  for (;;) {
    uint64_t base = get();
    __atomic_store_n(&found[own], base, __ATOMIC_SEQ_CST);
    for (int i = 0; own == 0 && i < THREADS; i++) {
      uint64_t other = __atomic_load_n(&found[i], __ATOMIC_SEQ_CST);
      if (other != 0 && other != get()) {
        __asm__ volatile("wrgsbase %0" : : "r"(other) : "memory");
        for (;;) __asm__ volatile("" ::: "memory");
      }
    }
  }
  return argument;
}

int main(void) {
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  join(threads[0]);
}
