"""Asserts ThreadPoolExecutor and ProcessPoolExecutor: map in order, futures, exceptions, time-outs, shutdown."""
import concurrent.futures as cf
import math
import time


def square(n):
    return n * n


def main():
    with cf.ThreadPoolExecutor(32) as pool:
        assert list(pool.map(square, range(2000))) == [n * n for n in range(2000)]
        futures = {pool.submit(math.factorial, n): n for n in range(200)}
        for f in cf.as_completed(futures):
            assert f.result() == math.factorial(futures[f])
        bad = pool.submit(lambda: 1 // 0)
        assert isinstance(bad.exception(), ZeroDivisionError)
        slow = pool.submit(time.sleep, 0.2)
        try:
            slow.result(timeout=0.02)
            assert False
        except cf.TimeoutError:
            pass
        done, waiting = cf.wait([slow, bad])
        assert len(done) == 2 and not waiting
    print("ok threads")
    with cf.ProcessPoolExecutor(3) as pool:
        assert list(pool.map(square, range(200), chunksize=10)) == [n * n for n in range(200)]
        assert pool.submit(math.comb, 50, 25).result() == math.comb(50, 25)
    print("ok processes")


if __name__ == "__main__":
    main()
