/* Asserts that ids which a thread sets for itself, by raw system calls or setfsuid, are its own: it keeps them wherever it
   waits, computes or is moved to, what it makes has them (threads, child processes, files), nobody else has them, and changes by
   libc's functions are for the others. As root; otherwise, that it is refused. */
#include "check.h"
#include <grp.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/stat.h>

enum { OWN = 6, OTHERS = 6, ROUNDS = 30 };

static volatile int stop;
static char folder[] = "/tmp/heddle-credentials-XXXXXX";
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t settled;

static void is(uid_t real, uid_t effective, uid_t saved) {
  uid_t r, e, s;
  OK(getresuid(&r, &e, &s));
  CHECK_EQ(r, real);
  CHECK_EQ(e, effective);
  CHECK_EQ(s, saved);
}

/* Parks, yields, computes beyond a slice now and then, waits in the kernel. */
static void moves(int round, int events) {
  uint64_t one = 1;
  switch (round % 6) {
  case 0: sleep_ms(1); break;
  case 1: sched_yield(); break;
  case 2:
    OK(pthread_mutex_lock(&mutex));
    usleep(100);
    OK(pthread_mutex_unlock(&mutex));
    break;
  case 3:
    CHECK_EQ(write(events, &one, sizeof one), sizeof one);
    CHECK_EQ(read(events, &one, sizeof one), sizeof one);
    break;
  case 4:
    for (volatile int i = 0; i < (round % 12 == 4 ? 12000000 : 1000); i++) continue;
    break;
  default: {
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      usleep(500);
      _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
  }
  }
}

static void *has_these(void *argument) {
  uid_t *ids = argument;
  is(ids[0], ids[1], ids[2]);
  sleep_ms(1);
  is(ids[0], ids[1], ids[2]);
  return 0;
}

/* For good: there is no way back. */
static void *gives_up_root(void *argument) {
  uid_t n = 2000 + 10 * (uid_t)(intptr_t)argument, ids[] = {n, n + 1, n + 2};
  int events = eventfd(0, 0);
  CHECK(events >= 0);
  OK(syscall(SYS_setresgid, n, n, n));
  OK(syscall(SYS_setresuid, ids[0], ids[1], ids[2]));
  pthread_barrier_wait(&settled);
  for (int i = 0; i < ROUNDS; i++) {
    is(ids[0], ids[1], ids[2]);
    CHECK_EQ(getegid(), n);
    FAILS(syscall(SYS_setresuid, 0, 0, 0), EPERM);
    moves(i + (int)n, events);
  }
  join(start(has_these, ids));
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    is(ids[0], ids[1], ids[2]);
    _exit(0);
  }
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
  OK(close(events));
  return 0;
}

/* A server's thread that acts for one user after the other. */
static void *acts_for_users(void *argument) {
  int number = (intptr_t)argument, events = eventfd(0, 0);
  CHECK(events >= 0);
  pthread_barrier_wait(&settled);
  for (int i = 0; i < ROUNDS; i++) {
    uid_t user = 3000 + 100 * (uid_t)number + (uid_t)i % 3;
    char path[100];
    struct stat stat;
    CHECK_EQ(setfsuid(user), 0);
    moves(i + number, events);
    snprintf(path, sizeof path, "%s/%d.%d", folder, number, i);
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    CHECK(file >= 0);
    OK(fstat(file, &stat));
    CHECK_EQ(stat.st_uid, user);
    OK(close(file));
    OK(unlink(path));
    CHECK_EQ(setfsuid((uid_t)-1), (int)user);
    CHECK_EQ(setfsuid(0), (int)user);
    is(0, 0, 0);
  }
  OK(close(events));
  return 0;
}

/* Knows nothing of all that. */
static void *has_everybodys(void *argument) {
  int events = eventfd(0, 0);
  CHECK(events >= 0);
  pthread_barrier_wait(&settled);
  for (int i = (int)(intptr_t)argument; !stop; i++) {
    is(0, 0, 0);
    CHECK_EQ(setfsuid((uid_t)-1), 0);
    CHECK_EQ(getegid(), 0);
    moves(i % 5, events);
  }
  OK(close(events));
  return 0;
}

static void *sets_for_all(void *argument) {
  uid_t *ids = argument;
  OK(setresuid(ids[0], ids[1], ids[2]));
  return 0;
}

static void *waits(void *argument) {
  uid_t *ids = argument;
  pthread_barrier_wait(&settled);
  pthread_barrier_wait(&settled);
  is(ids[0], ids[1], ids[2]);
  return 0;
}

static void as_root(void) {
  pthread_t own[OWN], users[OWN], others[OTHERS];
  OK(pthread_barrier_init(&settled, 0, 2 * OWN + OTHERS));
  CHECK(mkdtemp(folder));
  OK(chmod(folder, 0777));
  for (intptr_t i = 0; i < OTHERS; i++) others[i] = start(has_everybodys, (void *)i);
  for (intptr_t i = 0; i < OWN; i++) own[i] = start(gives_up_root, (void *)i), users[i] = start(acts_for_users, (void *)i);
  for (int i = 0; i < OWN; i++) join(own[i]), join(users[i]);
  is(0, 0, 0);
  stop = 1;
  for (int i = 0; i < OTHERS; i++) join(others[i]);
  OK(rmdir(folder));
  puts("ok own ids");
  /* They have ended: libc's functions are for all that are left. */
  uid_t ids[] = {0, 65534, 0}, last[] = {65534, 65534, 65534};
  OK(pthread_barrier_init(&settled, 0, 3));
  pthread_t first = start(waits, ids), second = start(waits, ids);
  pthread_barrier_wait(&settled);
  join(start(sets_for_all, ids));
  pthread_barrier_wait(&settled);
  join(first);
  join(second);
  is(0, 65534, 0);
  OK(seteuid(0));
  OK(setresuid(65534, 65534, 65534));
  join(start(has_these, last));
  is(65534, 65534, 65534);
  FAILS(seteuid(0), EPERM);
}

static void *refused(void *argument) {
  FAILS(syscall(SYS_setresuid, 0, 0, 0), EPERM);
  CHECK_EQ(setfsuid(0), (int)geteuid());
  CHECK_EQ(setfsuid((uid_t)-1), (int)geteuid());
  return argument;
}

int main(void) {
  if (geteuid() == 0) {
    as_root();
  } else {
    for (int i = 0; i < 200; i++) join(start(refused, 0));
    puts("ok own ids");
  }
  puts("ok everybody's");
}
