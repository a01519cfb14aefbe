/* Asserts fork from a thread (the child has one thread, the caller, with its own identity; it can use locks, malloc,
   stdio and make threads of its own), atfork handlers in order, execve, vfork, posix_spawn, system and popen from
   threads, and exit statuses. */
#include "check.h"
#include <semaphore.h>
#include <spawn.h>
#include <sys/resource.h>

enum { THREADS = 8 };

static __thread int own;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char self_path[4096];
static char order[64];

static void note(char c) {
  size_t n = strlen(order);
  order[n] = c;
  order[n + 1] = 0;
}
static void prepare1(void) { note('p'); }
static void prepare2(void) { note('q'); }
static void parent1(void) { note('a'); }
static void parent2(void) { note('b'); }
static void child1(void) { note('x'); }
static void child2(void) { note('y'); }

static int wait_for(pid_t pid) {
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void *in_child(void *argument) {
  own = 7;
  for (int i = 0; i < 100; i++) {
    OK(pthread_mutex_lock(&mutex));
    ++*(long *)argument;
    OK(pthread_mutex_unlock(&mutex));
    sched_yield();
    free(malloc(1000 + i));
  }
  return 0;
}

/* What a forked child does: threads of its own, a pipe between them, malloc. Returns its exit code. */
static int child_life(int id) {
  long count = 0;
  pthread_t threads[4];
  if (own != id || getpid() == getppid()) return 90;
  if (gettid() != getpid()) return 91; /* the one thread left is the first of the process */
  for (int i = 0; i < 4; i++) threads[i] = start(in_child, &count);
  for (int i = 0; i < 4; i++) join(threads[i]);
  if (count != 400 || own != id) return 92;
  char *text = 0;
  if (asprintf(&text, "child of %d", id) < 10) return 93;
  free(text);
  usleep(1000);
  return 40 + id;
}

static void *forker(void *argument) {
  int id = (int)(long)argument;
  own = id;
  pthread_t self = pthread_self();
  for (int i = 0; i < 5; i++) {
    OK(pthread_mutex_lock(&mutex)); /* held across the fork, so the child owns it too */
    pid_t pid = fork();
    if (pid == 0) {
      if (!pthread_equal(self, pthread_self())) _exit(95);
      OK(pthread_mutex_unlock(&mutex));
      _exit(child_life(id));
    }
    OK(pthread_mutex_unlock(&mutex));
    CHECK(pid > 0);
    CHECK_EQ(wait_for(pid), 40 + id);
    CHECK_EQ(own, id);
  }
  return 0;
}

static void *execs(void *argument) {
  int id = (int)(long)argument;
  char code[16];
  snprintf(code, sizeof code, "%d", 60 + id);
  char *args[] = {self_path, "exit", code, 0}, *no_env[] = {0};
  pid_t pid = fork();
  if (pid == 0) {
    execv(self_path, args);
    _exit(127);
  }
  CHECK_EQ(wait_for(pid), 60 + id);

  pid = vfork();
  if (pid == 0) {
    execve(self_path, args, environ);
    _exit(127);
  }
  CHECK_EQ(wait_for(pid), 60 + id);
  pid = vfork();
  if (pid == 0) _exit(33);
  CHECK_EQ(wait_for(pid), 33);

  OK(posix_spawn(&pid, self_path, 0, 0, args, environ));
  CHECK_EQ(wait_for(pid), 60 + id);
  OK(posix_spawn(&pid, self_path, 0, 0, args, no_env)); /* even without an environment */
  CHECK_EQ(wait_for(pid), 60 + id);
  CHECK_EQ(posix_spawn(&pid, "/no/such/program", 0, 0, args, environ), ENOENT);
  OK(posix_spawnp(&pid, "true", 0, 0, (char *[]){"true", 0}, environ));
  CHECK_EQ(wait_for(pid), 0);

  char command[64];
  snprintf(command, sizeof command, "exit %d", 20 + id);
  int status = system(command);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 20 + id);
  snprintf(command, sizeof command, "echo to the parent %d; exit 5", id);
  FILE *pipe = popen(command, "r");
  char line[100], expected[100];
  CHECK(pipe && fgets(line, sizeof line, pipe));
  snprintf(expected, sizeof expected, "to the parent %d\n", id);
  CHECK(strcmp(line, expected) == 0);
  status = pclose(pipe);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
  return 0;
}

static void *popen_write(void *argument) {
  (void)argument;
  FILE *pipe = popen("read line && test \"$line\" = hello", "w");
  CHECK(pipe && fputs("hello\n", pipe) >= 0);
  CHECK_EQ(pclose(pipe), 0);
  return 0;
}

/* execve from a thread while others run: the new program takes the whole process, and keeps its id. */
static void *exec_all(void *argument) {
  char *args[] = {self_path, "pid", argument, 0};
  sleep_ms(5);
  execv(self_path, args);
  check_failed(__FILE__, __LINE__, "execv came back");
}

static void *idle(void *argument) {
  for (;;) pause();
  return argument;
}

static void *fork_signal(void *argument) {
  (void)argument;
  pid_t pid = fork();
  if (pid == 0) {
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
    _exit(1);
  }
  CHECK_EQ(wait_for(pid), 128 + SIGTERM);
  pid = fork();
  if (pid == 0) pause(), _exit(1);
  OK(kill(pid, SIGKILL));
  CHECK_EQ(wait_for(pid), 128 + SIGKILL);
  return 0;
}

static void each(void *(*body)(void *)) {
  pthread_t threads[THREADS];
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
}

/* A child goes on at once: it does not look through tables page by page first. */
static void child_touches_few_pages(void) {
  pid_t pid = fork();
  if (pid == 0) {
    struct rusage usage;
    OK(getrusage(RUSAGE_SELF, &usage));
    _exit(usage.ru_minflt < 4000 ? 0 : 1);
  }
  CHECK_EQ(wait_for(pid), 0);
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "exit")) {
    pthread_t t = start(in_child, &(long){0}); /* threads in the new program too */
    join(t);
    return atoi(argv[2]);
  }
  if (argc == 3 && !strcmp(argv[1], "pid")) return atoi(argv[2]) == getpid() && gettid() == getpid() ? 77 : 1;
  CHECK(readlink("/proc/self/exe", self_path, sizeof self_path - 1) > 0);
  each(forker);
  puts("ok fork from threads");
  own = 3;
  pid_t pid = fork();
  if (pid == 0) _exit(child_life(3));
  CHECK_EQ(wait_for(pid), 43);
  pid = fork();
  if (pid == 0) {
    pid = fork(); /* a grandchild */
    if (pid == 0) _exit(child_life(3));
    _exit(wait_for(pid) + 1);
  }
  CHECK_EQ(wait_for(pid), 44);
  child_touches_few_pages();
  puts("ok fork from main");
  each(execs);
  each(popen_write);
  each(fork_signal);
  puts("ok exec, spawn, system, popen, signals");
  OK(pthread_atfork(prepare1, parent1, child1));
  OK(pthread_atfork(prepare2, parent2, child2));
  pid = fork();
  if (pid == 0) _exit(strcmp(order, "qpxy") ? 1 : 0);
  CHECK_EQ(wait_for(pid), 0);
  CHECK(strcmp(order, "qpab") == 0);
  puts("ok atfork order");
  fflush(stdout);
  pid = fork();
  if (pid == 0) {
    char number[16];
    snprintf(number, sizeof number, "%d", getpid());
    for (int i = 0; i < 4; i++) start(idle, 0);
    start(exec_all, number);
    idle(0);
  }
  CHECK_EQ(wait_for(pid), 77);
  puts("ok execve from a thread");
}
