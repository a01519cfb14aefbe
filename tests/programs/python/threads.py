"""Asserts Python's threading: locks, queues, thread-locals, conditions, events, barriers, semaphores, timers, identities,
exceptions in threads, 500 threads asleep at once."""
import queue
import sys
import threading
import time


def all_of(count, body):
    """Runs body(i) in `count` threads and passes on what goes wrong there."""
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
        assert not t.is_alive()
    if wrong:
        raise wrong[0]


def test_lock():
    lock, rlock, total = threading.Lock(), threading.RLock(), [0, 0]

    def body(i):
        for n in range(300):
            with lock:
                seen = total[0]
                if n % 50 == 0:
                    time.sleep(0)
                total[0] = seen + 1
            with rlock, rlock:
                total[1] += 1

    all_of(50, body)
    assert total == [15000, 15000], total
    assert lock.acquire()
    start = time.monotonic()
    assert not lock.acquire(timeout=0.05)
    assert time.monotonic() - start >= 0.05
    assert not lock.acquire(blocking=False)


def test_queue():
    work, results = queue.Queue(10), queue.SimpleQueue()

    def body(i):
        if i < 20:
            for n in range(200):
                work.put(i * 200 + n)
        else:
            for n in range(200):
                results.put(work.get() ** 2)
                work.task_done()

    all_of(40, body)
    work.join()
    assert sum(results.get() for _ in range(4000)) == sum(n * n for n in range(4000))
    try:
        work.get(timeout=0.02)
        assert False
    except queue.Empty:
        pass


def test_local():
    local, idents = threading.local(), set()

    def body(i):
        local.value = i
        me, native = threading.get_ident(), threading.get_native_id()
        idents.add((me, native))
        for n in range(30):
            time.sleep(0.0005 * (n % 3))
            assert local.value == i
            assert (me, native) == (threading.get_ident(), threading.get_native_id())
        barrier.wait()  # all alive until here, so that ids are unique

    barrier = threading.Barrier(100)
    all_of(100, body)
    assert len({me for me, _ in idents}) == len({native for _, native in idents}) == 100
    assert not hasattr(local, "value")


def test_condition():
    condition, state = threading.Condition(), {"turn": 0}

    def body(i):
        for n in range(100):
            with condition:
                assert condition.wait_for(lambda: state["turn"] % 5 == i, timeout=30)
                state["turn"] += 1
                condition.notify_all()

    all_of(5, body)
    assert state["turn"] == 500
    with condition:
        start = time.monotonic()
        assert not condition.wait(0.05)
        assert time.monotonic() - start >= 0.05


def test_rest():
    event, semaphore, seen, most = threading.Event(), threading.BoundedSemaphore(3), [], [0, 0]

    def body(i):
        assert event.wait(30)
        with semaphore:
            most[0] += 1
            most[1] = max(most)
            time.sleep(0.001)
            most[0] -= 1
        seen.append(i)

    timer = threading.Timer(0.05, event.set)
    timer.start()
    assert not event.wait(0.01)
    all_of(30, body)
    assert sorted(seen) == list(range(30)) and 1 <= most[1] <= 3

    class Wrong(Exception):
        pass

    caught = []
    threading.excepthook = lambda args: caught.append(args.exc_type)

    def raiser():
        raise Wrong

    t = threading.Thread(target=raiser, name="raiser")
    t.start()
    t.join()
    assert caught == [Wrong]


def test_sleepers():
    start = time.monotonic()
    woke = []

    def body(i):
        time.sleep(0.3)
        woke.append(time.monotonic() - start)

    all_of(500, body)
    assert len(woke) == 500 and min(woke) >= 0.3
    assert max(woke) < 10, max(woke)


def test_small_stacks():
    threading.stack_size(256 * 1024)
    all_of(200, lambda i: sum(range(i)))
    threading.stack_size(0)


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print("ok", name)
        sys.stdout.flush()
