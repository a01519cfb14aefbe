"""file_server.py DIR PORT_FILE: serves DIR on 127.0.0.1 for curl, with a queue that holds a crowd."""

import functools
import http.server
import os
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024


def main():
    server = Server(("127.0.0.1", 0), functools.partial(Handler, directory=sys.argv[1]))
    with open(sys.argv[2] + ".new", "w", encoding="ascii") as file:
        file.write(f"{server.server_address[1]}\n")
    os.rename(sys.argv[2] + ".new", sys.argv[2])
    server.serve_forever()


if __name__ == "__main__":
    main()
