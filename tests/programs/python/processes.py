"""Asserts subprocess from many threads (pipes, exit codes, signals, time-outs) and multiprocessing by fork and spawn."""
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import threading


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


def commands(i):
    for n in range(3):
        done = subprocess.run(["sh", "-c", f"cat; exit {i}"], input=f"{i} {n}".encode(), capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (i, f"{i} {n}".encode(), b""), done
    assert subprocess.check_output(f"echo {i} | tr 0-9 a-j", shell=True) == bytes(97 + int(c) for c in str(i)) + b"\n"
    p = subprocess.Popen(["sleep", "100"])
    assert p.poll() is None
    try:
        p.wait(0.05)
        assert False
    except subprocess.TimeoutExpired:
        p.kill()
    assert p.wait() == -signal.SIGKILL


def child(i, connection, q):
    got = connection.recv()
    total = []
    in_threads(4, lambda n: total.append(got * n))
    q.put((i, sum(total)))
    connection.send(os.getpid())
    sys.exit(i)


def multi(method, count):
    context = mp.get_context(method)
    q = context.Queue()
    children = []
    for i in range(count):
        here, there = context.Pipe()
        p = context.Process(target=child, args=(i, there, q))
        p.start()
        here.send(i + 10)
        children.append((p, here))
    got = dict(q.get(timeout=50) for _ in children)
    assert got == {i: (i + 10) * 6 for i in range(count)}, got
    for i, (p, here) in enumerate(children):
        assert here.recv() == p.pid
        p.join()
        assert p.exitcode == i


if __name__ == "__main__":
    in_threads(12, commands)
    print("ok subprocess from threads")
    multi("fork", 6)
    print("ok multiprocessing, fork")
    # One thread at a time: multiprocessing reaps the children of all, and says nothing about who gets the status.
    in_threads(1, lambda i: multi("fork", 3))
    print("ok multiprocessing, fork from a thread")
    multi("spawn", 2)
    print("ok multiprocessing, spawn")
