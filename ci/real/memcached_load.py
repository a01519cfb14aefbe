"""memcached_load.py PORT CONNECTIONS SECONDS: sets and gets over parallel connections, each value compared with what was
set. Prints the operations per second."""

import asyncio
import sys
import time


async def client(number, port, end):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    operations = 0
    while time.monotonic() < end:
        key = f"key{number}_{operations % 100}".encode()
        value = f"value-{number}-{operations} ".encode() * 5
        writer.write(b"set %s 0 0 %d\r\n%s\r\nget %s\r\n" % (key, len(value), value, key))
        answer = await reader.readuntil(b"END\r\n")
        if answer != b"STORED\r\nVALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, len(value), value):
            raise ValueError(f"wrong answer {answer[:80]!r}")
        operations += 2
    writer.close()
    return operations


async def main():
    port, connections, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    end = time.monotonic() + seconds
    print(round(sum(await asyncio.gather(*[client(i, port, end) for i in range(connections)])) / seconds))


asyncio.run(main())
