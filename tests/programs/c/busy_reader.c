/* Asserts that a thread that always finds something to read does not keep a thread waiting whose descriptor is ready. How
   long it waits is counted in what the other one reads meanwhile, not in time. */
#include "check.h"
#include <sys/socket.h>

enum { QUESTIONS = 100, MOST = 3000 };

static volatile long *reads;
static long waited[QUESTIONS];
static int ask[2];

/* A request at a time, as a server does whose clients are quick. */
static void *busy(void *argument) {
  char byte;
  while (recv((int)(long)argument, &byte, 1, 0) == 1) ++*reads;
  return 0;
}

static void *other(void *unused) {
  for (int i = 0; i < QUESTIONS; i++) {
    long sent_at;
    CHECK_EQ(read(ask[0], &sent_at, sizeof sent_at), sizeof sent_at);
    waited[i] = *reads - sent_at;
  }
  return unused;
}

static int compare(const void *left, const void *right) {
  long a = *(const long *)left, b = *(const long *)right;
  return (a > b) - (a < b);
}

int main(void) {
  reads = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK((void *)reads != MAP_FAILED);
  int requests[2];
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, requests));
  OK(pipe(ask));
  pid_t client = fork();
  CHECK(client >= 0);
  if (client == 0) {
    static char many[4096];
    OK(close(requests[0]));
    signal(SIGPIPE, SIG_IGN);
    while (write(requests[1], many, sizeof many) > 0) {
    }
    _exit(0);
  }
  pid_t asker = fork();
  CHECK(asker >= 0);
  if (asker == 0) {
    for (int i = 0; i < QUESTIONS; i++) {
      long now = *reads;
      while (*reads < now + 5000) usleep(100);
      now = *reads;
      CHECK_EQ(write(ask[1], &now, sizeof now), sizeof now);
    }
    _exit(0);
  }
  OK(close(requests[1]));
  pthread_t threads[2];
  OK(pthread_create(&threads[0], 0, busy, (void *)(long)requests[0]));
  OK(pthread_create(&threads[1], 0, other, 0));
  OK(pthread_join(threads[1], 0));
  OK(shutdown(requests[0], SHUT_RDWR));
  OK(pthread_join(threads[0], 0));
  CHECK_EQ(waitpid(client, 0, 0), client);
  CHECK_EQ(waitpid(asker, 0, 0), asker);
  qsort(waited, QUESTIONS, sizeof waited[0], compare);
  CHECK(waited[QUESTIONS / 2] <= MOST);
  puts("who waits for a descriptor gets its turn beside a busy reader");
  return 0;
}
