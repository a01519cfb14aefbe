// The load for echo_server: one thread, epoll, one one-byte request in flight per connection.
//
//   echo_client PORT CONNECTIONS [SECONDS] [WARM_UP_SECONDS]
//
// echo_rate                      answers per second in the measured time
// echo_p50, echo_p99, echo_max   time from sending a request to reading its answer
// echo_sent                      all requests of this run, warm-up included (the server counts too)
// Every byte is checked: a connection's requests carry a running number.
#include "bench.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

// Histogram with 32 buckets per power of two: 3 % resolution.
enum { SUB_BITS = 5, SUB = 1 << SUB_BITS, BUCKETS = 64 * SUB };

static uint64_t histogram[BUCKETS], answers, longest;

static unsigned bucket_of(uint64_t value) {
    if (value < SUB) return (unsigned)value;
    unsigned exponent = 63 - (unsigned)__builtin_clzll(value) - SUB_BITS;
    return (exponent + 1) * SUB + (unsigned)((value >> exponent) - SUB);
}

static double bucket_middle(unsigned bucket) {
    if (bucket < SUB) return bucket;
    unsigned exponent = bucket / SUB - 1;
    return (double)(((uint64_t)(bucket % SUB + SUB) << exponent)) +
           (double)((uint64_t)1 << exponent) / 2;
}

static double quantile_us(double part) {
    uint64_t rank = (uint64_t)((double)answers * part), seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen > rank) return bucket_middle(i) / 1e3;
    }
    return (double)longest / 1e3;
}

struct connection {
    int fd;
    unsigned char next; // what the next answer must be
    uint64_t sent_at, answered;
};

static uint64_t sent;

static void request(struct connection *connection) {
    connection->sent_at = now_ns();
    ssize_t n = write(connection->fd, &connection->next, 1);
    CHECK(n == 1, "write: %s", n < 0 ? strerror(errno) : "nothing written");
    sent++;
}

int main(int argc, char **argv) {
    uint16_t port = (uint16_t)argument(argc, argv, 1, 0);
    size_t connections = (size_t)argument(argc, argv, 2, 0);
    double seconds = argument(argc, argv, 3, 2);
    double warm_up = argument(argc, argv, 4, 0.3);
    CHECK(port != 0 && connections != 0, "usage: echo_client PORT CONNECTIONS [SECONDS] [WARM_UP]");
    struct connection *all = calloc(connections, sizeof *all);
    CHECK(all != NULL, "no memory");

    int poller = epoll_create1(0);
    CHECK(poller >= 0, "epoll_create1: %s", strerror(errno));
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(port)};
    for (size_t i = 0; i < connections; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
        CHECK(fd >= 0, "socket %zu: %s", i, strerror(errno));
        CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect %zu: %s", i,
              strerror(errno));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "fcntl: %s", strerror(errno));
        all[i] = (struct connection){.fd = fd, .next = (unsigned char)(i * 7)};
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl: %s", strerror(errno));
    }

    uint64_t begin = now_ns();
    uint64_t measure_from = begin + (uint64_t)(warm_up * 1e9);
    uint64_t measure_to = measure_from + (uint64_t)(seconds * 1e9);
    for (size_t i = 0; i < connections; i++) request(&all[i]);
    size_t in_flight = connections;
    struct epoll_event events[512];
    while (in_flight > 0) {
        int ready = epoll_wait(poller, events, 512, 5000);
        if (ready < 0 && errno == EINTR) continue;
        CHECK(ready > 0, "no answer for 5 s with %zu requests in flight", in_flight);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            unsigned char buffer[16];
            ssize_t got = read(connection->fd, buffer, sizeof buffer);
            if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            CHECK(got == 1, "read: %s", got < 0 ? strerror(errno) : got ? "too much" : "end of file");
            CHECK(buffer[0] == connection->next, "answer %u instead of %u", buffer[0],
                  connection->next);
            uint64_t now = now_ns();
            if (now >= measure_from && now < measure_to) {
                uint64_t took = now - connection->sent_at;
                histogram[bucket_of(took)]++;
                answers++;
                if (took > longest) longest = took;
            }
            connection->answered++;
            connection->next++;
            // Nobody may be left out: each connection gets at least two answers, however slow.
            if (now < measure_to || connection->answered < 2) {
                request(connection);
            } else {
                in_flight--;
            }
        }
    }
    uint64_t answered = 0;
    for (size_t i = 0; i < connections; i++) {
        answered += all[i].answered;
        close(all[i].fd);
    }
    CHECK(answered == sent, "%llu answers to %llu requests", (unsigned long long)answered,
          (unsigned long long)sent);
    CHECK(answers > 0, "no answer within the measured time");
    figure("echo_rate", (double)answers / seconds, "requests/s");
    figure("echo_p50", quantile_us(0.50), "us");
    figure("echo_p99", quantile_us(0.99), "us");
    figure("echo_max", (double)longest / 1e3, "us");
    figure("echo_sent", (double)sent, "requests");
    return 0;
}
