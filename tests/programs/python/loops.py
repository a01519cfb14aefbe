"""Asserts asyncio: a loop per thread, calls into a loop from other threads, executors, subprocesses, stream servers."""
import asyncio
import threading


async def handle(reader, writer):
    while line := await reader.readline():
        writer.write(line[::-1])
        await writer.drain()
    writer.close()


async def talk(port, i):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for n in range(10):
        writer.write(f"{i} {n}\n".encode())
        assert await reader.readuntil(str(i)[0].encode())
    writer.close()
    await writer.wait_closed()


async def main_loop(i):
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(*(talk(port, n) for n in range(10)))
    server.close()
    loop = asyncio.get_running_loop()
    sums = await asyncio.gather(*(loop.run_in_executor(None, sum, range(n)) for n in range(50)))
    assert sums == [n * (n - 1) // 2 for n in range(50)]
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 0.02)
        assert False
    except asyncio.TimeoutError:
        pass
    return i


def run_loop(i):
    results[i] = asyncio.run(main_loop(i))


results = [None] * 6
threads = [threading.Thread(target=run_loop, args=(i,)) for i in range(6)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert results == list(range(6)), results
print("ok a loop per thread")

loop = asyncio.new_event_loop()
runner = threading.Thread(target=loop.run_forever)
runner.start()
total = []


def caller(i):
    for n in range(20):
        total.append(asyncio.run_coroutine_threadsafe(asyncio.sleep(0.001, n), loop).result(30))


threads = [threading.Thread(target=caller, args=(i,)) for i in range(10)]
for t in threads:
    t.start()
for t in threads:
    t.join()
loop.call_soon_threadsafe(loop.stop)
runner.join()
loop.close()
assert sum(total) == 10 * 190
print("ok calls into a loop")


async def commands():
    async def one(i):
        p = await asyncio.create_subprocess_exec("sh", "-c", f"echo {i}; exit {i}", stdout=asyncio.subprocess.PIPE)
        out, _ = await p.communicate()
        assert (out, p.returncode) == (f"{i}\n".encode(), i)

    await asyncio.gather(*(one(i) for i in range(10)))


asyncio.run(commands())
print("ok subprocesses")
