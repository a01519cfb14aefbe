/* Threads that allocate, wait for each other, connect and accept, in a program that some library may stand before:
   prints what that library counted, if it is there. */
#include "../c/check.h"
#include <arpa/inet.h>
#include <sys/socket.h>

enum { THREADS = 40, ROUNDS = 20 };

__attribute__((weak)) long interposed(const char *what);

static pthread_barrier_t barrier;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long count;
static struct sockaddr_in address = {.sin_family = AF_INET};

static void *body(void *argument) {
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < ROUNDS; i++) {
    char *block = malloc(100 + i);
    memset(block, i, 100 + i);
    OK(pthread_rwlock_wrlock(&rwlock));
    count++;
    OK(pthread_rwlock_unlock(&rwlock));
    usleep(100);
    for (int k = 0; k < 100 + i; k++) CHECK_EQ(block[k], i);
    free(block);
  }
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  OK(connect(fd, (struct sockaddr *)&address, sizeof address));
  char byte = (char)(long)argument, back = 0;
  CHECK_EQ(write(fd, &byte, 1), 1);
  CHECK_EQ(read(fd, &back, 1), 1);
  CHECK_EQ(back, byte);
  OK(close(fd));
  return 0;
}

static void *serves(void *argument) {
  for (int i = 0; i < THREADS; i++) {
    char byte;
    int fd = accept((int)(long)argument, 0, 0);
    CHECK(fd >= 0);
    CHECK_EQ(read(fd, &byte, 1), 1);
    CHECK_EQ(write(fd, &byte, 1), 1);
    OK(close(fd));
  }
  return 0;
}

int main(void) {
  pthread_t threads[THREADS];
  socklen_t size = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  OK(bind(fd, (struct sockaddr *)&address, size));
  OK(listen(fd, THREADS));
  OK(getsockname(fd, (struct sockaddr *)&address, &size));
  OK(pthread_barrier_init(&barrier, 0, THREADS));
  pthread_t server = start(serves, (void *)(long)fd);
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  join(server);
  CHECK_EQ(count, THREADS * ROUNDS);
  if (interposed) {
    CHECK(interposed("allocations") >= THREADS * ROUNDS);
    printf("connections %ld threads %ld\n", interposed("connections"), interposed("threads"));
    struct timespec now;
    OK(clock_gettime(CLOCK_REALTIME, &now));
    CHECK(now.tv_sec < 1000001000);
  }
  puts("ok");
}
