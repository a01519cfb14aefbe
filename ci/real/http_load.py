"""http_load.py DIR SECONDS_LIMIT CLIENTS REQUESTS PROTOCOL -- SERVER...

Starts SERVER (a command around http_server.py), fetches the files of DIR from
it over CLIENTS parallel connections, compares every body with the file, ends the server with
SIGINT as a user would, and checks that it ends well. With HTTP/1.1 a connection is kept for all
its requests, with HTTP/1.0 each request is a new one (and a new thread in the server).
Prints nothing but the number of answers; any difference is an error.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time

HEADER = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)


async def client(number, port, protocol, requests, bodies):
    names = sorted(bodies)
    keep = protocol == "HTTP/1.1"
    reader = writer = None
    for turn in range(requests):
        if writer is None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        name = names[(number * 31 + turn) % len(names)]
        writer.write(f"GET /{name} {protocol}\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise ValueError(f"answer {head[:60]!r}")
        body = await reader.readexactly(int(HEADER.search(head).group(1)))
        if body != bodies[name]:
            raise ValueError(f"wrong contents of {name}")
        if not keep:
            if await reader.read(1) != b"":
                raise ValueError("more than the body")
            writer.close()
            writer = None
    if writer is not None:
        writer.close()
    return requests


async def load(port, clients, requests, protocol, bodies, limit):
    work = [client(i, port, protocol, requests, bodies) for i in range(clients)]
    return sum(await asyncio.wait_for(asyncio.gather(*work), limit))


def listening_port(server, deadline):
    line = b""
    os.set_blocking(server.stdout.fileno(), False)
    while b"\n" not in line:
        if server.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the server did not start (status {server.poll()}): {line!r}")
        line += server.stdout.read() or b""
        time.sleep(0.01)
    return int(re.search(rb"port (\d+)", line).group(1))


def main():
    split = sys.argv.index("--")
    directory, limit, clients, requests, protocol = sys.argv[1:split]
    bodies = {}
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), "rb") as file:
            bodies[name] = file.read()
    server = subprocess.Popen(
        sys.argv[split + 1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        port = listening_port(server, time.monotonic() + 15)
        answers = asyncio.run(load(port, int(clients), int(requests), protocol, bodies, float(limit)))
        server.send_signal(signal.SIGINT)
        status = server.wait(10)
        if status != 0:
            sys.exit(f"the server ended with status {status} after SIGINT")
        print(answers)
    finally:
        if server.poll() is None:
            server.kill()


if __name__ == "__main__":
    main()
