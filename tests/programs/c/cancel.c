/* Asserts cancellation: deferred, in every kind of waiting call and before one, with cleanup handlers in order, the mutex
   of a condition variable held again, destructors run, nothing lost from a pipe; disabled and asynchronous states;
   pthread_exit runs cleanup handlers too. */
#include "check.h"
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum point {
  READ, WRITE, NANOSLEEP, CLOCK_NANOSLEEP, USLEEP, COND_WAIT, COND_TIMEDWAIT, SEM_WAIT, SEM_TIMEDWAIT, JOIN, ACCEPT, RECV,
  RECVMSG, POLL, SELECT, EPOLL, PAUSE, SIGSUSPEND, SIGWAIT, WAITPID, OPEN_FIFO, TESTCANCEL, POINTS
};
static const char *const names[] = {"read", "write", "nanosleep", "clock_nanosleep", "usleep", "cond_wait", "cond_timedwait",
                                    "sem_wait", "sem_timedwait", "join", "accept", "recv", "recvmsg", "poll", "select",
                                    "epoll_wait", "pause", "sigsuspend", "sigwait", "waitpid", "open", "testcancel"};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static pthread_key_t key;
static int empty[2], full[2], stream[2], listener, destroyed;
static pthread_t for_ever;
static pid_t child;

struct task {
  enum point point;
  int early; /* cancelled before the call */
  int entered, order, outer, inner;
};

static void outer(void *argument) {
  struct task *t = argument;
  t->outer = ++t->order;
}
static void inner(void *argument) {
  struct task *t = argument;
  t->inner = ++t->order;
  if (t->point == COND_WAIT || t->point == COND_TIMEDWAIT) OK(pthread_mutex_unlock(&mutex)); /* ours again */
}
static void destroy(void *value) { __atomic_add_fetch(&destroyed, (int)(long)value, __ATOMIC_SEQ_CST); }

static void make(struct task *t) {
  static char byte[2];
  struct timespec long_time = {100, 0}, until = in_ms(CLOCK_REALTIME, 100000);
  struct pollfd p = {empty[0], POLLIN, 0};
  struct iovec part = {byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  struct epoll_event event;
  sigset_t none, hup;
  fd_set set;
  int sig, status;
  sigemptyset(&none);
  sigemptyset(&hup);
  sigaddset(&hup, SIGHUP);
  FD_ZERO(&set);
  FD_SET(empty[0], &set);
  switch (t->point) {
    case READ: status = read(empty[0], byte, 1); break;
    case WRITE: status = write(full[1], byte, 1); break;
    case NANOSLEEP: nanosleep(&long_time, 0); break;
    case CLOCK_NANOSLEEP: clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, 0); break;
    case USLEEP: usleep(100000000); break;
    case COND_WAIT: for (;;) pthread_cond_wait(&cond, &mutex);
    case COND_TIMEDWAIT: for (;;) pthread_cond_timedwait(&cond, &mutex, &until);
    case SEM_WAIT: sem_wait(&sem); break;
    case SEM_TIMEDWAIT: sem_timedwait(&sem, &until); break;
    case JOIN: pthread_join(for_ever, 0); break;
    case ACCEPT: accept(listener, 0, 0); break;
    case RECV: recv(stream[0], byte, 1, 0); break;
    case RECVMSG: recvmsg(stream[0], &message, 0); break;
    case POLL: poll(&p, 1, 100000); break;
    case SELECT: select(empty[0] + 1, &set, 0, 0, 0); break;
    case EPOLL: epoll_wait(epoll_create1(EPOLL_CLOEXEC), &event, 1, -1); break;
    case PAUSE: pause(); break;
    case SIGSUSPEND: sigsuspend(&none); break;
    case SIGWAIT: sigwait(&hup, &sig); break;
    case WAITPID: waitpid(child, &status, 0); break;
    case OPEN_FIFO: status = open("cancel-fifo", O_RDONLY); break;
    case TESTCANCEL: for (;;) pthread_testcancel();
    default: break;
  }
}

static void *victim(void *argument) {
  struct task *t = argument;
  OK(pthread_setspecific(key, (void *)1L));
  if (t->early) OK(pthread_cancel(pthread_self())); /* pending until the next cancellation point */
  if (t->point == COND_WAIT || t->point == COND_TIMEDWAIT) OK(pthread_mutex_lock(&mutex));
  pthread_cleanup_push(outer, t);
  pthread_cleanup_push(inner, t);
  __atomic_store_n(&t->entered, 1, __ATOMIC_SEQ_CST);
  make(t);
  check_failed(__FILE__, __LINE__, "%s came back", names[t->point]);
  pthread_cleanup_pop(0);
  pthread_cleanup_pop(0);
  return 0;
}

static void *sleeper(void *argument) {
  for (;;) sleep_ms(100000);
  return argument;
}

static void all_points(int early) {
  static struct task tasks[POINTS];
  pthread_t threads[POINTS];
  destroyed = 0;
  for (int p = 0; p < POINTS; p++) {
    tasks[p] = (struct task){.point = p, .early = early};
    threads[p] = start(victim, &tasks[p]);
  }
  for (int p = 0; p < POINTS; p++)
    while (!__atomic_load_n(&tasks[p].entered, __ATOMIC_SEQ_CST)) usleep(100);
  if (!early) {
    sleep_ms(30);
    for (int p = 0; p < POINTS; p++) OK(pthread_cancel(threads[p]));
  }
  for (int p = 0; p < POINTS; p++) {
    if (join(threads[p]) != PTHREAD_CANCELED) check_failed(__FILE__, __LINE__, "%s: not cancelled", names[p]);
    if (tasks[p].inner != 1 || tasks[p].outer != 2) check_failed(__FILE__, __LINE__, "%s: cleanup", names[p]);
  }
  CHECK_EQ(destroyed, POINTS);
  OK(pthread_mutex_trylock(&mutex)); /* given back by the cleanup handlers */
  OK(pthread_mutex_unlock(&mutex));
  char byte;
  CHECK_EQ(write(empty[1], "k", 1), 1); /* a cancelled read takes nothing */
  CHECK_EQ(read(empty[0], &byte, 1), 1);
  CHECK_EQ(waitpid(child, 0, WNOHANG), 0);
}

