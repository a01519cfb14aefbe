/* Asserts that calls which no signal interrupts never fail with EINTR: threads make them over and over while another
   sends them signals whose handler, without SA_RESTART, makes such calls too. One thread's calls are those that could wait
   on another file, but not on a regular one; it loads a library, too. */
#include "check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum { SIGNALS = 3000 };

static timer_t timer;
static volatile int handled, sent_all;

static void calls(void) {
  struct itimerspec off = {{0, 0}, {0, 0}};
  OK(timer_settime(timer, 0, &off, 0));
  OK(timer_gettime(timer, &off));
  CHECK_EQ(timer_getoverrun(timer), 0);
  CHECK(getsid(0) >= 0);
  CHECK_EQ(access("/", R_OK), 0);
}

static void handler(int signal) {
  (void)signal;
  handled++;
  calls();
}

static void *caller(void *argument) {
  while (!sent_all) calls();
  return argument;
}

static void *opens(void *argument) {
  static char path[] = "/tmp/heddle-never-XXXXXX";
  char written[64] = "written", back[64];
  struct stat status;
  int left, fd = mkstemp(path);
  CHECK(fd >= 0);
  OK(close(fd));
  while (!sent_all) {
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(pwrite(fd, written, sizeof written, 0), (long)sizeof written);
    CHECK_EQ(write(fd, written, sizeof written), (long)sizeof written);
    CHECK_EQ(pread(fd, back, sizeof back, 0), (long)sizeof back);
    CHECK_EQ(read(fd, back, sizeof back), 0);
    OK(ioctl(fd, FIONREAD, &left));
    OK(fstatat(AT_FDCWD, path, &status, 0));
    OK(ftruncate(fd, sizeof written));
    OK(flock(fd, LOCK_EX));
    OK(close(fd));
    void *library = dlopen("libgcc_s.so.1", RTLD_NOW);
    CHECK(library);
    OK(dlclose(library));
  }
  OK(unlink(path));
  return argument;
}

int main(void) {
  struct sigevent nothing = {.sigev_notify = SIGEV_NONE};
  OK(timer_create(CLOCK_MONOTONIC, &nothing, &timer));
  struct sigaction action = {.sa_handler = handler};
  OK(sigaction(SIGUSR1, &action, 0));
  OK(sigaction(SIGUSR2, &action, 0));
  pthread_t threads[] = {start(caller, 0), start(opens, 0)};
  for (int i = 0; i < SIGNALS; i++) {
    for (int k = 0; k < 2; k++) OK(pthread_kill(threads[k], i % 2 ? SIGUSR1 : SIGUSR2));
    if (i % 64 == 0) sleep_ms(1);
  }
  sent_all = 1;
  for (int k = 0; k < 2; k++) join(threads[k]);
  CHECK(handled > 0);
  OK(timer_delete(timer));
  puts("ok never interrupted");
}
