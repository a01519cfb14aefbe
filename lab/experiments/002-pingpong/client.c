// The load: starts the server, opens connections, and keeps `active` one-byte requests in flight, each going round its
// share of the connections.
//
//   client connections=COUNT active=COUNT ms=MILLISECONDS -- SERVER ARGUMENTS...
//
// One thread and epoll, so that the load is the same and cheap whatever serves it.
#include "lab.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    long connections = number("connections", 1), active = number("active", 1), ms = number("ms", 200);
    char **server = argv;
    while (*server != NULL && strcmp(*server, "--") != 0) server++;
    CHECK(*server != NULL && active >= 1 && active <= connections, "usage");
    int out[2];
    CHECK(pipe(out) == 0, "pipe");
    pid_t child = fork();
    CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        dup2(out[1], 1);
        close(out[0]);
        close(out[1]);
        execvp(server[1], server + 1);
        die("%s: %s", server[1], strerror(errno));
    }
    close(out[1]);
    FILE *from = fdopen(out[0], "r");
    int port = 0, on = 1;
    CHECK(from != NULL && fscanf(from, "port %d", &port) == 1, "the server did not start");
    int *fds = calloc((size_t)connections, sizeof *fds);
    long *at = calloc((size_t)active, sizeof *at);
    int poller = epoll_create1(0);
    CHECK(fds && at && poller >= 0, "no memory");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)port)};
    for (long i = 0; i < connections; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(fds[i] >= 0 && connect(fds[i], (struct sockaddr *)&address, sizeof address) == 0, "connection %ld: %s",
              i, strerror(errno));
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)i};
        CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, fds[i], &event) == 0, "epoll_ctl: %s", strerror(errno));
    }
    unsigned char byte = 0;
    for (long slot = 0; slot < active; slot++) CHECK(write(fds[slot], &byte, 1) == 1, "write");
    long flying = active;
    uint64_t answers = 0, all = 0, begin = now_ns(), from_time = begin + (uint64_t)ms * 250000,
             to_time = from_time + (uint64_t)ms * 1000000;
    struct epoll_event events[256];
    while (flying > 0) {
        int ready = epoll_wait(poller, events, 256, 10000);
        if (ready < 0 && errno == EINTR) continue;
        CHECK(ready > 0, "no answer for 10 s with %ld in flight", flying);
        uint64_t now = now_ns();
        for (int i = 0; i < ready; i++) {
            long connection = (long)events[i].data.u64, slot = connection % active;
            CHECK(read(fds[connection], &byte, 1) == 1, "the server closed a connection");
            all++;
            if (now >= from_time && now < to_time) answers++;
            if (now >= to_time) {
                flying--;
                continue;
            }
            // The slot's connections are slot, slot + active, slot + 2 active ...
            long next = connection + active < connections ? connection + active : slot;
            byte++;
            CHECK(write(fds[next], &byte, 1) == 1, "write: %s", strerror(errno));
        }
    }
    for (long i = 0; i < connections; i++) close(fds[i]);
    char name[64];
    double value;
    while (fscanf(from, "%63s %lf\n", name, &value) == 2) {
        if (strcmp(name, "served") == 0)
            CHECK((uint64_t)value == all, "%llu answers, but the server counts %.0f", (unsigned long long)all, value);
        figure(name, value);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the server failed (%d)", status);
    figure("rate", (double)answers / ((double)ms / 1e3));
    return 0;
}
