/* Asserts that a thread's name can be read and set by another thread, main's too, through libc and through /proc, and
   that /proc has the thread's own id, name and state; a child process has the name of the thread that made it. */
#include "check.h"
#include <sys/prctl.h>

static pthread_barrier_t barrier;
static pthread_t main_thread;
static pid_t tid;

static void read_file(const char *file, char *text, size_t size) {
  char path[100];
  snprintf(path, sizeof path, "/proc/self/task/%d/%s", tid, file);
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0);
  size_t n = 0;
  ssize_t r;
  while ((r = read(fd, text + n, size - 1 - n)) > 0) n += (size_t)r;
  CHECK_EQ(r, 0);
  FAILS((int)write(fd, "x", 1), EBADF);
  text[n] = 0;
  OK(close(fd));
}

static void child_is_named(const char *name) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    char own[16], text[32] = "", expected[32];
    OK(prctl(PR_GET_NAME, own));
    CHECK(strcmp(own, name) == 0);
    int fd = open("/proc/self/comm", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    snprintf(expected, sizeof expected, "%s\n", name);
    CHECK(strcmp(text, expected) == 0);
    _exit(0);
  }
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
}

static void *body(void *argument) {
  tid = gettid();
  OK(pthread_setname_np(pthread_self(), "its own"));
  child_is_named("its own");
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  char name[16];
  OK(pthread_getname_np(pthread_self(), name, sizeof name));
  CHECK(strcmp(name, "given") == 0);
  OK(pthread_setname_np(main_thread, "main, named"));
  OK(pthread_getname_np(main_thread, name, sizeof name));
  CHECK(strcmp(name, "main, named") == 0);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  OK(pthread_getname_np(pthread_self(), name, sizeof name));
  CHECK(strcmp(name, "fifteen letters") == 0);
  return argument;
}

int main(void) {
  char name[16], text[8000], expected[100];
  main_thread = pthread_self();
  OK(pthread_barrier_init(&barrier, 0, 2));
  pthread_t thread = start(body, 0);
  pthread_barrier_wait(&barrier);
  OK(pthread_getname_np(thread, name, sizeof name));
  CHECK(strcmp(name, "its own") == 0);
  OK(pthread_setname_np(thread, "given"));
  OK(pthread_getname_np(thread, name, sizeof name));
  CHECK(strcmp(name, "given") == 0);
  CHECK_EQ(pthread_getname_np(thread, name, 3), ERANGE);
  CHECK_EQ(pthread_setname_np(thread, "sixteen letters!"), ERANGE);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  OK(pthread_getname_np(pthread_self(), name, sizeof name));
  CHECK(strcmp(name, "main, named") == 0);
  child_is_named("main, named");
  int fd = open("/proc/self/comm", O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, sizeof text) == 12 && memcmp(text, "main, named\n", 12) == 0);
  OK(close(fd));

  read_file("comm", text, sizeof text);
  CHECK(strcmp(text, "given\n") == 0);
  snprintf(expected, sizeof expected, "%d (given) ", tid);
  read_file("stat", text, sizeof text);
  CHECK(strncmp(text, expected, strlen(expected)) == 0);
  CHECK(strchr("RS", text[strlen(expected)]));
  read_file("status", text, sizeof text);
  CHECK(strncmp(text, "Name:\tgiven\n", 12) == 0);
  snprintf(expected, sizeof expected, "\nTgid:\t%d\n", getpid());
  CHECK(strstr(text, expected));
  snprintf(expected, sizeof expected, "\nPid:\t%d\n", tid);
  CHECK(strstr(text, expected));
  read_file("maps", text, sizeof text);
  CHECK(strstr(text, "r-xp"));

  /* Cut at fifteen, as the kernel does. */
  snprintf(text, sizeof text, "/proc/%d/task/%d/comm", getpid(), tid);
  FILE *file = fopen(text, "r+");
  CHECK(file && fputs("fifteen letters and more", file) >= 0);
  OK(fclose(file));
  pthread_barrier_wait(&barrier);
  join(thread);
  puts("ok names");
}
