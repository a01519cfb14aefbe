/* Asserts OpenMP with more threads than processors: parallel for with every schedule, reductions, barriers, single, master,
   sections, ordered, critical, atomic, locks, threadprivate. */
#include "../c/check.h"
#include <omp.h>

enum { THREADS = 8, N = 200000 };

static int own;
#pragma omp threadprivate(own)

int main(void) {
  omp_set_dynamic(0);
  omp_set_num_threads(THREADS);
  static int numbers[N];
  long sum = 0, most = 0, product = 1;
  int team = 0;
#pragma omp parallel
#pragma omp single
  team = omp_get_num_threads();
  CHECK_EQ(team, THREADS);
  for (int round = 0; round < 20; round++) {
    sum = 0;
#pragma omp parallel for
    for (int i = 0; i < N; i++) numbers[i] = i % 1000 + round;
#pragma omp parallel for schedule(static, 100) reduction(+ : sum)
    for (int i = 0; i < N; i++) sum += numbers[i];
    CHECK_EQ(sum, N / 1000 * 499500L + (long)N * round);
  }
#pragma omp parallel for schedule(dynamic, 64) reduction(max : most)
  for (int i = 0; i < N; i++)
    if (numbers[i] > most) most = numbers[i];
#pragma omp parallel for schedule(guided) reduction(* : product)
  for (int i = 0; i < 40; i++) product *= i % 2 + 1;
  CHECK(most == 1018 && product == 1L << 20);
  puts("ok loops");

  int arrived[50] = {0}, wrong = 0, singles = 0, masters = 0;
#pragma omp parallel
  for (int i = 0; i < 50; i++) {
#pragma omp atomic
    arrived[i]++;
#pragma omp barrier
    if (arrived[i] != THREADS) {
#pragma omp atomic
      wrong++;
    }
#pragma omp single
    singles++;
#pragma omp master
    masters++;
  }
  CHECK(wrong == 0 && singles == 50 && masters == 50);
  puts("ok barriers");

  long counter = 0, locked = 0, sections = 0;
  omp_lock_t lock;
  omp_nest_lock_t nested;
  omp_init_lock(&lock);
  omp_init_nest_lock(&nested);
#pragma omp parallel
  for (int i = 0; i < 1000; i++) {
#pragma omp critical
    counter++;
    if (i % 2) omp_set_lock(&lock);
    else
      while (!omp_test_lock(&lock)) sched_yield();
    locked++;
    omp_unset_lock(&lock);
    omp_set_nest_lock(&nested);
    omp_set_nest_lock(&nested);
    sections++;
    omp_unset_nest_lock(&nested);
    omp_unset_nest_lock(&nested);
  }
  CHECK(counter == THREADS * 1000 && locked == THREADS * 1000 && sections == THREADS * 1000);
  omp_destroy_lock(&lock);
  omp_destroy_nest_lock(&nested);
  puts("ok locks");

  int order[100], next = 0;
#pragma omp parallel for ordered schedule(dynamic)
  for (int i = 0; i < 100; i++) {
    if (i % 7 == 0) usleep(50);
#pragma omp ordered
    order[next++] = i;
  }
  for (int i = 0; i < 100; i++) CHECK_EQ(order[i], i);
  int done[4] = {0};
#pragma omp parallel sections
  {
#pragma omp section
    done[0]++;
#pragma omp section
    done[1]++;
#pragma omp section
    done[2]++;
#pragma omp section
    done[3]++;
  }
  for (int i = 0; i < 4; i++) CHECK_EQ(done[i], 1);
#pragma omp parallel
  own = omp_get_thread_num() * 3;
#pragma omp parallel reduction(+ : wrong)
  wrong += own != omp_get_thread_num() * 3;
  CHECK_EQ(wrong, 0);
  puts("ok ordered, sections, threadprivate");
}
