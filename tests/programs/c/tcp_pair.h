/* Two ends of a TCP connection within the machine. */
#ifndef HEDDLE_TESTS_TCP_PAIR_H
#define HEDDLE_TESTS_TCP_PAIR_H

#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static void tcp_pair(int ends[2]) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof where;
  OK(bind(listener, (struct sockaddr *)&where, size));
  OK(listen(listener, 1));
  OK(getsockname(listener, (struct sockaddr *)&where, &size));
  ends[1] = socket(AF_INET, SOCK_STREAM, 0);
  OK(connect(ends[1], (struct sockaddr *)&where, size));
  ends[0] = accept(listener, 0, 0);
  CHECK(ends[0] >= 0);
  OK(close(listener));
}

#endif
