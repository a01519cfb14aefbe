/* Asserts the other calls that move bytes and may wait: splice, tee, vmsplice, sendfile, sendmmsg, recvmmsg with its
   time-out, preadv2, copy_file_range; between threads. */
#include "check.h"
#include <netinet/in.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { BYTES = 1 << 20 };

static char data[BYTES];

struct link {
  int from, to;
};

static uint32_t sum_of(const char *bytes, size_t n) {
  uint32_t sum = 0;
  for (size_t i = 0; i < n; i++) sum = sum * 31 + (unsigned char)bytes[i];
  return sum;
}

static void *collect(void *argument) {
  struct link *l = argument;
  static __thread char block[8192];
  uint32_t sum = 0;
  ssize_t n;
  size_t total = 0;
  while ((n = read(l->from, block, sizeof block)) > 0) {
    for (ssize_t i = 0; i < n; i++) sum = sum * 31 + (unsigned char)block[i];
    total += n;
  }
  CHECK_EQ(total, BYTES);
  return (void *)(uintptr_t)sum;
}

static void *feed(void *argument) {
  struct link *l = argument;
  for (size_t at = 0; at < BYTES;) {
    size_t n = 1 + at % 30011;
    if (n > BYTES - at) n = BYTES - at;
    if (at % 3) {
      CHECK_EQ(write(l->to, data + at, n), n);
    } else {
      struct iovec part = {data + at, n};
      ssize_t done = vmsplice(l->to, &part, 1, 0);
      CHECK(done > 0);
      n = done;
    }
    at += n;
  }
  OK(close(l->to));
  return 0;
}

static void splices(void) {
  int a[2], b[2];
  OK(pipe(a));
  OK(pipe(b));
  struct link from = {0, a[1]}, to = {b[0], 0};
  pthread_t feeder = start(feed, &from), collector = start(collect, &to);
  ssize_t n;
  while ((n = splice(a[0], 0, b[1], 0, 100000, 0)) > 0) {
  }
  CHECK_EQ(n, 0);
  OK(close(b[1]));
  join(feeder);
  CHECK_EQ((uintptr_t)join(collector), sum_of(data, BYTES));
  OK(close(a[0]));
  OK(close(b[0]));
}

static void *splices_thread(void *argument) {
  splices();
  return argument;
}

static void *write_late(void *argument) {
  sleep_ms(20);
  CHECK_EQ(write((int)(long)argument, "late", 4), 4);
  return 0;
}

static void tees(void) {
  int a[2], b[2];
  char text[8];
  OK(pipe(a));
  OK(pipe(b));
  pthread_t writer = start(write_late, (void *)(long)a[1]);
  CHECK_EQ(tee(a[0], b[1], 100, 0), 4); /* waits for it */
  join(writer);
  CHECK_EQ(read(a[0], text, 8), 4);
  CHECK_EQ(read(b[0], text, 8), 4);
  FAILS(splice(a[0], 0, b[1], 0, 1, SPLICE_F_NONBLOCK), EAGAIN);
  for (int i = 0; i < 2; i++) {
    OK(close(a[i]));
    OK(close(b[i]));
  }
}

static void files(void) {
  int pair[2], fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600), copy = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && copy >= 0);
  CHECK_EQ(write(fd, data, BYTES), BYTES);
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  struct link to = {pair[1], 0};
  pthread_t collector = start(collect, &to);
  off_t offset = 0;
  while (offset < BYTES) CHECK(sendfile(pair[0], fd, &offset, BYTES) > 0);
  OK(shutdown(pair[0], SHUT_WR));
  CHECK_EQ((uintptr_t)join(collector), sum_of(data, BYTES));
  off_t in = 0;
  while (in < BYTES) CHECK(copy_file_range(fd, &in, copy, 0, BYTES, 0) > 0);
  static char back[BYTES];
  struct iovec part = {back, BYTES};
  CHECK_EQ(preadv2(copy, &part, 1, 0, 0), BYTES);
  CHECK(memcmp(back, data, BYTES) == 0);
  OK(close(pair[0]));
  OK(close(pair[1]));
  OK(close(fd));
  OK(close(copy));
  OK(unlink("data"));
  OK(unlink("copy"));
}

enum { MESSAGES = 32 };

static void *many_messages(void *argument) {
  struct mmsghdr heads[MESSAGES] = {0};
  struct iovec parts[MESSAGES];
  int numbers[MESSAGES], got = 0;
  for (int i = 0; i < MESSAGES; i++) {
    parts[i] = (struct iovec){&numbers[i], sizeof *numbers};
    heads[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
  }
  while (got < MESSAGES) {
    int n = recvmmsg((int)(long)argument, heads + got, MESSAGES - got, MSG_WAITFORONE, 0);
    CHECK(n > 0);
    got += n;
  }
  for (int i = 0; i < MESSAGES; i++) CHECK(numbers[i] == i && heads[i].msg_len == sizeof(int));
  return 0;
}

static void messages(void) {
  int pair[2];
  OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
  pthread_t receiver = start(many_messages, (void *)(long)pair[0]);
  struct mmsghdr heads[MESSAGES] = {0};
  struct iovec parts[MESSAGES];
  int numbers[MESSAGES], sent = 0;
  for (int i = 0; i < MESSAGES; i++) {
    numbers[i] = i;
    parts[i] = (struct iovec){&numbers[i], sizeof *numbers};
    heads[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
  }
  sleep_ms(10);
  while (sent < MESSAGES) {
    int n = sendmmsg(pair[1], heads + sent, MESSAGES - sent, 0);
    CHECK(n > 0);
    sent += n;
  }
  join(receiver);
  CHECK_EQ(recvmmsg(pair[0], heads, 1, MSG_DONTWAIT, 0), -1);
  CHECK_EQ(errno, EAGAIN);
  OK(close(pair[0]));
  OK(close(pair[1]));
}

int main(void) {
  pthread_t threads[4];
  for (size_t i = 0; i < BYTES; i++) data[i] = (char)(i * 2654435761u >> 13);
  splices();
  for (int i = 0; i < 4; i++) threads[i] = start(splices_thread, 0);
  for (int i = 0; i < 4; i++) join(threads[i]);
  tees();
  puts("ok splice, tee, vmsplice");
  files();
  puts("ok sendfile, copy_file_range, preadv2");
  messages();
  puts("ok sendmmsg, recvmmsg");
}
