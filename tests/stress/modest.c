// A little of everything the runtime does, for runs in which system calls are made to fail.
//
// Exit status 0: all done. 3: a call returned an error that POSIX allows, and it is named on standard output. Any other end,
// wrong results and hangs are faults of the runtime.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 6 };

static void refused(const char *what, int error) {
    printf("refused: %s: %s\n", what, strerror(error));
    fflush(stdout);
    _exit(3);
}

static void wrong(const char *what) {
    printf("wrong: %s\n", what);
    fflush(stdout);
    _exit(4);
}

static void need(const char *what, int error) {
    if (error != 0) refused(what, error);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int turn, wires[2], pair[2];
static volatile sig_atomic_t handled;

static void on_signal(int number) { handled = number; }

static void *taker(void *number) {
    int mine = (int)(long)number;
    need("lock", pthread_mutex_lock(&lock));
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 100;
    while (turn != mine) need("cond_timedwait", pthread_cond_timedwait(&condition, &lock, &limit));
    turn++;
    need("broadcast", pthread_cond_broadcast(&condition));
    need("unlock", pthread_mutex_unlock(&lock));
    struct timespec nap = {.tv_nsec = 1000000};
    while (nanosleep(&nap, &nap) != 0)
        if (errno != EINTR) refused("nanosleep", errno);
    return number;
}

static ssize_t patient_read(int fd, void *buffer, size_t size) {
    ssize_t n;
    while ((n = read(fd, buffer, size)) < 0 && errno == EINTR) {}
    return n;
}

static void *reader(void *unused) {
    char byte = 0;
    ssize_t n = patient_read(wires[0], &byte, 1);
    if (n < 0 && (errno == ENOMEM || errno == ENOSPC)) wrong("how a read of a pipe failed");
    if (n < 0) refused("read of a pipe", errno);
    if (n != 1 || byte != 'p') wrong("what came through the pipe");
    struct pollfd ready = {.fd = pair[0], .events = POLLIN};
    int found;
    while ((found = poll(&ready, 1, 5000)) < 0 && errno == EINTR) {}
    if (found < 0) refused("poll", errno);
    if (found != 1) wrong("poll timed out");
    n = recv(pair[0], &byte, 1, 0);
    if (n < 0) refused("recv", errno);
    if (n != 1 || byte != 's') wrong("what came through the socket");
    return unused;
}

int main(void) {
    pthread_t threads[THREADS], other;
    for (long i = 0; i < THREADS; i++) need("pthread_create", pthread_create(&threads[i], NULL, taker, (void *)i));
    for (long i = 0; i < THREADS; i++) {
        void *result;
        need("pthread_join", pthread_join(threads[i], &result));
        if (result != (void *)i) wrong("the value joined");
    }
    if (turn != THREADS) wrong("turns");

    if (pipe(wires) != 0) refused("pipe", errno);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) refused("socketpair", errno);
    need("pthread_create", pthread_create(&other, NULL, reader, NULL));
    usleep(2000);
    if (write(wires[1], "p", 1) != 1) refused("write", errno);
    usleep(2000);
    if (send(pair[1], "s", 1, 0) != 1) refused("send", errno);
    need("pthread_join", pthread_join(other, NULL));

    struct sigaction action = {.sa_handler = on_signal};
    if (sigaction(SIGUSR1, &action, NULL) != 0) refused("sigaction", errno);
    need("pthread_kill", pthread_kill(pthread_self(), SIGUSR1));
    if (handled != SIGUSR1) wrong("the handler did not run");

    pid_t child = fork();
    if (child < 0) refused("fork", errno);
    if (child == 0) {
        need("pthread_create in a child", pthread_create(&other, NULL, taker, (void *)(long)turn));
        need("pthread_join in a child", pthread_join(other, NULL));
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) refused("waitpid", errno);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3) return 3;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) wrong("the child's end");
    puts("done");
    return 0;
}
