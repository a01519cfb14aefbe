/* Prints the processor time, in microseconds, that the process used in 2 seconds while 1000 threads wait in every way:
   condition variables, long sleeps, pipes, sockets, semaphores, poll, epoll, join. */
#include "../c/check.h"
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { THREADS = 1000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static int started, pipes[2], sockets[2];

static void *body(void *argument) {
  char byte;
  struct pollfd p = {pipes[0], POLLIN, 0};
  struct epoll_event event = {.events = EPOLLIN};
  int e;
  __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
  switch ((long)argument % 8) {
    case 0: sleep_ms(100000); break;
    case 1: CHECK_EQ(read(pipes[0], &byte, 1), 1); break;
    case 2: CHECK_EQ(recv(sockets[0], &byte, 1, 0), 1); break;
    case 3: OK(sem_wait(&sem)); break;
    case 4: poll(&p, 1, -1); break;
    case 5:
      e = epoll_create1(0);
      OK(epoll_ctl(e, EPOLL_CTL_ADD, pipes[0], &event));
      epoll_wait(e, &event, 1, -1);
      break;
    default:
      OK(pthread_mutex_lock(&mutex));
      for (;;) OK(pthread_cond_wait(&cond, &mutex));
  }
  return argument;
}

static long used(void) {
  struct rusage usage;
  OK(getrusage(RUSAGE_SELF, &usage));
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000L + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

int main(void) {
  pthread_attr_t attr;
  pthread_t thread;
  OK(sem_init(&sem, 0, 0));
  OK(pipe(pipes));
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
  OK(pthread_attr_init(&attr));
  OK(pthread_attr_setstacksize(&attr, 64 * 1024));
  for (long i = 0; i < THREADS; i++) OK(pthread_create(&thread, &attr, body, (void *)i));
  while (__atomic_load_n(&started, __ATOMIC_SEQ_CST) < THREADS) sleep_ms(1);
  sleep_ms(500);
  long before = used();
  sleep_ms(2000);
  printf("%ld\n", used() - before);
}
