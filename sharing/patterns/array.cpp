// array.c in C++: threads count in elements of one std::array in a namespace. -DMENDED and -DBODY as in array.c.
#include <array>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "body.h"

namespace {
constexpr int THREADS = 4;
std::atomic<int> ready;

#if BODY == 3
using number = std::atomic<long>;
#else
using number = long;
#endif

#if MENDED == 1
struct alignas(128) element { number count{}, seen{}; };
#else
struct element { number count{}, seen{}; };
#endif

void update(element &mine, long i)
{
#if BODY == 1
    *(volatile long *)&mine.count += 1; // update
    (void)i;
#elif BODY == 2
    *(volatile long *)&mine.count = *(volatile long *)&mine.seen + i + 1; // update
#else
    mine.count.fetch_add(1, std::memory_order_relaxed); // update
    (void)i;
#endif
}
}

namespace shared {
alignas(64) std::array<element, THREADS> results;
}

static void worker(int number)
{
    for (ready++; ready < THREADS;)
        std::this_thread::yield();
#if MENDED == 2
    element local;
    for (long i = 0; i < ROUNDS; i++)
        update(local, i);
    shared::results[number].count = (long)local.count;
#else
    for (long i = 0; i < ROUNDS; i++)
        update(shared::results[number], i);
#endif
}

int main()
{
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back(worker, i);
    for (auto &thread : threads)
        thread.join();
    long sum = 0;
    for (auto &result : shared::results)
        sum += result.count;
    std::printf("%ld\n", sum);
    return sum == THREADS * EXPECTED ? 0 : 1;
}
