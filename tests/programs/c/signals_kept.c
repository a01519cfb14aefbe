/* Asserts that signals which are ignored, or do nothing by default, and that the thread blocks, are kept for sigwait and for
   signalfd, where ignoring them means more to the kernel, too. SIGCHLD: children of who ignores it leave nothing to wait for, and
   send none, neither when they end nor when they stop; one that was sent is kept; with SA_NOCLDWAIT alone they send
   it. SIGTTIN and SIGTTOU: a process in the background that ignores or blocks them uses its terminal, or fails, without
   being stopped or sent any. First with one thread, then with others. */
#include "check.h"
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>

static volatile int stop, handled;

static void blocks(int how, int signal) {
  sigset_t set = set_with(signal);
  OK(pthread_sigmask(how, &set, 0));
}

/* From a process that is not a child of who ignores SIGCHLD when it ends. */
static void sent_by_another(int signal) {
  pid_t to = getpid();
  int ends[2];
  char byte;
  OK(pipe(ends));
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    OK(kill(to, signal));
    _exit(0);
  }
  OK(close(ends[1]));
  CHECK_EQ(read(ends[0], &byte, 1), 0); /* it has ended */
  OK(close(ends[0]));
  while (waitpid(pid, 0, 0) < 0 && errno == EINTR) continue;
}

static void waits_for(int signal, int code) {
  sigset_t set = set_with(signal);
  siginfo_t info;
  struct timespec most = {20, 0};
  int found;
  do found = sigtimedwait(&set, &info, &most); /* another child's end may interrupt it */
  while (found < 0 && errno == EINTR);
  CHECK_EQ(found, signal);
  CHECK_EQ(info.si_code, code);
}

static void reads(int fd, int signal) {
  struct signalfd_siginfo info;
  CHECK_EQ(read(fd, &info, sizeof info), sizeof info);
  CHECK_EQ(info.ssi_signo, signal);
  CHECK_EQ(info.ssi_code, SI_USER);
  FAILS(read(fd, &info, sizeof info), EAGAIN);
}

static void kept(int signo, int ignored) {
  signal(signo, ignored ? SIG_IGN : SIG_DFL);
  blocks(SIG_BLOCK, signo);
  OK(kill(getpid(), signo));
  CHECK(is_pending(signo));
  waits_for(signo, SI_USER);
  if (ignored || signo != SIGCHLD) {
    sent_by_another(signo);
    waits_for(signo, SI_USER);
    CHECK(!is_pending(signo));
  }
  OK(raise(signo));
  CHECK(is_pending(signo));
  if (ignored) signal(signo, SIG_IGN); /* drops it */
  else waits_for(signo, SI_USER); /* as glibc tells it */
  CHECK(!is_pending(signo));
  blocks(SIG_UNBLOCK, signo);
  OK(raise(signo)); /* and so does this */
  blocks(SIG_BLOCK, signo);
  CHECK(!is_pending(signo));
  signal(signo, SIG_DFL);
  blocks(SIG_UNBLOCK, signo);
}

static void kept_for_descriptor(int signo) {
  sigset_t set = set_with(signo);
  blocks(SIG_BLOCK, signo);
  signal(signo, SIG_IGN);
  int fd = signalfd(-1, &set, SFD_NONBLOCK);
  CHECK(fd >= 0);
  sent_by_another(signo);
  reads(fd, signo); /* none for the end of the sender */
  OK(kill(getpid(), signo));
  reads(fd, signo);
  OK(kill(getpid(), signo));
  CHECK(is_pending(signo));
  waits_for(signo, SI_USER);
  OK(close(fd));
  blocks(SIG_UNBLOCK, signo);
  signal(signo, SIG_DFL);
}

static void on_signal(int signal) {
  (void)signal;
  handled++;
}

static pid_t stops(void) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    OK(raise(SIGSTOP));
    _exit(0);
  }
  return pid;
}

/* Until the kernel says that it has stopped. */
static void stopped(pid_t pid) {
  char path[40], text[200] = {0};
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  do {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    CHECK(read(fd, text, sizeof text - 1) > 0);
    OK(close(fd));
  } while (strrchr(text, ')')[2] != 'T');
}

static void children(void) {
  int status;
  blocks(SIG_BLOCK, SIGCHLD);
  signal(SIGCHLD, SIG_IGN);
  pid_t pid = stops(), last = fork();
  CHECK(last >= 0);
  if (last == 0) _exit(3);
  stopped(pid);
  OK(kill(pid, SIGCONT));
  FAILS(waitpid(pid, &status, 0), ECHILD);
  FAILS(waitpid(-1, &status, 0), ECHILD);
  sleep_ms(5);
  CHECK(!is_pending(SIGCHLD));
  /* Their end is told, and that is all. */
  struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
  OK(sigaction(SIGCHLD, &action, 0));
  if ((pid = fork()) == 0) _exit(0);
  waits_for(SIGCHLD, CLD_EXITED);
  FAILS(waitpid(pid, &status, 0), ECHILD);
  action = (struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART};
  OK(sigaction(SIGCHLD, &action, 0));
  handled = 0;
  pid = stops();
  CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
  CHECK(WIFSTOPPED(status));
  CHECK(is_pending(SIGCHLD));
  blocks(SIG_UNBLOCK, SIGCHLD);
  CHECK_EQ(handled, 1);
  OK(kill(pid, SIGCONT));
  ends_well(pid);
  signal(SIGCHLD, SIG_DFL);
}

