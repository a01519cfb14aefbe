/* Asserts that /proc/self/task lists the program's threads and no others, however small the reader's buffer, again from
   its start and from a place in the middle, and that a thread's folder is there as long as the thread is. */
#include "check.h"
#include <dirent.h>
#include <sys/stat.h>

enum { THREADS = 100 };

static pthread_barrier_t barrier;
static pid_t tids[THREADS + 1];

static void *body(void *argument) {
  *(pid_t *)argument = gettid();
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return 0;
}

static int index_of(const char *name) {
  for (int i = 0; i <= THREADS; i++)
    if (tids[i] == atoi(name)) return i;
  check_failed(__FILE__, __LINE__, "%s is listed", name);
}

/* Reads on; each of the threads but those in `seen` comes once, main included. */
static void whole(DIR *folder, int seen) {
  char found[THREADS + 1] = {0};
  struct dirent *entry;
  while ((errno = 0, entry = readdir(folder))) {
    if (entry->d_name[0] == '.') continue;
    CHECK_EQ(entry->d_type, DT_DIR);
    CHECK(entry->d_ino != 0);
    CHECK_EQ(found[index_of(entry->d_name)]++, 0);
    seen++;
  }
  CHECK_EQ(errno, 0);
  CHECK_EQ(seen, THREADS + 1);
}

static void small_buffers(void) {
  char buffer[32], name[100];
  int n = 0;
  snprintf(name, sizeof name, "/proc/%d/task/", getpid());
  int fd = open(name, O_RDONLY | O_DIRECTORY);
  CHECK(fd >= 0);
  FAILS((int)syscall(SYS_getdents64, fd, buffer, 8), EINVAL);
  for (;;) {
    long got = syscall(SYS_getdents64, fd, buffer, sizeof buffer);
    CHECK(got >= 0);
    if (got == 0) break;
    CHECK_EQ(*(uint16_t *)(buffer + 16), got);
    if (buffer[19] != '.') index_of(buffer + 19), n++;
  }
  CHECK_EQ(n, THREADS + 1);
  FAILS((int)syscall(SYS_getdents64, -1, buffer, sizeof buffer), EBADF);
  OK(lseek(fd, 0, SEEK_SET));
  FAILS((int)syscall(SYS_getdents64, fd, (void *)16, sizeof buffer), EFAULT);
  OK(close(fd));
}

/* Main alone, once those who have ended are gone. */
static void wait_for_the_end(DIR *folder) {
  rewinddir(folder);
  struct dirent *entry;
  while ((entry = readdir(folder)))
    if (entry->d_name[0] != '.' && atoi(entry->d_name) != getpid()) {
      index_of(entry->d_name);
      sleep_ms(1);
      rewinddir(folder);
    }
}

int main(void) {
  pthread_t threads[THREADS];
  char path[100], text[100];
  struct stat status;
  OK(pthread_barrier_init(&barrier, 0, THREADS + 1));
  for (int i = 0; i < THREADS; i++) threads[i] = start(body, &tids[i]);
  tids[THREADS] = getpid();
  pthread_barrier_wait(&barrier);

  DIR *folder = opendir("/proc/self/task");
  CHECK(folder);
  whole(folder, 0);
  rewinddir(folder);
  whole(folder, 0);
  rewinddir(folder);
  struct dirent *entry;
  for (int i = 0; i < 50;) {
    CHECK((entry = readdir(folder)));
    i += entry->d_name[0] != '.';
  }
  long middle = telldir(folder);
  whole(folder, 50);
  seekdir(folder, middle);
  whole(folder, 50);
  small_buffers();

  for (int i = 0; i <= THREADS; i++) {
    snprintf(path, sizeof path, "/proc/self/task/%d", tids[i]);
    OK(stat(path, &status));
    CHECK(S_ISDIR(status.st_mode));
    OK(access(path, R_OK | X_OK));
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", tids[i]);
    OK(lstat(path, &status));
    CHECK(S_ISREG(status.st_mode));
    snprintf(path, sizeof path, "/proc/%d/task/%d/exe", getpid(), tids[i]);
    CHECK(readlink(path, text, sizeof text) > 0);
    snprintf(path, sizeof path, "/proc/self/task/%d/nothing", tids[i]);
    FAILS(access(path, F_OK), ENOENT);
  }

  pthread_barrier_wait(&barrier);
  wait_for_the_end(folder);
  OK(closedir(folder));
  for (int i = 0; i < THREADS; i++) {
    snprintf(path, sizeof path, "/proc/self/task/%d", tids[i]);
    FAILS(stat(path, &status), ENOENT);
    join(threads[i]);
  }
  puts("ok folder");
}
