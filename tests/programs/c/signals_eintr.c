/* Asserts which waits a signal ends: with a plain handler EINTR from nanosleep (with the time left), read, write, recv,
   accept, poll, select, epoll_wait, sem_wait, waitpid and others; with SA_RESTART only from those that never restart;
   never from locks, condition variables and joins. Signals are sent to a thread, or come from alarm. */
#include "check.h"
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>

enum call {
  NANOSLEEP, CLOCK_NANOSLEEP, USLEEP, POLL, PPOLL, SELECT, PSELECT, EPOLL, SIGSUSPEND, PAUSE, SIGTIMEDWAIT,
  SEM_TIMEDWAIT, NEVER_RESTARTED = SEM_TIMEDWAIT, SEM_WAIT, READ, READV, WRITE, RECV, RECVMSG, ACCEPT, SEND, WAITPID, FLOCK, CALLS
};
static const char *const names[] = {"nanosleep", "clock_nanosleep", "usleep", "poll", "ppoll", "select", "pselect",
                                    "epoll_wait", "sigsuspend", "pause", "sigtimedwait", "sem_timedwait", "sem_wait",
                                    "read", "readv", "write", "recv", "recvmsg", "accept", "send", "waitpid", "fcntl lock"};

static __thread volatile int hits;
static void on_signal(int sig) {
  (void)sig;
  hits++;
}

struct task {
  enum call call;
  int restart;  /* SA_RESTART is set: the call goes on, and is completed later */
  int entered, interrupted, fds[2], listener, done;
  pid_t child;
  sem_t sem;
  int64_t from;
};

/* Makes the call once; -1 and EINTR if a signal ended it. */
static long make(struct task *t) {
  static char big[1 << 20];
  struct timespec five = {5, 0}, rest = {0, 0}, until = in_ms(CLOCK_REALTIME, 5000);
  struct timeval tv = {5, 0};
  struct pollfd p = {t->fds[0], POLLIN, 0};
  struct iovec part = {big, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  struct epoll_event event = {.events = EPOLLIN};
  struct flock lock = {.l_type = F_WRLCK};
  sigset_t none, hup;
  fd_set set;
  sigemptyset(&none);
  sigemptyset(&hup);
  sigaddset(&hup, SIGHUP);
  FD_ZERO(&set);
  FD_SET(t->fds[0], &set);
  long result;
  int e, status;
  t->from = now_ms();
  __atomic_store_n(&t->entered, 1, __ATOMIC_SEQ_CST);
  switch (t->call) {
    case NANOSLEEP:
      result = nanosleep(&five, &rest);
      if (result == -1) CHECK(rest.tv_sec * 1000 + rest.tv_nsec / 1000000 + (now_ms() - t->from) >= 4990 && rest.tv_sec < 5);
      return result;
    case CLOCK_NANOSLEEP:
      result = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, 0);
      errno = (int)result;
      return result ? -1 : 0;
    case USLEEP: return usleep(900000);
    case POLL: return poll(&p, 1, 5000);
    case PPOLL: return ppoll(&p, 1, &five, 0);
    case SELECT: return select(t->fds[0] + 1, &set, 0, 0, &tv);
    case PSELECT: return pselect(t->fds[0] + 1, &set, 0, 0, &five, &none);
    case EPOLL:
      e = epoll_create1(EPOLL_CLOEXEC);
      OK(epoll_ctl(e, EPOLL_CTL_ADD, t->fds[0], &event));
      result = epoll_wait(e, &event, 1, 5000);
      status = errno;
      close(e);
      errno = status;
      return result;
    case SIGSUSPEND: return sigsuspend(&none);
    case PAUSE: return pause();
    case SIGTIMEDWAIT: return sigtimedwait(&hup, 0, &five);
    case SEM_TIMEDWAIT: return sem_timedwait(&t->sem, &until);
    case SEM_WAIT: return sem_wait(&t->sem);
    case READ: return read(t->fds[0], big, 1);
    case READV: return readv(t->fds[0], &part, 1);
    case WRITE: return write(t->fds[0], big, 1); /* filled before */
    case RECV: return recv(t->fds[0], big, 1, 0);
    case RECVMSG: return recvmsg(t->fds[0], &message, 0);
    case ACCEPT: return accept(t->listener, 0, 0);
    case SEND: return send(t->fds[0], big, 1, 0);
    case WAITPID: return waitpid(t->child, &status, 0);
    case FLOCK: return fcntl(t->listener, F_OFD_SETLKW, &lock);
    default: return 0;
  }
}