/* In a process group in the background. */
static void uses(int fd) {
  struct termios settings;
  char byte;
  OK(tcgetattr(fd, &settings));
  blocks(SIG_BLOCK, SIGTTOU); /* once */
  blocks(SIG_BLOCK, SIGTTIN);
  for (int i = 0; i < 2; i++) {
    if (i == 1) {
      signal(SIGTTOU, SIG_IGN);
      signal(SIGTTIN, SIG_IGN);
      blocks(SIG_UNBLOCK, SIGTTOU);
      blocks(SIG_UNBLOCK, SIGTTIN);
    }
    OK(tcsetattr(fd, TCSANOW, &settings));
    CHECK_EQ(write(fd, "x", 1), 1); /* TOSTOP */
    FAILS(read(fd, &byte, 1), EIO);
    CHECK(!is_pending(SIGTTOU));
    CHECK(!is_pending(SIGTTIN));
  }
  struct sigaction action = {.sa_handler = on_signal};
  OK(sigaction(SIGTTOU, &action, 0));
  OK(sigaction(SIGTTIN, &action, 0));
  handled = 0;
  FAILS(tcsetattr(fd, TCSANOW, &settings), EINTR);
  CHECK_EQ(handled, 1);
  FAILS(write(fd, "x", 1), EINTR);
  CHECK_EQ(handled, 2);
  FAILS(read(fd, &byte, 1), EINTR);
  CHECK_EQ(handled, 3);
}

static void *waits(void *argument) {
  while (!stop) usleep(1000);
  return argument;
}

static void in_background(int threads) {
  int master, fd, status;
  OK(openpty(&master, &fd, 0, 0, 0));
  pid_t leader = fork();
  CHECK(leader >= 0);
  if (leader == 0) {
    CHECK(setsid() > 0);
    OK(ioctl(fd, TIOCSCTTY, 0));
    struct termios settings;
    OK(tcgetattr(fd, &settings));
    settings.c_lflag |= TOSTOP;
    OK(tcsetattr(fd, TCSANOW, &settings));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      OK(setpgid(0, 0));
      pthread_t other = 0;
      if (threads) other = start(waits, 0);
      uses(fd);
      stop = 1;
      if (threads) join(other);
      _exit(0);
    }
    int told;
    CHECK_EQ(waitpid(pid, &told, WUNTRACED), pid);
    _exit(told != 0); /* it has ended well, and not been stopped */
  }
  CHECK_EQ(waitpid(leader, &status, 0), leader);
  CHECK_EQ(status, 0);
  OK(close(fd));
  OK(close(master));
}

static void all(void) {
  int ignored[] = {SIGCHLD, SIGTTIN, SIGTTOU, SIGTSTP, SIGURG, SIGWINCH, SIGCONT, SIGUSR1};
  int nothing[] = {SIGCHLD, SIGURG, SIGWINCH, SIGCONT};
  for (size_t i = 0; i < COUNT(ignored); i++) kept(ignored[i], 1);
  for (size_t i = 0; i < COUNT(nothing); i++) kept(nothing[i], 0);
  int by_descriptor[] = {SIGCHLD, SIGTTIN, SIGTTOU, SIGURG};
  for (size_t i = 0; i < COUNT(by_descriptor); i++) kept_for_descriptor(by_descriptor[i]);
  children();
}

static void *all_in_thread(void *argument) {
  all();
  return argument;
}

int main(void) {
  all();
  in_background(0);
  puts("ok alone");
  in_background(1);
  sigset_t every, none;
  sigfillset(&every);
  sigemptyset(&none);
  OK(pthread_sigmask(SIG_SETMASK, &every, 0)); /* for the other, which would take what is for the process */
  pthread_t other = start(waits, 0), next;
  OK(pthread_sigmask(SIG_SETMASK, &none, 0));
  all();
  OK(pthread_sigmask(SIG_SETMASK, &every, 0));
  pthread_attr_t attributes;
  OK(pthread_attr_init(&attributes));
  OK(pthread_attr_setsigmask_np(&attributes, &none));
  OK(pthread_create(&next, &attributes, all_in_thread, 0));
  join(next);
  stop = 1;
  join(other);
  puts("ok with others");
}
