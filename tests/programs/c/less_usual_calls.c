/* Calls that few programs make: from one of several threads they do what they do in a program with one. */
#include "check.h"
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/times.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/random.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

static void *in_thread(void *(*body)(void *), void *argument) {
  pthread_t t;
  void *result;
  CHECK(pthread_create(&t, NULL, body, argument) == 0);
  CHECK(pthread_join(t, &result) == 0);
  return result;
}

/* epoll_pwait2, and an epoll instance inside another. */
static void *write_soon(void *fd) {
  usleep(20000);
  CHECK(write((int)(intptr_t)fd, "x", 1) == 1);
  return NULL;
}

static void *nested_epoll(void *unused) {
  int wires[2], inner = epoll_create1(0), outer = epoll_create1(0);
  CHECK(pipe(wires) == 0 && inner >= 0 && outer >= 0);
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
  CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, wires[0], &event) == 0);
  event.data.u32 = 8;
  CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0);
  struct timespec soon = {.tv_nsec = 2000000};
  struct epoll_event got;
  CHECK_EQ(epoll_pwait2(outer, &got, 1, &soon, NULL), 0);
  pthread_t t;
  CHECK(pthread_create(&t, NULL, write_soon, (void *)(intptr_t)wires[1]) == 0);
  CHECK_EQ(epoll_pwait2(outer, &got, 1, NULL, NULL), 1);
  CHECK_EQ(got.data.u32, 8);
  CHECK_EQ(epoll_wait(inner, &got, 1, 0), 1);
  CHECK_EQ(got.data.u32, 7);
  CHECK(pthread_join(t, NULL) == 0);
  close(wires[0]), close(wires[1]), close(inner), close(outer);
  return unused;
}

/* select on descriptors beyond 1024: the kernel has no such limit. */
static void *big_select(void *unused) {
  int wires[2];
  CHECK(pipe(wires) == 0);
  int high = fcntl(wires[0], F_DUPFD, 1500);
  if (high >= 0) {
    enum { WORDS = 2048 / 64 };
    unsigned long set[WORDS] = {0};
    set[high / 64] |= 1ul << high % 64;
    struct timeval soon = {.tv_usec = 2000};
    CHECK_EQ(syscall(SYS_select, high + 1, set, NULL, NULL, &soon), 0);
    set[high / 64] |= 1ul << high % 64;
    pthread_t t;
    CHECK(pthread_create(&t, NULL, write_soon, (void *)(intptr_t)wires[1]) == 0);
    CHECK_EQ(syscall(SYS_select, high + 1, set, NULL, NULL, NULL), 1);
    CHECK(set[high / 64] >> high % 64 & 1);
    CHECK(pthread_join(t, NULL) == 0);
    close(high);
  }
  close(wires[0]), close(wires[1]);
  return unused;
}

/* A System V segment: a futex in it is shared with a child. */
static void *segment(void *unused) {
  int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
  CHECK(id >= 0);
  atomic_int *word = shmat(id, NULL, 0);
  CHECK(word != (void *)-1);
  CHECK(shmctl(id, IPC_RMID, NULL) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    usleep(20000);
    atomic_store(word, 1);
    long woken = 0;
    for (int i = 0; i < 1000 && woken == 0; i++) {
      woken = syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
      usleep(1000);
    }
    _exit(woken == 1 ? 0 : 1);
  }
  while (atomic_load(word) == 0)
    if (syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0) == 0) break;
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(shmdt(word) == 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return unused;
}

/* MSG_WAITALL: waits for all, gives up after SO_RCVTIMEO, takes what is there at the end of the stream. */
static void *send_in_parts(void *fd) {
  for (int i = 0; i < 4; i++) {
    usleep(5000);
    CHECK(send((int)(intptr_t)fd, "ab", 2, 0) == 2);
  }
  return NULL;
}

static void *wait_all(void *unused) {
  int pair[2];
  char buffer[16];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  pthread_t t;
  CHECK(pthread_create(&t, NULL, send_in_parts, (void *)(intptr_t)pair[1]) == 0);
  CHECK_EQ(recv(pair[0], buffer, 8, MSG_WAITALL), 8);
  CHECK(memcmp(buffer, "abababab", 8) == 0);
  CHECK(pthread_join(t, NULL) == 0);
  struct timeval limit = {.tv_usec = 30000};
  CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
  CHECK(send(pair[1], "abc", 3, 0) == 3);
  CHECK_EQ(recv(pair[0], buffer, 8, MSG_WAITALL), 3);
  CHECK_EQ(recv(pair[0], buffer, 8, MSG_WAITALL), -1);
  CHECK(errno == EAGAIN);
  CHECK(send(pair[1], "abcd", 4, 0) == 4);
  CHECK(shutdown(pair[1], SHUT_WR) == 0);
  struct iovec v = {.iov_base = buffer, .iov_len = 8};
  struct msghdr message = {.msg_iov = &v, .msg_iovlen = 1};
  CHECK_EQ(recvmsg(pair[0], &message, MSG_WAITALL), 4);
  close(pair[0]), close(pair[1]);
  return unused;
}

