/* Asserts OpenMP's nested regions and tasks, oversubscribed: regions inside regions, recursive tasks, dependencies, task
   groups and loops, OpenMP from several of the program's own threads. */
#include "../c/check.h"
#include <omp.h>

static long fib(int n) {
  long left, right;
  if (n < 2) return n;
#pragma omp task shared(left) if (n > 8)
  left = fib(n - 1);
#pragma omp task shared(right) if (n > 8)
  right = fib(n - 2);
#pragma omp taskwait
  return left + right;
}

static void *own_region(void *argument) {
  long sum = 0;
  for (int round = 0; round < 10; round++) {
#pragma omp parallel for num_threads(4) reduction(+ : sum)
    for (int i = 0; i < 1000; i++) sum += i;
  }
  return argument ? (void *)sum : 0;
}

int main(void) {
  omp_set_dynamic(0);
  omp_set_max_active_levels(3);
  long total = 0;
  for (int round = 0; round < 5; round++) {
    total = 0;
#pragma omp parallel num_threads(4) reduction(+ : total)
    {
      long outer = omp_get_thread_num(), inside = 0;
#pragma omp parallel num_threads(4) reduction(+ : inside)
      {
        CHECK_EQ(omp_get_level(), 2);
#pragma omp barrier
#pragma omp for
        for (int i = 0; i < 400; i++) inside += i * (outer + 1);
      }
      total += inside;
    }
    CHECK_EQ(total, 79800L * (1 + 2 + 3 + 4));
  }
  puts("ok nested regions");

  long result = 0;
#pragma omp parallel num_threads(8)
#pragma omp single
  result = fib(20);
  CHECK_EQ(result, 6765);
  puts("ok recursive tasks");

  int chain[50] = {0}, ok = 1;
#pragma omp parallel num_threads(8)
#pragma omp single
  {
    for (int i = 1; i < 50; i++) {
#pragma omp task depend(in : chain[i - 1]) depend(out : chain[i]) shared(chain)
      chain[i] = chain[i - 1] + i;
    }
#pragma omp taskwait
    for (int i = 1; i < 50; i++) ok &= chain[i] == i * (i + 1) / 2;
    long sum = 0;
#pragma omp taskgroup task_reduction(+ : sum)
    {
#pragma omp taskloop grainsize(10) in_reduction(+ : sum)
      for (int i = 0; i < 1000; i++) sum += i;
    }
    ok &= sum == 499500;
  }
  CHECK(ok);
  puts("ok dependencies, groups");

  pthread_t threads[6];
  for (int i = 0; i < 6; i++) threads[i] = start(own_region, &ok);
  for (int i = 0; i < 6; i++) CHECK_EQ((long)join(threads[i]), 4995000);
  puts("ok regions of several threads");
}
