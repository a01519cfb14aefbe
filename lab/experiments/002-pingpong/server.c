// A server with a thread per connection: receives one byte and sends it back.
//
//   server connections=COUNT [stack=KIB]
//
// Says `port P` first; ends when all connections have been closed; then says what it used.
#include "lab.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void *serve(void *argument) {
    int connection = (int)(intptr_t)argument;
    intptr_t served = 0;
    unsigned char byte;
    ssize_t n;
    while ((n = read(connection, &byte, 1)) == 1) {
        CHECK(write(connection, &byte, 1) == 1, "write: %s", strerror(errno));
        served++;
    }
    CHECK(n == 0, "read: %s", strerror(errno));
    close(connection);
    return (void *)served;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    long connections = number("connections", 1);
    pthread_t *ids = calloc((size_t)connections, sizeof *ids);
    CHECK(ids != NULL, "no memory");
    pthread_attr_t attributes;
    PTHREAD(pthread_attr_init(&attributes));
    PTHREAD(pthread_attr_setstacksize(&attributes, (size_t)number("stack", 64) * 1024));
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 4096) == 0 &&
              getsockname(listener, (struct sockaddr *)&address, &length) == 0,
          "listening: %s", strerror(errno));
    printf("port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (long i = 0; i < connections; i++) {
        int connection = accept(listener, NULL, NULL);
        CHECK(connection >= 0, "accept: %s", strerror(errno));
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        PTHREAD(pthread_create(&ids[i], &attributes, serve, (void *)(intptr_t)connection));
    }
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    uint64_t served = 0;
    for (long i = 0; i < connections; i++) {
        void *result;
        PTHREAD(pthread_join(ids[i], &result));
        served += (uint64_t)(intptr_t)result;
    }
    getrusage(RUSAGE_SELF, &after);
#define SPENT(field) \
    ((double)(after.field.tv_sec - before.field.tv_sec) * 1e6 + (double)(after.field.tv_usec - before.field.tv_usec))
    figure("server_user_us", SPENT(ru_utime) / (double)served);
    figure("server_system_us", SPENT(ru_stime) / (double)served);
    figure("served", (double)served);
    return 0;
}
