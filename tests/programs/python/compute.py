"""Asserts that threads which only compute, fighting over the interpreter lock, all get on: each makes progress while the
others run, and the sums are right. With one worker they depend on timed waits and fair waking."""
import sys
import threading
import time
import zlib

sys.setswitchinterval(0.001)


def compute(i):
    total = 0
    for n in range(240000):
        total = (total * 31 + n * i) % 1000003
        if n % 1000 == 0:
            progress[i] += 1
            for other in range(8):
                seen[i][other] |= 0 < progress[other] < 240
    results[i] = total


def alone(i):
    total = 0
    for n in range(240000):
        total = (total * 31 + n * i) % 1000003
    return total


progress, results = [0] * 8, [None] * 8
seen = [[False] * 8 for _ in range(8)]
threads = [threading.Thread(target=compute, args=(i,)) for i in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert results == [alone(i) for i in range(8)]
assert progress == [240] * 8
assert any(seen[i][j] for i in range(8) for j in range(8) if i != j), "they ran one after the other"
print("ok interleaved sums", results)

# A thread that computes must not keep a sleeper from its time.
stop, ticks = threading.Event(), []


def spin():
    while not stop.is_set():
        pass


spinners = [threading.Thread(target=spin) for _ in range(4)]
for t in spinners:
    t.start()
start = time.monotonic()
for _ in range(10):
    time.sleep(0.005)
    ticks.append(time.monotonic())
stop.set()
for t in spinners:
    t.join()
assert ticks[-1] - start < 10, ticks
print("ok sleeper among spinners")

# Code that lets go of the lock while it computes.
data = bytes(range(256)) * 4000
sums = [None] * 16


def compress(i):
    sums[i] = zlib.crc32(zlib.compress(data[i:], 1))


threads = [threading.Thread(target=compress, args=(i,)) for i in range(16)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert sums == [zlib.crc32(zlib.compress(data[i:], 1)) for i in range(16)]
print("ok compute outside the lock")
