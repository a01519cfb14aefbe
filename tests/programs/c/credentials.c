/* Asserts that ids, groups, capabilities and what else lasts for good, changed by one thread, are changed for the whole
   process when the call returns: for every thread that asks, and for every kernel thread that /proc lists. As root it
   drops to nobody, step by step; otherwise it sets what it has already. */
#include "check.h"
#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

enum { THREADS = 12, NOBODY = 65534, OTHER = 12345 };

static int stop, ready;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Yields, sleeps, waits for a pipe or for a lock. */
static void *busy(void *argument) {
  long kind = (long)argument % 4;
  int pipes[2];
  OK(pipe(pipes));
  __atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
  while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
    if (kind == 0) sched_yield();
    sleep_ms(kind == 1 ? 5 : 1);
    if (kind == 2) {
      char c;
      CHECK_EQ(write(pipes[1], "x", 1), 1);
      CHECK_EQ(read(pipes[0], &c, 1), 1);
    }
    if (kind == 3) {
      OK(pthread_mutex_lock(&lock));
      sleep_ms(1);
      OK(pthread_mutex_unlock(&lock));
    }
  }
  close(pipes[0]);
  close(pipes[1]);
  return 0;
}

/* Looks at a line of the status file of each kernel thread. */
static void each_task(const char *field, const char *expected) {
  DIR *tasks = opendir("/proc/self/task");
  CHECK(tasks);
  struct dirent *entry;
  int count = 0;
  while ((entry = readdir(tasks))) {
    if (entry->d_name[0] == '.') continue;
    char path[300], line[4096];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    FILE *file = fopen(path, "r");
    if (!file) continue; /* it has ended */
    int found = 0;
    while (fgets(line, sizeof line, file)) {
      size_t n = strlen(field);
      if (strncmp(line, field, n) || line[n] != ':') continue;
      found = 1;
      if (strncmp(line + n + 1, expected, strlen(expected)))
        check_failed(__FILE__, __LINE__, "task %s: %s not %s", entry->d_name, line, expected);
    }
    fclose(file);
    CHECK(found);
    count++;
  }
  closedir(tasks);
  CHECK(count >= 1);
}

static void ids(const char *field, int real, int effective, int saved) {
  char expected[100];
  snprintf(expected, sizeof expected, "\t%d\t%d\t%d\t", real, effective, saved);
  each_task(field, expected);
}

static void *asks(void *argument) {
  (void)argument;
  uid_t r, e, s;
  OK(getresuid(&r, &e, &s));
  return (void *)(long)(r == e && e == s ? (long)r : -1);
}

static void *sets_group(void *argument) {
  OK(setgid((gid_t)(long)argument));
  return 0;
}

static void as_root(void) {
  gid_t groups[] = {300, 100, 200};
  OK(setgroups(3, groups));
  each_task("Groups", "\t100 200 300");
  for (int i = 0; i < 10; i++) {
    OK(setegid(1000 + i));
    ids("Gid", 0, 1000 + i, 0);
    OK(seteuid(i));
    ids("Uid", 0, i, 0);
    OK(seteuid(0));
  }
  OK(setegid(0));
  /* Once for each thread: a second time would change more. */
  OK(setresuid(NOBODY, NOBODY, 0));
  OK(setuid(0));
  ids("Uid", NOBODY, 0, 0);
  OK(setuid(0));
  ids("Uid", 0, 0, 0);
  /* By another thread than main. */
  join(start(sets_group, (void *)(long)NOBODY));
  ids("Gid", NOBODY, NOBODY, NOBODY);
  OK(setresgid(OTHER, NOBODY, OTHER));
  ids("Gid", OTHER, NOBODY, OTHER);
  OK(setregid(NOBODY, OTHER)); /* the saved one follows */
  ids("Gid", NOBODY, OTHER, OTHER);
  OK(setgroups(0, 0));
  each_task("Groups", "\t \n");

  OK(prctl(PR_CAPBSET_DROP, CAP_SYS_BOOT, 0, 0, 0));
  OK(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0));
  CHECK_EQ(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0), 1);
  OK(setuid(NOBODY));
  ids("Uid", NOBODY, NOBODY, NOBODY);
  each_task("CapEff", "\t0000000000000000");

  /* Kept, not effective: raise one, everywhere. */
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  memset(data, 0, sizeof data);
  data[0].permitted = data[0].effective = 1u << CAP_CHOWN;
  OK(syscall(SYS_capset, &header, data));
  memset(data, 0, sizeof data);
  header.pid = gettid();
  OK(syscall(SYS_capget, &header, data));
  CHECK_EQ(data[0].effective, 1u << CAP_CHOWN);
  header.pid = 0;
  memset(data, 0, sizeof data);
  OK(syscall(SYS_capset, &header, data));

  /* Errors: the same for all, and nothing has changed. */
  FAILS(setuid(0), EPERM);
  FAILS(setresuid(0, -1, -1), EPERM);
  FAILS(setgroups(3, groups), EPERM);
  ids("Uid", NOBODY, NOBODY, NOBODY);
  OK(setuid(NOBODY));
  for (int i = 0; i < 8; i++) CHECK_EQ((long)join(start(asks, 0)), NOBODY);
}

static void anyway(void) {
  uid_t uid = getuid();
  gid_t gid = getgid();
  OK(setuid(uid));
  OK(setgid(gid));
  OK(setresuid(uid, uid, uid));
  OK(setresgid(gid, gid, gid));
  ids("Uid", uid, uid, uid);
  ids("Gid", gid, gid, gid);
  FAILS(setresuid(0, 0, 0), EPERM);
  for (int i = 0; i < 8; i++) CHECK_EQ((long)join(start(asks, 0)), uid);
}

static void *tries(void *argument) {
  (void)argument;
  FAILS(syscall(SYS_sethostname, "x", (size_t)-1), EXDEV);
  CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  for (long i = 0; i < THREADS; i++) threads[i] = start(busy, (void *)i);
  while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < THREADS) sleep_ms(1);
  if (getuid() == 0) as_root();
  else anyway();

  int signal = 0;
  OK(prctl(PR_SET_PDEATHSIG, SIGUSR1, 0, 0, 0));
  for (int i = 0; i < 20; i++) {
    sched_yield();
    OK(prctl(PR_GET_PDEATHSIG, &signal, 0, 0, 0));
    CHECK_EQ(signal, SIGUSR1);
  }
  OK(prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0));

  /* For all threads, as the flag says. */
  OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sethostname, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {COUNT(filter), filter};
  OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
  each_task("Seccomp", "\t2");
  for (int i = 0; i < 20; i++) tries(0);
  for (int i = 0; i < 8; i++) join(start(tries, 0));

  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok credentials");
}
