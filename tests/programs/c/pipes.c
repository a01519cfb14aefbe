/* Asserts pipes and FIFOs between threads: nothing lost or reordered, readv/writev, a full pipe blocks its writer until
   someone reads, an empty one its reader, end of file, EPIPE with and without SIGPIPE, O_NONBLOCK, opening a FIFO waits
   for the other side. */
#include "check.h"
#include <sys/stat.h>
#include <sys/uio.h>

enum { PAIRS = 16, BYTES = 300000 };

static uint32_t next(uint32_t *state) { return *state = *state * 1664525 + 1013904223; }

struct link {
  int in, out;
  uint32_t sum;
};

static uint32_t mix(uint32_t sum, const unsigned char *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) sum = sum * 31 + bytes[i];
  return sum;
}

static void *writer(void *argument) {
  struct link *link = argument;
  static __thread unsigned char buffer[9000];
  uint32_t state = link->in, sum = 0;
  for (size_t left = BYTES; left;) {
    size_t n = 1 + next(&state) % sizeof buffer;
    if (n > left) n = left;
    for (size_t i = 0; i < n; i++) buffer[i] = next(&state) >> 24;
    sum = mix(sum, buffer, n);
    left -= n;
    if (n % 2) {
      struct iovec parts[3] = {{buffer, n / 3}, {buffer + n / 3, n / 3}, {buffer + 2 * (n / 3), n - 2 * (n / 3)}};
      CHECK_EQ(writev(link->out, parts, 3), n);
    } else {
      CHECK_EQ(write(link->out, buffer, n), n); /* a blocking write writes everything */
    }
  }
  link->sum = sum;
  OK(close(link->out));
  return 0;
}

static void *reader(void *argument) {
  struct link *link = argument;
  unsigned char a[1000], b[3000];
  uint32_t sum = 0;
  for (size_t total = 0;;) {
    struct iovec parts[2] = {{a, sizeof a}, {b, sizeof b}};
    ssize_t n = total % 2 ? read(link->in, a, sizeof a) : readv(link->in, parts, 2);
    CHECK(n >= 0);
    if (n == 0) {
      CHECK_EQ(total, BYTES);
      break;
    }
    total += n;
    size_t first = n < (ssize_t)sizeof a ? (size_t)n : sizeof a;
    sum = mix(mix(sum, a, first), b, n - first);
  }
  OK(close(link->in));
  return (void *)(uintptr_t)sum;
}

static void *echo(void *argument) {
  struct link *link = argument;
  char byte;
  while (read(link->in, &byte, 1) == 1) CHECK_EQ(write(link->out, &byte, 1), 1);
  OK(close(link->out));
  return 0;
}

static int stage;

static void *fill(void *argument) {
  struct link *link = argument;
  static char big[1 << 20];
  __atomic_store_n(&stage, 1, __ATOMIC_SEQ_CST);
  CHECK_EQ(write(link->out, big, sizeof big), sizeof big); /* more than a pipe holds */
  __atomic_store_n(&stage, 2, __ATOMIC_SEQ_CST);
  return 0;
}

static void *open_fifo(void *path) {
  int fd = open(path, O_WRONLY); /* waits for a reader */
  CHECK(fd >= 0);
  __atomic_store_n(&stage, 4, __ATOMIC_SEQ_CST);
  CHECK_EQ(write(fd, "fifo", 4), 4);
  OK(close(fd));
  return 0;
}

static volatile sig_atomic_t sigpipes;
static void on_sigpipe(int sig) { sigpipes += sig == SIGPIPE; }

int main(void) {
  pthread_t writers[PAIRS], readers[PAIRS];
  struct link links[PAIRS];
  int fds[2], back[2];
  for (int i = 0; i < PAIRS; i++) {
    OK(pipe(fds));
    links[i] = (struct link){fds[0], fds[1], 0};
    readers[i] = start(reader, &links[i]);
    writers[i] = start(writer, &links[i]);
  }
  for (int i = 0; i < PAIRS; i++) {
    join(writers[i]);
    CHECK_EQ((uintptr_t)join(readers[i]), links[i].sum);
  }
  puts("ok streams");

  OK(pipe(fds));
  OK(pipe(back));
  struct link there = {fds[0], back[1], 0};
  pthread_t echoer = start(echo, &there);
  for (int i = 0; i < 5000; i++) {
    char byte = (char)i;
    CHECK_EQ(write(fds[1], &byte, 1), 1);
    CHECK_EQ(read(back[0], &byte, 1), 1);
    CHECK_EQ(byte, (char)i);
  }
  OK(close(fds[1]));
  CHECK_EQ(read(back[0], fds, 1), 0); /* end of file passed on */
  join(echoer);
  OK(close(back[0]));
  OK(close(there.in));
  puts("ok ping-pong");

  OK(pipe(fds));
  struct link full = {0, fds[1], 0};
  pthread_t filler = start(fill, &full);
  while (__atomic_load_n(&stage, __ATOMIC_SEQ_CST) < 1) sched_yield();
  sleep_ms(50);
  CHECK_EQ(__atomic_load_n(&stage, __ATOMIC_SEQ_CST), 1); /* blocked */
  static char sink[1 << 20];
  for (size_t got = 0; got < sizeof sink;) {
    ssize_t n = read(fds[0], sink, sizeof sink - got);
    CHECK(n > 0);
    got += n;
  }
  join(filler);
  CHECK_EQ(stage, 2);
  puts("ok full pipe");

  int flags = fcntl(fds[0], F_GETFL);
  OK(fcntl(fds[0], F_SETFL, flags | O_NONBLOCK));
  FAILS(read(fds[0], sink, 1), EAGAIN);
  OK(fcntl(fds[1], F_SETFL, fcntl(fds[1], F_GETFL) | O_NONBLOCK));
  ssize_t n, total = 0;
  while ((n = write(fds[1], sink, sizeof sink)) > 0) total += n;
  CHECK(n == -1 && errno == EAGAIN && total >= 4096);
  CHECK_EQ(fcntl(fds[0], F_GETFL), flags | O_NONBLOCK); /* nobody else touched them */
  puts("ok O_NONBLOCK");

  signal(SIGPIPE, SIG_IGN);
  OK(close(fds[0]));
  FAILS(write(fds[1], sink, 1), EPIPE);
  signal(SIGPIPE, on_sigpipe);
  FAILS(write(fds[1], sink, 1), EPIPE);
  CHECK_EQ(sigpipes, 1);
  OK(close(fds[1]));
  puts("ok EPIPE");

  char path[] = "fifo-of-the-test";
  OK(mkfifo(path, 0600));
  stage = 3;
  pthread_t opener = start(open_fifo, path);
  sleep_ms(30);
  CHECK_EQ(__atomic_load_n(&stage, __ATOMIC_SEQ_CST), 3);
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0);
  CHECK_EQ(read(fd, sink, 10), 4);
  CHECK(memcmp(sink, "fifo", 4) == 0);
  CHECK_EQ(read(fd, sink, 10), 0);
  join(opener);
  OK(close(fd));
  OK(unlink(path));
  puts("ok FIFO");
}
