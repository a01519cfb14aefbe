/* Asserts scheduling calls about oneself and other threads: sched_yield, getcpu, names (short, too long, of others),
   policy and parameters, priorities by thread id, affinity read. */
#include "check.h"
#include <sys/resource.h>
#include <sys/sysinfo.h>

enum { THREADS = 16 };

static pthread_barrier_t barrier;
static pthread_t threads[THREADS];
static pid_t tids[THREADS];

static void *body(void *argument) {
  int id = (int)(long)argument, policy;
  char name[16], expected[16];
  struct sched_param param;
  cpu_set_t cpus, also;
  tids[id] = gettid();
  OK(pthread_getname_np(pthread_self(), name, sizeof name));
  CHECK(strcmp(name, "the-main-thread") == 0); /* inherited */
  snprintf(expected, sizeof expected, "worker %d", id);
  OK(pthread_setname_np(pthread_self(), expected));
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < 20; i++) {
    OK(sched_yield());
    unsigned cpu, node;
    OK(getcpu(&cpu, &node));
    CHECK((int)cpu < get_nprocs_conf() && sched_getcpu() >= 0 && sched_getcpu() < get_nprocs_conf());
    OK(pthread_getname_np(pthread_self(), name, sizeof name));
    CHECK(strcmp(name, expected) == 0);
    usleep(100);
  }
  int other = (id + 1) % THREADS; /* alive: all wait below */
  CHECK_EQ(pthread_getname_np(pthread_self(), name, 3), ERANGE);
  CHECK_EQ(pthread_setname_np(pthread_self(), "sixteen letters!"), ERANGE);
  OK(pthread_getschedparam(threads[other], &policy, &param));
  CHECK(policy == SCHED_OTHER && param.sched_priority == 0);
  OK(pthread_setschedparam(pthread_self(), SCHED_OTHER, &param));
  CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
  CHECK_EQ(sched_getscheduler(tids[other]), SCHED_OTHER);
  errno = 0;
  CHECK(getpriority(PRIO_PROCESS, tids[other]) == 0 && errno == 0);
  OK(sched_getaffinity(0, sizeof cpus, &cpus));
  OK(sched_getaffinity(tids[other], sizeof also, &also));
  CHECK(CPU_COUNT(&cpus) >= 1 && CPU_EQUAL(&cpus, &also));
  OK(pthread_getaffinity_np(threads[other], sizeof also, &also));
  CHECK(CPU_EQUAL(&cpus, &also));
  pthread_barrier_wait(&barrier);
  return 0;
}

int main(void) {
  char name[16];
  cpu_set_t before, after;
  OK(sched_getaffinity(0, sizeof before, &before));
  OK(pthread_setname_np(pthread_self(), "the-main-thread"));
  OK(pthread_barrier_init(&barrier, 0, THREADS));
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  OK(pthread_getname_np(pthread_self(), name, sizeof name));
  CHECK(strcmp(name, "the-main-thread") == 0);
  OK(sched_getaffinity(0, sizeof after, &after));
  CHECK(CPU_EQUAL(&before, &after));
  FAILS(sched_getscheduler(0x3ffffff0), ESRCH);
  puts("ok scheduling calls");
}
