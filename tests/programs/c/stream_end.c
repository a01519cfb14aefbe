/* Asserts that what ends a wait for a stream is never missed: the end that comes with the last data, a byte that comes while
   another thread polls, data behind a message with a descriptor or behind urgent data, and two readers of one socket. */
#include "tcp_pair.h"
#include <poll.h>

static int ends[2];

static void *reads_to_end(void *argument) {
  char bytes[100];
  long total = 0, got;
  while ((got = read(ends[0], bytes, sizeof bytes)) > 0) {
    total += got;
    sleep_ms(20);
  }
  CHECK_EQ(got, 0);
  CHECK_EQ(total, 2);
  return argument;
}

static void *recv_poll_recv(void *argument) {
  char byte, many[16];
  for (long total = 0, got; total < 100; total += got) {
    CHECK_EQ(recv(ends[0], &byte, 1, 0), 1);
    if (++total == 100) break;
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    CHECK_EQ(poll(&p, 1, -1), 1);
    got = recv(ends[0], many, sizeof many, 0);
    CHECK(got > 0);
  }
  return argument;
}

/* Each read stops behind a byte that came with a descriptor, and before and behind one that is urgent. */
static void *reads_in_parts(void *argument) {
  char bytes[100];
  long total = 0, got;
  while (total < 9) {
    CHECK((got = read(ends[0], bytes, sizeof bytes)) > 0);
    for (int i = 0; i < got; i++) CHECK(bytes[i] == (char)('a' + total + i));
    total += got;
    sleep_ms(10);
  }
  return argument;
}

static void send_with_descriptor(char byte) {
  struct iovec part = {&byte, 1};
  char control[CMSG_SPACE(sizeof(int))] = "";
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(header), &ends[1], sizeof(int));
  CHECK_EQ(sendmsg(ends[1], &message, 0), 1);
}

static void parts(int with_descriptors) {
  int inline_data = 1;
  if (!with_descriptors) OK(setsockopt(ends[0], SOL_SOCKET, SO_OOBINLINE, &inline_data, sizeof inline_data));
  pthread_t thread = start(reads_in_parts, 0);
  sleep_ms(5);
  for (char byte = 'a'; byte <= 'i'; byte++) {
    if (strchr("bdeh", byte)) {
      if (with_descriptors) send_with_descriptor(byte);
      else CHECK_EQ(send(ends[1], &byte, 1, MSG_OOB), 1);
    } else {
      CHECK_EQ(write(ends[1], &byte, 1), 1);
    }
    if (byte == 'a') sleep_ms(5);
  }
  join(thread);
  OK(close(ends[0]));
  OK(close(ends[1]));
}

static int taken;

static void *one_of_two(void *argument) {
  char bytes[16];
  long got;
  while ((got = read(ends[0], bytes, sizeof bytes)) > 0) __atomic_add_fetch(&taken, (int)got, __ATOMIC_SEQ_CST);
  CHECK_EQ(got, 0);
  return argument;
}

int main(void) {
  for (int kind = 0; kind < 2; kind++) {
    if (kind) tcp_pair(ends);
    else OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pthread_t thread = start(reads_to_end, 0);
    sleep_ms(20);
    CHECK_EQ(write(ends[1], "a", 1), 1);
    sleep_ms(10);
    CHECK_EQ(write(ends[1], "b", 1), 1);
    OK(close(ends[1]));
    join(thread);
    OK(close(ends[0]));
  }
  puts("ok the end with the last data");

  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  parts(1);
  tcp_pair(ends);
  parts(0);
  puts("ok data behind descriptors and urgent data");

  tcp_pair(ends);
  pthread_t thread = start(recv_poll_recv, 0);
  for (int i = 0; i < 100; i++) {
    sleep_ms(2);
    CHECK_EQ(write(ends[1], "x", 1), 1);
  }
  join(thread);
  OK(close(ends[0]));
  OK(close(ends[1]));
  puts("ok poll between reads");

  tcp_pair(ends);
  pthread_t readers[2] = {start(one_of_two, 0), start(one_of_two, 0)};
  for (int i = 0; i < 300; i++) {
    CHECK_EQ(write(ends[1], "y", 1), 1);
    while (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) != i + 1) sched_yield();
  }
  OK(shutdown(ends[1], SHUT_WR));
  for (int i = 0; i < 2; i++) join(readers[i]);
  puts("ok two readers");
}
