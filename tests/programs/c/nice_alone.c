/* Asserts that the nice value of a process that has had threads and has one left is real: programs that it starts have it, and
   threads that it makes later. */
#include "check.h"
#include <sys/resource.h>

static int nice_of(int which, id_t who) {
  errno = 0;
  int n = getpriority(which, who);
  CHECK_EQ(errno, 0);
  return n;
}

static void *tells_id(void *argument) {
  *(pid_t *)argument = gettid();
  return 0;
}

static void *has(void *argument) {
  CHECK_EQ(nice_of(PRIO_PROCESS, 0), (int)(intptr_t)argument);
  return 0;
}

static void programs_have(int nice) {
  char command[64];
  snprintf(command, sizeof command, "test \"$(nice)\" = %d", nice);
  CHECK_EQ(system(command), 0);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) _exit(nice_of(PRIO_PROCESS, 0) == nice ? 0 : 1);
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
}

int main(void) {
  pid_t tid;
  for (int i = 1; i <= 4; i++) {
    join(start(tells_id, &tid));
    gone(tid);
    int wanted = nice_of(PRIO_PROCESS, 0) + 1;
    if (i % 2) OK(setpriority(PRIO_PROCESS, 0, wanted));
    else CHECK_EQ(nice(1), wanted);
    CHECK_EQ(nice_of(PRIO_PROCESS, getpid()), wanted);
    programs_have(wanted);
    join(start(has, (void *)(intptr_t)wanted));
  }
  puts("ok nice");
}
