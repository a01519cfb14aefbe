// What an edge-triggered poller loses: a reader finds nothing, then the data comes and its edge is consumed, then the reader
// puts itself on the list of those that wait. Step by step, so that nothing depends on luck.
//
//   edge rounds=COUNT reserve=0|1
//
// reserve=1: an edge that finds nobody waiting is kept for the next who comes.
#include "lab.h"
#include <sys/epoll.h>

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    long rounds = number("rounds", 100), reserve = number("reserve", 0), lost = 0;
    for (long i = 0; i < rounds; i++) {
        int ends[2], poller = epoll_create1(0);
        CHECK(poller >= 0 && pipe2(ends, O_NONBLOCK) == 0, "pipe");
        struct epoll_event event = {.events = EPOLLIN | EPOLLET}, got;
        CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, ends[0], &event) == 0, "epoll_ctl");
        char byte = 1;
        int waiting = 0, kept = 0;
        CHECK(read(ends[0], &byte, 1) == -1 && errno == EAGAIN, "the pipe was not empty"); // 1. nothing there
        CHECK(write(ends[1], &byte, 1) == 1, "write");                                     // 2. it comes
        if (epoll_wait(poller, &got, 1, 0) == 1) {                                         // 3. the edge is consumed
            if (!waiting && reserve) kept = 1;
        }
        waiting = 1;                                                // 4. the reader is on the list
        int woken = kept || epoll_wait(poller, &got, 1, 2) == 1;    // 5. does anything wake it?
        if (woken)
            CHECK(read(ends[0], &byte, 1) == 1 && byte == 1, "read");
        else
            lost++;
        (void)waiting;
        close(ends[0]);
        close(ends[1]);
        close(poller);
    }
    figure("lost", (double)lost / (double)rounds);
    return 0;
}
