"""Asserts socketserver's and http.server's threading servers under many clients, and selectors between threads."""
import http.client
import http.server
import os
import selectors
import socket
import socketserver
import threading

CLIENTS = 40


def in_threads(count, body):
    wrong = []

    def run(i):
        try:
            body(i)
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if wrong:
        raise wrong[0]


class Upper(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())


class Tcp(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 128


def tcp_client(i):
    with socket.create_connection(tcp.server_address, timeout=30) as s, s.makefile("rw") as f:
        for n in range(20):
            f.write(f"client {i} line {n}\n")
            f.flush()
            assert f.readline() == f"CLIENT {i} LINE {n}\n"


with Tcp(("127.0.0.1", 0), Upper) as tcp:
    serving = threading.Thread(target=tcp.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    in_threads(CLIENTS, tcp_client)
    tcp.shutdown()
    serving.join()
print("ok ThreadingTCPServer")


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass


for i in range(10):
    with open(f"page{i}.txt", "wb") as f:
        f.write(bytes([48 + i]) * (i * 20000 + 1))


def http_client(i):
    c = http.client.HTTPConnection(*web.server_address, timeout=30)
    for n in range(10):
        page = (i + n) % 10
        c.request("GET", f"/page{page}.txt")
        r = c.getresponse()
        assert r.status == 200
        assert r.read() == bytes([48 + page]) * (page * 20000 + 1)
    c.request("GET", "/missing")
    r = c.getresponse()
    assert r.status == 404
    r.read()
    c.close()


class Web(http.server.ThreadingHTTPServer):
    request_queue_size = 128


with Web(("127.0.0.1", 0), Handler) as web:
    serving = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    in_threads(CLIENTS, http_client)
    web.shutdown()
    serving.join()
print("ok ThreadingHTTPServer")


def multiplex(i):
    kind = (selectors.DefaultSelector, selectors.PollSelector, selectors.SelectSelector)[i % 3]
    with kind() as selector:
        pairs = [socket.socketpair() for _ in range(5)]
        r, w = os.pipe()
        for here, there in pairs:
            selector.register(here, selectors.EVENT_READ, there)
        selector.register(r, selectors.EVENT_READ, None)
        assert selector.select(0) == []
        assert selector.select(0.01) == []
        senders = [threading.Thread(target=there.sendall, args=(b"x" * (n + 1),)) for n, (_, there) in enumerate(pairs)]
        senders.append(threading.Thread(target=os.write, args=(w, b"p")))
        for t in senders:
            t.start()
        got = 0
        while got < 16:
            events = selector.select(30)
            assert events
            for key, _ in events:
                got += len(os.read(key.fd, 100))
        for t in senders:
            t.join()
        for a, b in pairs:
            a.close()
            b.close()
        os.close(r)
        os.close(w)


in_threads(24, multiplex)
print("ok selectors")
