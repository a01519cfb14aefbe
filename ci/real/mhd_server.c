/* A libmicrohttpd server with a thread for each connection: mhd_server PORT. Answers every path with itself; ends well
   at SIGTERM. */
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static enum MHD_Result answer(void *data, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *upload, size_t *size, void **state) {
  static int seen;
  (void)data, (void)method, (void)version, (void)upload, (void)size;
  if (!*state) {
    *state = &seen;
    return MHD_YES;
  }
  char body[256];
  int length = snprintf(body, sizeof body, "hello %s\n", url);
  struct MHD_Response *response = MHD_create_response_from_buffer(length, body, MHD_RESPMEM_MUST_COPY);
  enum MHD_Result queued = MHD_queue_response(connection, 200, response);
  MHD_destroy_response(response);
  return queued;
}

int main(int count, char **words) {
  sigset_t set;
  int number;
  if (count != 2) return 2;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, 0);
  struct MHD_Daemon *daemon =
      MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL,
                       (unsigned short)atoi(words[1]), 0, 0, answer, 0, MHD_OPTION_CONNECTION_LIMIT, 2000u,
                       MHD_OPTION_END);
  if (!daemon) return 1;
  if (sigwait(&set, &number) || number != SIGTERM) return 3;
  MHD_stop_daemon(daemon);
  return 0;
}