static int stage;

static void *disabled(void *argument) {
  int old;
  OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
  CHECK_EQ(old, PTHREAD_CANCEL_ENABLE);
  __atomic_store_n(&stage, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&stage, __ATOMIC_SEQ_CST) < 2) sleep_ms(1); /* cancelled meanwhile */
  sleep_ms(5);
  pthread_testcancel();
  CHECK_EQ(poll(0, 0, 1), 0);
  __atomic_store_n(&stage, 3, __ATOMIC_SEQ_CST);
  OK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old));
  pthread_testcancel();
  check_failed(__FILE__, __LINE__, "still here");
  return argument;
}

static void *spinner(void *argument) {
  int old;
  OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
  CHECK_EQ(old, PTHREAD_CANCEL_DEFERRED);
  pthread_cleanup_push(outer, argument);
  __atomic_store_n(&((struct task *)argument)->entered, 1, __ATOMIC_SEQ_CST);
  for (;;) __asm__ volatile("" ::: "memory");
  pthread_cleanup_pop(0);
  return 0;
}

static void *exits(void *argument) {
  struct task *t = argument;
  OK(pthread_setspecific(key, (void *)1L));
  pthread_cleanup_push(outer, t);
  pthread_cleanup_push(inner, t);
  if (t->point == READ) pthread_exit((void *)55L);
  pthread_cleanup_pop(1);
  pthread_cleanup_pop(1);
  return (void *)66L;
}

/* A lock is no cancellation point: the thread gets it, and is cancelled only at the next one. */
static void *locker(void *argument) {
  int *got = argument;
  __atomic_store_n(&stage, 1, __ATOMIC_SEQ_CST);
  OK(pthread_mutex_lock(&mutex));
  *got = 1;
  OK(pthread_mutex_unlock(&mutex));
  pthread_testcancel();
  return 0;
}

int main(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  static char big[65536];
  pthread_t thread, spinners[4];
  OK(pthread_key_create(&key, destroy));
  OK(sem_init(&sem, 0, 0));
  OK(pipe(empty));
  OK(pipe(full));
  OK(fcntl(full[1], F_SETFL, O_NONBLOCK));
  while (write(full[1], big, sizeof big) > 0) {
  }
  OK(fcntl(full[1], F_SETFL, 0));
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, stream));
  listener = socket(AF_UNIX, SOCK_STREAM, 0);
  OK(bind(listener, (struct sockaddr *)&address, sizeof address.sun_family));
  OK(listen(listener, 1));
  OK(mknod("cancel-fifo", S_IFIFO | 0600, 0));
  pid_t parent = getpid();
  if ((child = fork()) == 0) {
    while (getppid() == parent) sleep_ms(20);
    _exit(0);
  }
  for_ever = start(sleeper, 0);
  all_points(0);
  puts("ok cancelled while waiting");
  all_points(1);
  puts("ok cancelled before waiting");
  OK(pthread_cancel(for_ever));
  CHECK(join(for_ever) == PTHREAD_CANCELED);
  OK(unlink("cancel-fifo"));
  OK(kill(child, SIGKILL));
  CHECK_EQ(waitpid(child, 0, 0), child);

  thread = start(disabled, 0);
  while (__atomic_load_n(&stage, __ATOMIC_SEQ_CST) < 1) sleep_ms(1);
  OK(pthread_cancel(thread));
  __atomic_store_n(&stage, 2, __ATOMIC_SEQ_CST);
  CHECK(join(thread) == PTHREAD_CANCELED);
  CHECK_EQ(stage, 3);
  puts("ok disabled");

  static struct task tasks[4];
  for (int i = 0; i < 4; i++) spinners[i] = start(spinner, &tasks[i]);
  for (int i = 0; i < 4; i++)
    while (!__atomic_load_n(&tasks[i].entered, __ATOMIC_SEQ_CST)) sleep_ms(1);
  for (int i = 0; i < 4; i++) {
    OK(pthread_cancel(spinners[i]));
    CHECK(join(spinners[i]) == PTHREAD_CANCELED);
    CHECK_EQ(tasks[i].outer, 1);
  }
  puts("ok asynchronous");

  for (int p = 0; p < 2; p++) {
    struct task t = {.point = p};
    destroyed = 0;
    CHECK_EQ((long)join(start(exits, &t)), p == READ ? 55 : 66);
    CHECK(t.inner == 1 && t.outer == 2 && destroyed == 1);
  }
  puts("ok pthread_exit");

  int got = 0;
  stage = 0;
  OK(pthread_mutex_lock(&mutex));
  thread = start(locker, &got);
  while (__atomic_load_n(&stage, __ATOMIC_SEQ_CST) < 1) sleep_ms(1);
  sleep_ms(10);
  OK(pthread_cancel(thread));
  sleep_ms(10);
  CHECK_EQ(pthread_tryjoin_np(thread, 0), EBUSY);
  OK(pthread_mutex_unlock(&mutex));
  CHECK(join(thread) == PTHREAD_CANCELED);
  CHECK_EQ(got, 1);
  puts("ok locks do not notice");
}
