/* Asserts the resolver from 32 threads: localhost, numeric addresses, services, names that are none, and the reverse. */
#include "check.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

enum { THREADS = 32, ROUNDS = 30 };

static int finds(const char *host, const char *service, int flags, const char *address, int port) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags, .ai_family = AF_INET}, *list;
  int found = 0, result = getaddrinfo(host, service, &hints, &list);
  if (result) return result;
  for (struct addrinfo *a = list; a; a = a->ai_next) {
    struct sockaddr_in *in = (void *)a->ai_addr;
    char text[64];
    CHECK(inet_ntop(AF_INET, &in->sin_addr, text, sizeof text));
    found |= strcmp(text, address) == 0 && ntohs(in->sin_port) == port;
  }
  freeaddrinfo(list);
  CHECK(found);
  return 0;
}

static void *body(void *argument) {
  for (int i = 0; i < ROUNDS; i++) {
    OK(finds("localhost", "80", 0, "127.0.0.1", 80));
    OK(finds("10.1.2.3", "443", AI_NUMERICHOST, "10.1.2.3", 443));
    OK(finds(0, "8080", AI_PASSIVE | AI_NUMERICSERV, "0.0.0.0", 8080));
    CHECK_EQ(finds("no-number", "1", AI_NUMERICHOST, "", 0), EAI_NONAME);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(99)};
    char host[100], service[32];
    address.sin_addr.s_addr = htonl(0x0a000000 | (unsigned)i);
    OK(getnameinfo((struct sockaddr *)&address, sizeof address, host, sizeof host, service, sizeof service,
                   NI_NUMERICHOST | NI_NUMERICSERV));
    char expected[32];
    snprintf(expected, sizeof expected, "10.0.0.%d", i);
    CHECK(strcmp(host, expected) == 0 && strcmp(service, "99") == 0);
  }
  return argument;
}

int main(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) threads[i] = start(body, 0);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  puts("ok getaddrinfo");
}