static void *waiter(void *argument) {
  struct task *t = argument;
  long result;
  hits = 0;
  while ((result = make(t)) == -1 && errno == EINTR && hits == 0) { /* a preempting runtime must not show */
    check_failed(__FILE__, __LINE__, "%s: EINTR without a handler", names[t->call]);
  }
  if (result == -1 && errno == EINTR) t->interrupted = 1;
  else if (result < 0) check_failed(__FILE__, __LINE__, "%s failed", names[t->call]);
  CHECK(hits >= 1);
  __atomic_store_n(&t->done, 1, __ATOMIC_SEQ_CST);
  return 0;
}

static void prepare(struct task *t, enum call call, int restart) {
  static char big[1 << 16];
  memset(t, 0, sizeof *t);
  t->call = call;
  t->restart = restart;
  OK(sem_init(&t->sem, 0, 0));
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, t->fds));
  if (call == WRITE || call == SEND) {
    OK(fcntl(t->fds[0], F_SETFL, O_NONBLOCK));
    for (size_t n = sizeof big; n; n /= 2)
      while (write(t->fds[0], big, n) > 0) {
      }
    OK(fcntl(t->fds[0], F_SETFL, 0));
  }
  if (call == ACCEPT) {
    struct sockaddr_un a = {.sun_family = AF_UNIX}; /* an abstract name chosen by the kernel */
    t->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    OK(bind(t->listener, (struct sockaddr *)&a, sizeof a.sun_family));
    OK(listen(t->listener, 1));
  }
  if (call == FLOCK) {
    char name[] = "lock-XXXXXX";
    struct flock lock = {.l_type = F_WRLCK};
    t->fds[1] = mkstemp(name); /* two open files of one name */
    t->listener = open(name, O_RDWR);
    CHECK(t->fds[1] >= 0 && t->listener >= 0);
    OK(unlink(name));
    OK(fcntl(t->fds[1], F_OFD_SETLK, &lock));
  }
  pid_t parent = getpid();
  if (call == WAITPID && (t->child = fork()) == 0)
    while (getppid() == parent) sleep_ms(50);
}

/* Makes what the thread waits for happen. */
static void complete(struct task *t) {
  static char sink[1 << 20];
  struct flock lock = {.l_type = F_UNLCK};
  struct sockaddr_un a;
  socklen_t size = sizeof a;
  int fd;
  switch (t->call) {
    case SEM_WAIT: OK(sem_post(&t->sem)); break;
    case READ: case READV: case RECV: case RECVMSG: CHECK_EQ(write(t->fds[1], "x", 1), 1); break;
    case WRITE: case SEND:
      while (recv(t->fds[1], sink, sizeof sink, MSG_DONTWAIT) > 0) {
      }
      break;
    case ACCEPT:
      OK(getsockname(t->listener, (struct sockaddr *)&a, &size));
      fd = socket(AF_UNIX, SOCK_STREAM, 0);
      OK(connect(fd, (struct sockaddr *)&a, size));
      break;
    case WAITPID: OK(kill(t->child, SIGKILL)); break;
    case FLOCK: OK(fcntl(t->fds[1], F_OFD_SETLK, &lock)); break;
    default: break;
  }
}

static void all_calls(int restart) {
  static struct task tasks[CALLS];
  pthread_t threads[CALLS];
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = restart ? SA_RESTART : 0};
  OK(sigaction(SIGUSR1, &action, 0));
  for (int c = 0; c < CALLS; c++) prepare(&tasks[c], c, restart);
  for (int c = 0; c < CALLS; c++) threads[c] = start(waiter, &tasks[c]);
  for (int c = 0; c < CALLS; c++)
    while (!__atomic_load_n(&tasks[c].entered, __ATOMIC_SEQ_CST)) usleep(100);
  sleep_ms(30);
  for (int c = 0; c < CALLS; c++) {
    /* Again and again: the first may have come between "entered" and the call itself. */
    int ends = !restart || c <= NEVER_RESTARTED, tries = 0;
    while (!__atomic_load_n(&tasks[c].done, __ATOMIC_SEQ_CST) && (ends || tries < 3)) {
      OK(pthread_kill(threads[c], SIGUSR1));
      sleep_ms(5);
      if (++tries > 1000) check_failed(__FILE__, __LINE__, "%s is not interrupted", names[c]);
    }
    if (!ends) {
      if (__atomic_load_n(&tasks[c].done, __ATOMIC_SEQ_CST))
        check_failed(__FILE__, __LINE__, "%s ended in spite of SA_RESTART", names[c]);
      complete(&tasks[c]);
    }
    join(threads[c]);
    if (tasks[c].interrupted != ends)
      check_failed(__FILE__, __LINE__, "%s: interrupted %d, expected %d", names[c], tasks[c].interrupted, ends);
    if (ends && c == WAITPID) OK(kill(tasks[c].child, SIGKILL));
    if (ends && c == WAITPID) CHECK_EQ(waitpid(tasks[c].child, 0, 0), tasks[c].child);
    OK(close(tasks[c].fds[0]));
    OK(close(tasks[c].fds[1]));
    if (tasks[c].listener) OK(close(tasks[c].listener));
  }
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static int go;

