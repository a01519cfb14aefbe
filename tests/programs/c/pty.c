/* Asserts terminals between threads: reading waits for a whole line, raw mode for a byte, O_NONBLOCK and poll, end of file,
   hang-up. */
#include "check.h"
#include <poll.h>
#include <termios.h>

enum { PAIRS = 8 };

struct pair {
  int master, slave;
};

static void open_pair(struct pair *p, int raw) {
  struct termios t;
  p->master = posix_openpt(O_RDWR | O_NOCTTY);
  CHECK(p->master >= 0);
  OK(grantpt(p->master));
  OK(unlockpt(p->master));
  char name[64];
  OK(ptsname_r(p->master, name, sizeof name));
  p->slave = open(name, O_RDWR | O_NOCTTY);
  CHECK(p->slave >= 0);
  OK(tcgetattr(p->slave, &t));
  if (raw) cfmakeraw(&t);
  t.c_lflag &= ~ECHO;
  t.c_oflag &= ~OPOST;
  OK(tcsetattr(p->slave, TCSANOW, &t));
}

static void *upper(void *argument) {
  struct pair *p = argument;
  char line[256];
  ssize_t n;
  while ((n = read(p->slave, line, sizeof line)) > 0) {
    CHECK_EQ(line[n - 1], '\n'); /* a whole line at a time */
    for (ssize_t i = 0; i < n - 1; i++) line[i] -= 32;
    CHECK_EQ(write(p->slave, line, n), n);
  }
  return (void *)(long)n;
}

static void *lines(void *argument) {
  struct pair p;
  (void)argument;
  open_pair(&p, 0);
  pthread_t other = start(upper, &p);
  for (int i = 0; i < 50; i++) {
    char text[64], reply[64];
    int n = snprintf(text, sizeof text, "line%c\n", 'a' + i % 26), got = 0;
    CHECK_EQ(write(p.master, text, 3), 3); /* half a line wakes nobody */
    if (i % 10 == 0) usleep(1000);
    CHECK_EQ(write(p.master, text + 3, n - 3), n - 3);
    while (got < n) {
      ssize_t r = read(p.master, reply + got, n - got);
      CHECK(r > 0);
      got += r;
    }
    CHECK(memcmp(reply, "LINE", 4) == 0 && reply[4] == 'A' + i % 26 && reply[5] == '\n');
  }
  CHECK_EQ(write(p.master, "\4", 1), 1); /* control-D */
  CHECK_EQ((long)join(other), 0);
  OK(close(p.slave));
  char byte;
  FAILS(read(p.master, &byte, 1), EIO); /* Linux: nobody has the other side open */
  OK(close(p.master));
  return 0;
}

static void *raw_reader(void *argument) {
  char byte;
  ssize_t n = read(((struct pair *)argument)->slave, &byte, 1);
  return (void *)(long)(n == 1 ? byte : -errno);
}

int main(void) {
  pthread_t threads[PAIRS];
  for (int i = 0; i < PAIRS; i++) threads[i] = start(lines, 0);
  for (int i = 0; i < PAIRS; i++) join(threads[i]);
  puts("ok lines");
  struct pair p;
  open_pair(&p, 1);
  pthread_t reader = start(raw_reader, &p);
  sleep_ms(20);
  CHECK_EQ(write(p.master, "z", 1), 1);
  CHECK_EQ((long)join(reader), 'z');
  struct pollfd poller = {p.slave, POLLIN, 0};
  CHECK_EQ(poll(&poller, 1, 10), 0);
  CHECK_EQ(write(p.master, "y", 1), 1);
  CHECK_EQ(poll(&poller, 1, -1), 1);
  char byte;
  CHECK_EQ(read(p.slave, &byte, 1), 1);
  OK(fcntl(p.slave, F_SETFL, O_RDWR | O_NONBLOCK));
  FAILS(read(p.slave, &byte, 1), EAGAIN);
  OK(fcntl(p.slave, F_SETFL, O_RDWR));
  puts("ok raw");
  reader = start(raw_reader, &p);
  sleep_ms(20);
  OK(close(p.master)); /* hang-up */
  long result = (long)join(reader);
  CHECK(result == 0 || result == -EIO);
  OK(close(p.slave));
  puts("ok hang-up");
}
