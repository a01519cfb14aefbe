/* Asserts that a signal that another process sends just before it ends a wait (of a pipe, a shared futex, a message queue,
   or by its own end) is handled once, whoever takes it from the kernel: the worker that the kernel chose, or the call that
   returns. */
#include "check.h"
#include <linux/futex.h>
#include <mqueue.h>
#include <sys/mman.h>

enum { ROUNDS = 300, KINDS = 3, CHILDREN = 60 };

static volatile int handled, ended;
static volatile int *word;
static mqd_t queue;
static int ask[2], answer[2];

static void on_signal(int sig) {
  if (sig == SIGUSR1) handled++;
  if (sig == SIGCHLD) ended++;
}

/* Mostly it is there already; with threads that the kernel does not know it may come a little later. */
static void wait_for(volatile int *count, int wanted) {
  for (int i = 0; i < 20000 && *count < wanted; i++) usleep(500);
  CHECK_EQ(*count, wanted);
}

static void other_process(pid_t parent) {
  char kind;
  while (read(ask[0], &kind, 1) == 1) {
    kill(parent, SIGUSR1);
    if (kind == 0) OK(write(answer[1], &kind, 1) == 1 ? 0 : errno);
    if (kind == 1) {
      __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
      syscall(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0);
    }
    if (kind == 2) OK(mq_send(queue, &kind, 1, 0));
  }
  _exit(0);
}

static void *receives(void *unused) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGCHLD);
  OK(pthread_sigmask(SIG_UNBLOCK, &set, 0));
  for (int i = 0; i < ROUNDS; i++) {
    char kind = (char)(i % KINDS), got;
    int seen = *word;
    CHECK_EQ(write(ask[1], &kind, 1), 1);
    if (kind == 0) CHECK_EQ(read(answer[0], &got, 1), 1);
    if (kind == 1) 
      do syscall(SYS_futex, word, FUTEX_WAIT, seen, 0, 0, 0);
      while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == seen);
    if (kind == 2) CHECK_EQ(mq_receive(queue, &got, 1, 0), 1);
    wait_for(&handled, i + 1);
  }
  for (int i = 0; i < CHILDREN; i++) {
    int before = handled, status;
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      kill(parent, SIGUSR1);
      _exit(7);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(WEXITSTATUS(status), 7);
    wait_for(&handled, before + 1);
    wait_for(&ended, i + 1);
  }
  return unused;
}

int main(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  OK(sigaction(SIGUSR1, &action, 0));
  OK(sigaction(SIGCHLD, &action, 0));
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGCHLD);
  OK(pthread_sigmask(SIG_BLOCK, &set, 0));

  char name[64];
  snprintf(name, sizeof name, "/signals_before_wakes.%d", getpid());
  struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 1};
  queue = mq_open(name, O_CREAT | O_RDWR | O_EXCL, 0600, &attributes);
  CHECK(queue != (mqd_t)-1);
  OK(mq_unlink(name));
  word = mmap(0, sizeof *word, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK((void *)word != MAP_FAILED);
  OK(pipe(ask));
  OK(pipe(answer));
  pid_t parent = getpid(), other = fork();
  CHECK(other >= 0);
  if (other == 0) {
    close(ask[1]);
    other_process(parent);
  }

  pthread_t receiver;
  OK(pthread_create(&receiver, 0, receives, 0));
  OK(pthread_join(receiver, 0));
  close(ask[1]);
  CHECK_EQ(waitpid(other, 0, 0), other);
  puts("every signal was handled once");
  return 0;
}
