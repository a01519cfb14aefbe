/* Asserts that threads which all accept from one listener get each connection once, though all hear of it: TCP and Unix,
   with threads that poll first beside those that do not. Afterwards those who came too late wait as the others do: a few
   kernel threads, which serve all of them, are not blocked by some. */
#include "check.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { ACCEPTORS = 8, CLIENTS = 8, EACH = 12, ROUNDS = 8 };

static int listener;
static struct sockaddr_storage where;
static socklen_t size;
static int served;

static void *accepts(void *argument) {
  for (;;) {
    if ((long)argument % 2) {
      struct pollfd p = {.fd = listener, .events = POLLIN};
      CHECK_EQ(poll(&p, 1, -1), 1);
    }
    int fd = accept4(listener, 0, 0, SOCK_CLOEXEC);
    CHECK(fd >= 0);
    char byte;
    CHECK_EQ(read(fd, &byte, 1), 1);
    CHECK_EQ(write(fd, &byte, 1), 1);
    OK(close(fd));
    if (byte == 'q') return 0;
    __atomic_add_fetch(&served, 1, __ATOMIC_SEQ_CST);
  }
}

static void ask(char byte) {
  char back = 0;
  int fd = socket(where.ss_family, SOCK_STREAM, 0);
  OK(connect(fd, (struct sockaddr *)&where, size));
  CHECK_EQ(write(fd, &byte, 1), 1);
  CHECK_EQ(read(fd, &back, 1), 1);
  CHECK_EQ(back, byte);
  OK(close(fd));
}

static void *connects(void *argument) {
  for (int i = 0; i < EACH; i++) {
    ask('a');
    if (i % 8 == (long)argument) sleep_ms(1);
  }
  return 0;
}

/* Kernel threads of this process that are in `accept`, by the folder's short name: the kernel's threads, whoever runs them. */
static int kernel_threads_in_accept(void) {
  int count = 0;
  OK(chdir("/proc/self"));
  DIR *folder = opendir("task");
  CHECK(folder != 0);
  for (struct dirent *entry; (entry = readdir(folder));) {
    char name[300], text[64] = "";
    snprintf(name, sizeof name, "task/%s/syscall", entry->d_name);
    int fd = entry->d_name[0] == '.' ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue; /* it has ended */
    CHECK(read(fd, text, sizeof text - 1) >= 0);
    OK(close(fd));
    int number = -1;
    count += sscanf(text, "%d", &number) == 1 && number == SYS_accept4;
  }
  OK(closedir(folder));
  return count;
}

static void all_wait_alike(void) {
  for (int tries = 0, count; (count = kernel_threads_in_accept()) != 0; tries++) {
    if (count >= ACCEPTORS / 2) return; /* a kernel thread for each */
    CHECK(tries < 1000);
    sleep_ms(5);
  }
}

static void crowd(void) {
  pthread_t acceptors[ACCEPTORS], clients[CLIENTS];
  served = 0;
  OK(listen(listener, 64));
  for (long i = 0; i < ACCEPTORS; i++) acceptors[i] = start(accepts, (void *)i);
  for (int round = 0; round < ROUNDS; round++) {
    for (long i = 0; i < CLIENTS; i++) clients[i] = start(connects, (void *)i);
    for (int i = 0; i < CLIENTS; i++) join(clients[i]);
    all_wait_alike();
  }
  for (int i = 0; i < ACCEPTORS; i++) ask('q');
  for (int i = 0; i < ACCEPTORS; i++) join(acceptors[i]);
  CHECK_EQ(served, ROUNDS * CLIENTS * EACH);
  OK(close(listener));
}

int main(void) {
  listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  size = sizeof loopback;
  OK(bind(listener, (struct sockaddr *)&loopback, size));
  OK(getsockname(listener, (struct sockaddr *)&where, &size));
  crowd();
  puts("ok tcp");
  listener = socket(AF_UNIX, SOCK_STREAM, 0);
  where = (struct sockaddr_storage){.ss_family = AF_UNIX};
  size = sizeof(sa_family_t);
  OK(bind(listener, (struct sockaddr *)&where, size)); /* a name of the kernel's choice */
  size = sizeof where;
  OK(getsockname(listener, (struct sockaddr *)&where, &size));
  crowd();
  puts("ok unix");
}
