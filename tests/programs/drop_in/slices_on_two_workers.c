/* Two workers and four threads that compute: none keeps its worker for much longer than a slice, though the slices of both
   workers end at about the same time. Prints which part of the computing, in hundredths, was done in runs of more than
   30 ms, three slices. (The kernel may cut a run short, which is no harm here.) */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { THREADS = 4 };

static unsigned long long millisecond; /* in ticks */
static atomic_ullong all, in_long_runs;

static unsigned long long ticks(void) { return __builtin_ia32_rdtsc(); }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void end_of_run(unsigned long long length) {
  atomic_fetch_add(&all, length);
  if (length > 30 * millisecond) atomic_fetch_add(&in_long_runs, length);
}

static void *computes(void *unused) {
  unsigned long long begin = ticks(), run = begin, last = begin, t = begin;
  for (; t - begin < 1500 * millisecond; last = t) {
    t = ticks();
    if (t - last > millisecond) {
      end_of_run(last - run);
      run = t;
    }
  }
  end_of_run(last - run);
  return unused;
}

int main(void) {
  pthread_t threads[THREADS];
  double start = now();
  unsigned long long first = ticks();
  while (now() < start + 0.02);
  millisecond = (ticks() - first) / 20;
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, computes, NULL) != 0) return 2;
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  printf("%llu\n", atomic_load(&in_long_runs) * 100 / atomic_load(&all));
  return 0;
}
