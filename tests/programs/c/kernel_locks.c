/* Asserts that locks and queues of the kernel that need not be waited for cost about the same whatever other threads do,
   and that those which must be waited for are. */
#include "check.h"
#include <mqueue.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

enum { ROUNDS = 20000 };

static int stop, files[2], set, queue, held, turn;
static mqd_t messages;
static volatile uint64_t work;

static void *computes(void *argument) {
  while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
    for (int i = 0; i < 1000; i++) work += (uint64_t)i;
    if (argument) sched_yield();
  }
  return 0;
}

static void change(int by) {
  struct sembuf operation = {0, (short)by, SEM_UNDO};
  OK(semop(set, &operation, 1));
}

static int lock(int how, int file) {
  struct flock whole = {.l_type = (short)how, .l_whence = SEEK_SET};
  return fcntl(file, F_OFD_SETLKW, &whole);
}

static struct message {
  long type;
  char text[8];
} message = {1, "hello"};

static void rounds(void) {
  char text[64];
  for (int i = 0; i < ROUNDS; i++) {
    OK(flock(files[0], LOCK_EX));
    OK(flock(files[0], LOCK_UN));
    OK(lock(F_WRLCK, files[0]));
    OK(lock(F_UNLCK, files[0]));
    change(-1);
    change(1);
    OK(msgsnd(queue, &message, 8, 0));
    CHECK_EQ(msgrcv(queue, &message, 8, 0, 0), 8);
    OK(mq_send(messages, "hello", 5, 0));
    CHECK_EQ(mq_receive(messages, text, sizeof text, 0), 5);
  }
}

/* The other thread has given up the last and nothing after it; the next is waited for. */
static void next(int after) {
  CHECK_EQ(__atomic_load_n(&held, __ATOMIC_SEQ_CST), after);
  __atomic_store_n(&turn, after + 1, __ATOMIC_SEQ_CST);
}

/* Waits for each of them, which the other thread gives up in turn. */
static void *waits(void *argument) {
  char text[64];
  next(0);
  OK(flock(files[1], LOCK_EX));
  next(1);
  OK(lock(F_WRLCK, files[1]));
  next(2);
  change(-1);
  next(3);
  CHECK_EQ(msgrcv(queue, &message, 8, 0, 0), 8);
  next(4);
  CHECK_EQ(mq_receive(messages, text, sizeof text, 0), 5);
  next(5);
  return argument;
}

/* Just before something is given up: not before the other thread has come to it. */
static void step(int to) {
  while (__atomic_load_n(&turn, __ATOMIC_SEQ_CST) < to) sched_yield();
  sleep_ms(20);
  __atomic_store_n(&held, to, __ATOMIC_SEQ_CST);
}

int main(void) {
  char name[] = "/tmp/kernel-locks-XXXXXX", path[40];
  files[0] = mkstemp(name);
  files[1] = open(name, O_RDWR);
  CHECK(files[0] >= 0 && files[1] >= 0);
  OK(unlink(name));
  set = semget(IPC_PRIVATE, 1, 0600);
  queue = msgget(IPC_PRIVATE, 0600);
  CHECK(set >= 0 && queue >= 0);
  snprintf(path, sizeof path, "/kernel-locks-%d", getpid());
  struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 64};
  messages = mq_open(path, O_CREAT | O_RDWR, 0600, &attributes);
  CHECK(messages >= 0);
  OK(mq_unlink(path));
  change(1);

  pthread_t threads[3];
  for (intptr_t i = 0; i < 3; i++) threads[i] = start(computes, (void *)i);
  rounds();
  stop = 1;
  for (int i = 0; i < 3; i++) join(threads[i]);
  puts("ok not waited for");

  OK(flock(files[0], LOCK_EX));
  OK(lock(F_WRLCK, files[0]));
  change(-1);
  pthread_t waiter = start(waits, 0);
  step(1);
  OK(flock(files[0], LOCK_UN));
  step(2);
  OK(lock(F_UNLCK, files[0]));
  step(3);
  change(1);
  step(4);
  OK(msgsnd(queue, &message, 8, 0));
  step(5);
  OK(mq_send(messages, "hello", 5, 0));
  join(waiter);
  OK(semctl(set, 0, IPC_RMID));
  OK(msgctl(queue, IPC_RMID, 0));
  puts("ok waited for");
}
