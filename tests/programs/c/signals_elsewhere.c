// Signals for one thread do not interrupt the waits of others, although they may arrive on any CPU.
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static atomic_ulong handled;
static atomic_bool over;
static int quiet[2], ready[2];

static void on_signal(int number) {
    (void)number;
    atomic_fetch_add(&handled, 1);
}

// The only thread that takes the signal.
static void *taker(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    while (!atomic_load(&over)) usleep(500);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return unused;
}

static void *poller(void *unused) {
    while (!atomic_load(&over)) {
        struct pollfd two[2] = {{.fd = quiet[0], .events = POLLIN}, {.fd = ready[0], .events = POLLIN}};
        CHECK(poll(two, 1, 0) == 0);
        CHECK(poll(two, 1, 1) == 0);
        CHECK(poll(two, 2, 1000) == 1);
    }
    return unused;
}

static void *selecter(void *unused) {
    while (!atomic_load(&over)) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(quiet[0], &set);
        struct timeval now = {0, 0}, soon = {0, 1000};
        CHECK(select(quiet[0] + 1, &set, NULL, NULL, &now) == 0);
        FD_SET(quiet[0], &set);
        CHECK(select(quiet[0] + 1, &set, NULL, NULL, &soon) == 0);
    }
    return unused;
}

static void *parent(void *unused) {
    char *argv[] = {"true", NULL};
    while (!atomic_load(&over)) {
        pid_t child;
        CHECK(posix_spawnp(&child, "true", NULL, NULL, argv, environ) == 0);
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return unused;
}

int main(void) {
    CHECK(pipe(quiet) == 0 && pipe(ready) == 0);
    CHECK(write(ready[1], "x", 1) == 1);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);

    pid_t self = getpid(), sender = fork();
    CHECK(sender >= 0);
    if (sender == 0) {
        // A burst a millisecond, for as long as the parent lets it live.
        for (;;) {
            for (int i = 0; i < 20; i++) kill(self, SIGUSR1);
            usleep(200);
            if (getppid() != self) _exit(0);
        }
    }
    void *(*bodies[])(void *) = {taker, poller, selecter, parent, poller};
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) CHECK(pthread_create(&threads[i], NULL, bodies[i], NULL) == 0);
    struct timespec left = {.tv_sec = 1};
    CHECK(nanosleep(&left, &left) == 0);
    atomic_store(&over, 1);
    for (int i = 0; i < 5; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(kill(sender, SIGKILL) == 0);
    CHECK(waitpid(sender, NULL, 0) == sender);
    CHECK(handled > 10);
    puts("nobody else was interrupted");
    return 0;
}
