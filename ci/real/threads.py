"""threads.py SCALE: Python threads in every way the standard library offers; prints one line per part.

The output depends on SCALE only, so a run under Heddle must print what a run on NPTL prints.
"""

import concurrent.futures
import hashlib
import os
import queue
import random
import subprocess
import sys
import threading
import time


def pipeline(scale):
    """Producers, two stages of workers and a collector, joined by bounded queues."""
    first, second = queue.Queue(16), queue.Queue(16)
    count, total = 8, 0

    def produce(number):
        for i in range(200 * scale):
            first.put(number * 1_000_000 + i)

    def work():
        while (item := first.get()) is not None:
            second.put(item ^ 0x5555)

    producers = [threading.Thread(target=produce, args=(n,)) for n in range(count)]
    workers = [threading.Thread(target=work) for _ in range(count)]
    for thread in producers + workers:
        thread.start()
    for _ in range(count * 200 * scale):
        total += second.get(timeout=60)
    for thread in producers:
        thread.join()
    for _ in workers:
        first.put(None)
    for thread in workers:
        thread.join()
    assert first.empty() and second.empty()
    return total


def locals_stay(scale):
    """Each thread keeps its own threading.local and its own ident across switches."""
    own, errors = threading.local(), []

    def body(number):
        own.value, ident, native = number, threading.get_ident(), threading.get_native_id()
        for _ in range(20):
            time.sleep(0.001)
            if (own.value, threading.get_ident(), threading.get_native_id()) != (number, ident, native):
                errors.append(number)

    threads = [threading.Thread(target=body, args=(n,)) for n in range(100 * scale)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(threads), errors


def meetings(scale):
    """Barriers, conditions, events, semaphores with timeouts, and re-entrant locks."""
    parties, rounds = 12, 20 * scale
    barrier, rlock, limit = threading.Barrier(parties), threading.RLock(), threading.BoundedSemaphore(3)
    inside = peak = visits = 0
    guard = threading.Lock()

    def body():
        nonlocal inside, peak, visits
        for _ in range(rounds):
            barrier.wait(60)
            with limit:
                with guard:
                    inside += 1
                    peak = max(peak, inside)
                with rlock, rlock:
                    visits += 1
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=body) for _ in range(parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    event = threading.Event()
    start = time.monotonic()
    assert not event.wait(0.05) and time.monotonic() - start >= 0.049
    timer = threading.Timer(0.02, event.set)
    timer.start()
    assert event.wait(30)
    timer.join()
    with_timeout = queue.Queue()
    try:
        with_timeout.get(timeout=0.03)
        raise AssertionError("got something out of nothing")
    except queue.Empty:
        pass
    return visits, peak <= 3, inside


def pool(scale):
    """An executor hashing (the interpreter lock is released in there) and raising."""

    def digest(number):
        return hashlib.sha256(bytes([number % 256]) * 50_000).hexdigest()

    def fail(number):
        raise ValueError(number)

    with concurrent.futures.ThreadPoolExecutor(16) as executor:
        digests = list(executor.map(digest, range(100 * scale)))
        failures = [executor.submit(fail, n) for n in range(20)]
        caught = sorted(f.exception().args[0] for f in concurrent.futures.as_completed(failures))
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16], sum(caught)


def pipes_and_children(scale):
    """Threads that talk through pipes, and threads that run programs."""
    results = [None] * (8 * scale)

    def through_pipe(number):
        reader, writer = os.pipe()
        echo = threading.Thread(target=lambda: (time.sleep(0.002), os.write(writer, b"%d" % number)))
        echo.start()
        got = int(os.read(reader, 64))
        echo.join()
        os.close(reader)
        os.close(writer)
        done = subprocess.run(["/bin/echo", str(got * 2)], capture_output=True, text=True, timeout=60, check=True)
        results[number] = int(done.stdout)

    threads = [threading.Thread(target=through_pipe, args=(n,)) for n in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(results)


def churn(scale):
    """Many short threads, a few at a time."""
    done = 0
    for _ in range(30 * scale):
        threads = [threading.Thread(target=random.random) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
            done += not thread.is_alive()
    return done


def main():
    scale = int(sys.argv[1])
    for part in (pipeline, locals_stay, meetings, pool, pipes_and_children, churn):
        print(part.__name__, part(scale), flush=True)
    print("threads left", threading.active_count())


if __name__ == "__main__":
    main()
