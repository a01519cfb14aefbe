// An echo server in the plainest form: a thread per connection, blocking read and write.
//
//   echo_server CONNECTIONS [STACK_KIB]
//
// Listens on 127.0.0.1 on a port the kernel chooses and says `port P tcp` first. Serves exactly
// CONNECTIONS connections, each until its client closes, then prints how much it echoed and ends.
#include "bench.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static void *serve(void *argument) {
    int connection = (int)(uintptr_t)argument;
    uintptr_t echoed = 0;
    char buffer[512];
    for (;;) {
        ssize_t got = read(connection, buffer, sizeof buffer);
        if (got == 0) break;
        if (got < 0 && errno == EINTR) continue;
        CHECK(got > 0, "read: %s", strerror(errno));
        for (ssize_t sent = 0; sent < got;) {
            ssize_t n = write(connection, buffer + sent, (size_t)(got - sent));
            if (n < 0 && errno == EINTR) continue;
            CHECK(n > 0, "write: %s", strerror(errno));
            sent += n;
        }
        echoed += (uintptr_t)got;
    }
    close(connection);
    return (void *)echoed;
}

int main(int argc, char **argv) {
    size_t connections = (size_t)argument(argc, argv, 1, 0);
    size_t stack = (size_t)argument(argc, argv, 2, 64) * 1024;
    CHECK(connections > 0, "usage: echo_server CONNECTIONS [STACK_KIB]");
    pthread_t *ids = calloc(connections, sizeof *ids);
    CHECK(ids != NULL, "no memory");
    pthread_attr_t attr;
    small_stack(&attr, stack);

    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0, "socket: %s", strerror(errno));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    CHECK(bind(listener, (struct sockaddr *)&address, length) == 0, "bind: %s", strerror(errno));
    CHECK(listen(listener, 4096) == 0, "listen: %s", strerror(errno));
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    printf("port %d tcp\n", ntohs(address.sin_port));
    fflush(stdout);

    for (size_t i = 0; i < connections; i++) {
        int connection;
        while ((connection = accept(listener, NULL, NULL)) < 0)
            CHECK(errno == EINTR, "accept of connection %zu: %s", i, strerror(errno));
        int error = pthread_create(&ids[i], &attr, serve, (void *)(uintptr_t)connection);
        CHECK(error == 0, "pthread_create for connection %zu: %s", i, strerror(error));
    }
    close(listener);
    uint64_t echoed = 0;
    for (size_t i = 0; i < connections; i++) {
        void *result;
        PTHREAD(pthread_join(ids[i], &result));
        echoed += (uintptr_t)result;
    }
    printf("echo_served %llu bytes\n", (unsigned long long)echoed);
    return 0;
}