static void *locks(void *argument) {
  (void)argument;
  OK(pthread_mutex_lock(&mutex));
  OK(pthread_mutex_unlock(&mutex));
  return (void *)(long)(hits > 0);
}
static void *waits(void *argument) {
  (void)argument;
  pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
  struct timespec until = in_ms(CLOCK_REALTIME, 20000);
  OK(pthread_mutex_lock(&own));
  while (!__atomic_load_n(&go, __ATOMIC_SEQ_CST)) OK(pthread_cond_timedwait(&cond, &own, &until));
  OK(pthread_mutex_unlock(&own));
  return (void *)(long)(hits > 0);
}
static void *joins(void *argument) {
  join(*(pthread_t *)argument);
  return (void *)(long)(hits > 0);
}
static void *passes(void *argument) {
  (void)argument;
  pthread_barrier_wait(&barrier);
  return (void *)(long)(hits > 0);
}

static void never(void) {
  struct sigaction action = {.sa_handler = on_signal};
  OK(sigaction(SIGUSR1, &action, 0));
  OK(pthread_mutex_lock(&mutex));
  OK(pthread_barrier_init(&barrier, 0, 2));
  pthread_t joined = start(locks, 0);
  pthread_t threads[] = {start(locks, 0), start(waits, 0), start(joins, &joined), start(passes, 0)};
  sleep_ms(30);
  for (int i = 0; i < 3; i++) {
    for (unsigned t = 0; t < COUNT(threads); t++) OK(pthread_kill(threads[t], SIGUSR1));
    sleep_ms(5);
  }
  for (unsigned t = 0; t < COUNT(threads); t++) CHECK_EQ(pthread_tryjoin_np(threads[t], 0), EBUSY);
  OK(pthread_mutex_unlock(&mutex));
  pthread_barrier_wait(&barrier);
  __atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
  while (pthread_tryjoin_np(threads[1], 0) == EBUSY) {
    OK(pthread_cond_broadcast(&cond));
    sleep_ms(1);
  }
  CHECK_EQ((long)join(threads[0]), 1); /* their handlers ran */
  CHECK_EQ((long)join(threads[2]), 1);
  CHECK_EQ((long)join(threads[3]), 1);
}

/* The classic: alarm ends a read of the main thread. */
static void alarms(void) {
  struct sigaction action = {.sa_handler = on_signal};
  struct itimerval soon = {.it_value.tv_usec = 30000, .it_interval.tv_usec = 30000}, off = {0};
  int fds[2];
  char byte;
  OK(pipe(fds));
  OK(sigaction(SIGALRM, &action, 0));
  for (int i = 0; i < 3; i++) {
    hits = 0;
    OK(setitimer(ITIMER_REAL, &soon, 0));
    if (i == 0) FAILS(read(fds[0], &byte, 1), EINTR);
    if (i == 1) FAILS(poll(0, 0, -1), EINTR);
    if (i == 2) FAILS(nanosleep(&(struct timespec){50, 0}, 0), EINTR);
    OK(setitimer(ITIMER_REAL, &off, 0));
    CHECK(hits >= 1);
  }
  CHECK_EQ(alarm(100), 0);
  CHECK_EQ(alarm(0), 100);
}

int main(void) {
  all_calls(0);
  puts("ok interrupted");
  all_calls(1);
  puts("ok restarted");
  never();
  puts("ok never interrupted");
  alarms();
  puts("ok alarm");
}
