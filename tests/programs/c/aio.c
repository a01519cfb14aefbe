/* Asserts POSIX asynchronous I/O and getaddrinfo_a, which make threads inside libc: reads and writes, aio_suspend with a
   time-out, lists, notification by a thread and by a signal, cancellation of what has not begun. */
#include "check.h"
#include <aio.h>
#include <netdb.h>

enum { REQUESTS = 32, BLOCK = 4096 };

static int notified;

static void on_done(union sigval value) {
  CHECK_EQ(value.sival_int, 5);
  __atomic_add_fetch(&notified, 1, __ATOMIC_SEQ_CST);
}

static void on_signal(int sig) {
  (void)sig;
  __atomic_add_fetch(&notified, 1, __ATOMIC_SEQ_CST);
}

static void wait_notified(int count) {
  for (int i = 0; i < 20000 && __atomic_load_n(&notified, __ATOMIC_SEQ_CST) < count; i++) usleep(500);
  CHECK_EQ(notified, count);
}

static void finish(struct aiocb *request, ssize_t expected) {
  const struct aiocb *list[] = {request};
  while (aio_error(request) == EINPROGRESS) CHECK(aio_suspend(list, 1, 0) == 0 || errno == EINTR);
  OK(aio_error(request));
  CHECK_EQ(aio_return(request), expected);
}

int main(void) {
  static char blocks[REQUESTS][BLOCK], back[REQUESTS][BLOCK];
  static struct aiocb requests[REQUESTS];
  struct aiocb *list[REQUESTS];
  int fd = open("aio-file", O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0);
  for (int i = 0; i < REQUESTS; i++) {
    memset(blocks[i], i + 1, BLOCK);
    requests[i] = (struct aiocb){.aio_fildes = fd, .aio_offset = i * BLOCK, .aio_buf = blocks[i], .aio_nbytes = BLOCK};
    OK(aio_write(&requests[i]));
  }
  for (int i = 0; i < REQUESTS; i++) finish(&requests[i], BLOCK);
  puts("ok writes");
  for (int i = 0; i < REQUESTS; i++) {
    requests[i] = (struct aiocb){.aio_fildes = fd, .aio_offset = i * BLOCK, .aio_buf = back[i], .aio_nbytes = BLOCK, .aio_lio_opcode = LIO_READ};
    list[i] = &requests[i];
  }
  OK(lio_listio(LIO_WAIT, list, REQUESTS, 0));
  for (int i = 0; i < REQUESTS; i++) finish(&requests[i], BLOCK);
  CHECK(memcmp(blocks, back, sizeof blocks) == 0);
  puts("ok list");
  requests[0] = (struct aiocb){.aio_fildes = fd, .aio_buf = back[0], .aio_nbytes = BLOCK};
  requests[0].aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_done, .sigev_value.sival_int = 5};
  OK(aio_read(&requests[0]));
  wait_notified(1);
  finish(&requests[0], BLOCK);
  signal(SIGUSR1, on_signal);
  requests[0].aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
  OK(aio_read(&requests[0]));
  wait_notified(2);
  finish(&requests[0], BLOCK);
  puts("ok notification");
  int fds[2];
  OK(pipe(fds));
  requests[0] = (struct aiocb){.aio_fildes = fds[0], .aio_buf = back[0], .aio_nbytes = 3};
  const struct aiocb *one[] = {&requests[0]};
  OK(aio_read(&requests[0])); /* waits in a thread of libc's */
  struct timespec short_time = {0, 30000000};
  int64_t from = now_ms();
  FAILS(aio_suspend(one, 1, &short_time), EAGAIN);
  TOOK_ABOUT(now_ms() - from, 30);
  requests[1] = requests[0];
  OK(aio_read(&requests[1])); /* behind it: one descriptor's requests are done in order */
  CHECK_EQ(aio_cancel(fds[0], &requests[1]), AIO_CANCELED);
  CHECK_EQ(aio_error(&requests[1]), ECANCELED);
  CHECK_EQ(write(fds[1], "abc", 3), 3);
  finish(&requests[0], 3);
  puts("ok waiting, cancelled");
  struct gaicb names[4] = {0}, *pointers[4];
  static char text[4][32];
  for (int i = 0; i < 4; i++) {
    snprintf(text[i], sizeof text[i], "127.0.0.%d", i + 1);
    names[i].ar_name = text[i];
    pointers[i] = &names[i];
  }
  OK(getaddrinfo_a(GAI_WAIT, pointers, 4, 0));
  for (int i = 0; i < 4; i++) {
    OK(gai_error(&names[i]));
    freeaddrinfo(names[i].ar_result);
  }
  puts("ok getaddrinfo_a");
  OK(close(fd));
  OK(unlink("aio-file"));
}
