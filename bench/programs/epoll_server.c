// What an echo server can reach here at most: echo_server's work in the fastest form known, one thread and epoll.
//
//   epoll_server CONNECTIONS
//
// Takes the same argument, says the same lines and serves the same client as echo_server. Edge-triggered, one
// receive and one send per request.
#include "bench.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
    size_t connections = (size_t)argument(argc, argv, 1, 0);
    CHECK(connections > 0, "usage: epoll_server CONNECTIONS");
    int listener = socket(AF_INET, SOCK_STREAM, 0), poller = epoll_create1(0);
    CHECK(listener >= 0 && poller >= 0, "socket or epoll_create1: %s", strerror(errno));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    CHECK(bind(listener, (struct sockaddr *)&address, length) == 0, "bind: %s", strerror(errno));
    CHECK(listen(listener, 4096) == 0, "listen: %s", strerror(errno));
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    printf("port %d tcp\n", ntohs(address.sin_port));
    fflush(stdout);

    for (size_t i = 0; i < connections; i++) {
        int connection = accept(listener, NULL, NULL);
        CHECK(connection >= 0, "accept of connection %zu: %s", i, strerror(errno));
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = connection};
        CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, connection, &event) == 0, "epoll_ctl: %s", strerror(errno));
    }
    close(listener);
    uint64_t echoed = 0;
    struct epoll_event events[512];
    for (size_t open = connections; open > 0;) {
        int ready = epoll_wait(poller, events, 512, -1);
        CHECK(ready > 0, "epoll_wait: %s", strerror(errno));
        for (int i = 0; i < ready; i++) {
            char buffer[512];
            ssize_t got = recv(events[i].data.fd, buffer, sizeof buffer, MSG_DONTWAIT);
            if (got < 0 && errno == EAGAIN) continue;
            CHECK(got >= 0, "recv: %s", strerror(errno));
            if (got == 0) {
                close(events[i].data.fd);
                open--;
                continue;
            }
            // A client with one byte in flight leaves room for the answer.
            CHECK(send(events[i].data.fd, buffer, (size_t)got, 0) == got, "send: %s", strerror(errno));
            echoed += (uint64_t)got;
        }
    }
    printf("echo_served %llu bytes\n", (unsigned long long)echoed);
    return 0;
}