/* connect to a local socket whose backlog is full waits until somebody accepts. */
static int listener;
static void *accept_all(void *unused) {
  usleep(30000);
  for (int i = 0; i < 4; i++) {
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    close(fd);
  }
  return unused;
}

static void *full_backlog(void *unused) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "heddle-backlog-%d", getpid());
  listener = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
  CHECK(listen(listener, 0) == 0);
  pthread_t t;
  CHECK(pthread_create(&t, NULL, accept_all, NULL) == 0);
  int fds[4];
  for (int i = 0; i < 4; i++) {
    fds[i] = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(fds[i], (struct sockaddr *)&address, sizeof address) == 0);
  }
  CHECK(pthread_join(t, NULL) == 0);
  for (int i = 0; i < 4; i++) close(fds[i]);
  close(listener);
  return unused;
}

/* SS_AUTODISARM: no alternate stack while a handler runs on it, so that the handler may leave or reuse it. */
static atomic_int flags_inside;
static void on_signal(int number) {
  (void)number;
  stack_t now;
  CHECK(sigaltstack(NULL, &now) == 0);
  flags_inside = now.ss_flags;
}

static void *autodisarm(void *unused) {
  static char stack[64 * 1024];
  stack_t mine = {.ss_sp = stack, .ss_size = sizeof stack, .ss_flags = (int)SS_AUTODISARM}, after;
  CHECK(sigaltstack(&mine, NULL) == 0);
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
  CHECK_EQ(flags_inside, SS_DISABLE);
  CHECK(sigaltstack(NULL, &after) == 0);
  CHECK(after.ss_sp == stack && after.ss_flags == (int)SS_AUTODISARM);
  CHECK(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
  return unused;
}

/* What is not a matter of threads at all. */
static void *plain(void *unused) {
  struct utsname name;
  CHECK(uname(&name) == 0 && strcmp(name.sysname, "Linux") == 0);
  char noise[32] = "";
  CHECK_EQ(getrandom(noise, sizeof noise, 0), (long)sizeof noise);
  struct tms used;
  CHECK(times(&used) != (clock_t)-1);
  CHECK(syscall(SYS_membarrier, 0, 0, 0) >= 0);
  struct timespec now, later;
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  /* Time of the process's CPU clock passes while somebody computes; two milliseconds of it. */
  later = now;
  later.tv_nsec += 2000000;
  if (later.tv_nsec >= 1000000000) later.tv_nsec -= 1000000000, later.tv_sec++;
  volatile unsigned long spin = 0;
  while (now.tv_sec < later.tv_sec || now.tv_nsec < later.tv_nsec) {
    for (int i = 0; i < 10000; i++) spin++;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  }
  CHECK_EQ(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &later, NULL), 0);
  /* Not implemented by anybody any more. */
  int word = 0;
  CHECK(syscall(SYS_futex, &word, FUTEX_FD, 0, NULL, NULL, 0) == -1 && errno == ENOSYS);
  return unused;
}

/* Bad pointers are errors, not crashes. */
static void *bad_pointers(void *unused) {
  char *gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(gone != MAP_FAILED && munmap(gone, 4096) == 0);
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  CHECK(write(pair[1], "x", 1) == 1);
  CHECK(read(pair[0], gone, 1) == -1 && errno == EFAULT);
  CHECK(syscall(SYS_nanosleep, gone, NULL) == -1 && errno == EFAULT);
  CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, gone, NULL, 8) == -1 && errno == EFAULT);
  CHECK(syscall(SYS_sigaltstack, gone, NULL) == -1 && errno == EFAULT);
  CHECK(syscall(SYS_rt_sigaction, SIGUSR2, gone, NULL, 8) == -1 && errno == EFAULT);
  CHECK(syscall(SYS_prctl, PR_SET_NAME, gone) == -1 && errno == EFAULT);
  CHECK(syscall(SYS_epoll_pwait2, 0, gone, 1, gone, NULL, 8) == -1 && (errno == EFAULT || errno == EINVAL));
  CHECK(syscall(SYS_poll, gone, 1, 0) == -1 && errno == EFAULT);
  close(pair[0]), close(pair[1]);
  return unused;
}

int main(void) {
  struct {
    const char *name;
    void *(*body)(void *);
  } const parts[] = {
      {"nested epoll", nested_epoll}, {"big select", big_select},     {"segment", segment},       {"wait for all", wait_all},
      {"full backlog", full_backlog}, {"autodisarm", autodisarm},     {"plain", plain},           {"bad pointers", bad_pointers},
  };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    CHECK_EQ((intptr_t)in_thread(parts[i].body, NULL), 0);
    printf("ok %s\n", parts[i].name);
  }
  return 0;
}
