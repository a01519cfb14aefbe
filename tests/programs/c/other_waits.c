/* Asserts that waits which are neither on a futex nor on a pollable descriptor hold up nobody else: file locks, System V
   and POSIX queues and semaphores, a FIFO being opened, vfork, raw signal waits. Many threads are in them, more than there
   are processors, while others compute, talk, and at last let them go. */
#include "check.h"
#include <mqueue.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/stat.h>

enum { KINDS = 7, EACH = 3 };

static int entered, done, queue_id, sem_id, holder, holder2, stop;
static mqd_t mq;
static char mq_name[40];

static void *waits(void *argument) {
  int kind = (int)(long)argument, fd;
  struct flock lock = {.l_type = F_WRLCK};
  struct {
    long type;
    char text[8];
  } message;
  char text[64];
  sigset_t set;
  int sig;
  __atomic_add_fetch(&entered, 1, __ATOMIC_SEQ_CST);
  switch (kind) {
    case 0:
      fd = open("lock-file", O_RDWR);
      OK(flock(fd, LOCK_SH));
      OK(close(fd));
      break;
    case 1:
      fd = open("lock-file-2", O_RDWR);
      OK(fcntl(fd, F_OFD_SETLKW, &lock));
      OK(close(fd));
      break;
    case 2: CHECK_EQ(msgrcv(queue_id, &message, sizeof message.text, 0, 0), 5); break;
    case 3: OK(semop(sem_id, &(struct sembuf){0, -1, 0}, 1)); break;
    case 4: CHECK_EQ(mq_receive(mq, text, sizeof text, 0), 5); break;
    case 5:
      fd = open("fifo", O_RDONLY);
      CHECK(fd >= 0);
      OK(close(fd));
      break;
    case 6:
      sigemptyset(&set);
      sigaddset(&set, SIGUSR1);
      OK(sigwait(&set, &sig));
      break;
  }
  __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
  return 0;
}

static long steps;

static void *works(void *argument) {
  int fds[2];
  char byte = 1;
  OK(pipe(fds));
  while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
    CHECK_EQ(write(fds[1], &byte, 1), 1);
    CHECK_EQ(read(fds[0], &byte, 1), 1);
    usleep(100);
    __atomic_add_fetch(&steps, 1, __ATOMIC_SEQ_CST);
  }
  OK(close(fds[0]));
  OK(close(fds[1]));
  return argument;
}

int main(void) {
  pthread_t threads[KINDS * EACH], workers[8];
  struct flock lock = {.l_type = F_WRLCK};
  struct {
    long type;
    char text[8];
  } message = {1, "hello"};
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));
  holder = open("lock-file", O_RDWR | O_CREAT, 0600);
  holder2 = open("lock-file-2", O_RDWR | O_CREAT, 0600);
  CHECK(holder >= 0 && holder2 >= 0);
  OK(flock(holder, LOCK_EX));
  OK(fcntl(holder2, F_OFD_SETLK, &lock));
  CHECK((queue_id = msgget(IPC_PRIVATE, 0600)) >= 0);
  CHECK((sem_id = semget(IPC_PRIVATE, 1, 0600)) >= 0);
  snprintf(mq_name, sizeof mq_name, "/heddle-test-%d", getpid());
  mq = mq_open(mq_name, O_RDWR | O_CREAT | O_EXCL, 0600, &(struct mq_attr){.mq_maxmsg = 8, .mq_msgsize = 64});
  CHECK(mq != (mqd_t)-1);
  OK(mq_unlink(mq_name));
  OK(mkfifo("fifo", 0600));
  for (long i = 0; i < KINDS * EACH; i++) threads[i] = start(waits, (void *)(i % KINDS));
  for (int i = 0; i < 8; i++) workers[i] = start(works, 0);
  for (int i = 0; i < 20000 && __atomic_load_n(&entered, __ATOMIC_SEQ_CST) < KINDS * EACH; i++) usleep(500);
  CHECK_EQ(entered, KINDS * EACH);
  for (int i = 0; i < 20000 && __atomic_load_n(&steps, __ATOMIC_SEQ_CST) < 500; i++) usleep(500);
  CHECK(__atomic_load_n(&steps, __ATOMIC_SEQ_CST) >= 500); /* the others go on */
  CHECK_EQ(__atomic_load_n(&done, __ATOMIC_SEQ_CST), 0);
  puts("ok others go on");
  OK(flock(holder, LOCK_UN));
  lock.l_type = F_UNLCK;
  OK(fcntl(holder2, F_OFD_SETLK, &lock));
  int fifo = open("fifo", O_RDWR);
  CHECK(fifo >= 0);
  for (int i = 0; i < EACH; i++) {
    OK(msgsnd(queue_id, &message, 5, 0));
    OK(semop(sem_id, &(struct sembuf){0, 1, 0}, 1));
    OK(mq_send(mq, "hello", 5, 0));
  }
  for (int i = 0; i < KINDS * EACH; i++) {
    if (i % KINDS == 6) OK(pthread_kill(threads[i], SIGUSR1));
    join(threads[i]);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < 8; i++) join(workers[i]);
  CHECK_EQ(done, KINDS * EACH);
  OK(msgctl(queue_id, IPC_RMID, 0));
  OK(semctl(sem_id, 0, IPC_RMID));
  OK(mq_close(mq));
  OK(unlink("fifo"));
  puts("ok all let go");
}
