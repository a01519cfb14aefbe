/* Runs the programs that it is given from threads, by posix_spawn and by fork and execve, and becomes the first one by
   execve from a thread: `runs_others PROGRAM...`. */
#include "../c/check.h"
#include <spawn.h>

static void *spawns(void *argument) {
  char *args[] = {argument, 0};
  pid_t pid;
  int status;
  OK(posix_spawn(&pid, argument, 0, 0, args, environ));
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
  pid = fork();
  if (pid == 0) {
    execv(argument, args);
    _exit(127);
  }
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
  return 0;
}

static void *becomes(void *argument) {
  execv(argument, (char *[]){argument, 0});
  check_failed(__FILE__, __LINE__, "execv came back");
}

int main(int argc, char **argv) {
  pthread_t threads[16];
  CHECK(argc > 1 && argc <= 16);
  for (int i = 1; i < argc; i++) threads[i] = start(spawns, argv[i]);
  for (int i = 1; i < argc; i++) join(threads[i]);
  start(becomes, argv[1]);
  for (;;) pause();
}
