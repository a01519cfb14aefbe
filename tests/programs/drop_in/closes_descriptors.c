/* Closes every descriptor from 3 to 1023 (with `all`: to the end), as daemons do, before it has threads, while it has them; its
   threads go on with descriptors opened afterwards. Below 100 there is never a descriptor it did not open. */
#include "../c/check.h"
#include <poll.h>
#include <sys/socket.h>

enum { THREADS = 16 };

static void only(int most) {
  for (int fd = 3; fd < 100; fd++)
    if (fcntl(fd, F_GETFD) >= 0 && fd > most) check_failed(__FILE__, __LINE__, "descriptor %d is open", fd);
}

static void *talks(void *argument) {
  int *pair = argument;
  char byte;
  for (int i = 0; i < 100; i++) {
    CHECK_EQ(write(pair[1], "x", 1), 1);
    CHECK_EQ(read(pair[0], &byte, 1), 1);
    if (i % 10 == 0) usleep(100);
    if (i % 25 == 0) CHECK(poll(&(struct pollfd){pair[0], POLLIN, 0}, 1, 1) >= 0);
  }
  return 0;
}

static void *answers(void *argument) {
  int *pair = argument;
  char byte;
  for (int i = 0; i < 100; i++) {
    CHECK_EQ(recv(pair[0], &byte, 1, 0), 1);
    CHECK_EQ(send(pair[0], &byte, 1, 0), 1);
  }
  return 0;
}

static void *asks(void *argument) {
  int *pair = argument;
  char byte;
  for (int i = 0; i < 100; i++) {
    CHECK_EQ(send(pair[1], "y", 1, 0), 1);
    CHECK_EQ(recv(pair[1], &byte, 1, 0), 1);
  }
  return 0;
}

static void work(void) {
  pthread_t threads[THREADS];
  int pairs[THREADS / 2][2];
  for (int i = 0; i < THREADS / 2; i++) {
    if (i % 2) OK(pipe(pairs[i]));
    else OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]));
    CHECK(pairs[i][0] < 100 && pairs[i][1] < 100);
  }
  for (int i = 0; i < THREADS; i++)
    threads[i] = start(i / 2 % 2 ? talks : i % 2 ? asks : answers, pairs[i / 2]); /* odd pairs are pipes */
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  only(pairs[THREADS / 2 - 1][1]);
  for (int i = 0; i < THREADS / 2; i++) {
    OK(close(pairs[i][0]));
    OK(close(pairs[i][1]));
  }
  only(2);
}

static volatile int stop;

static void *sleeps(void *argument) {
  while (!stop) sleep_ms(1);
  return argument;
}

static void close_all(int how) {
  if (how) OK(syscall(SYS_close_range, 3, 1023, 0));
  else
    for (int fd = 3; fd < 1024; fd++) close(fd);
}

int main(int argc, char **argv) {
  close_all(0);
  work();
  puts("ok before threads");
  for (int how = 0; how < 2; how++) {
    close_all(how);
    work();
    pthread_t sleeper = start(sleeps, 0);
    sleep_ms(5);
    close_all(how);
    sleep_ms(5);
    work();
    stop = 1;
    join(sleeper);
    stop = 0;
  }
  puts("ok among threads");
  if (argc > 1 && !strcmp(argv[1], "all")) { /* as closefrom(3) does: everything there is, whatever its number */
    pthread_t sleeper = start(sleeps, 0);
    OK(syscall(SYS_close_range, 3, ~0u, 0));
    work();
    stop = 1;
    join(sleeper);
    OK(syscall(SYS_close_range, 3, ~0u, 0));
    work();
    puts("ok everything closed");
  }
}
