// structures.c in C++: main makes one array of objects with new, and each thread uses one of them. -DMENDED and -DBODY as
// in structures.c.
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "body.h"

constexpr int THREADS = 4;
static std::atomic<int> ready;

#if MENDED == 1
class alignas(128) Work {
#else
class Work {
#endif
public:
    void step(long i)
    {
#if BODY == 1
        *(volatile long *)&done += 1; // done
#elif BODY == 2
        *(volatile long *)&done = *(volatile long *)&seen + i + 1; // done
#else
        done.fetch_add(1, std::memory_order_relaxed); // done
#endif
        *(volatile int *)&last = (int)i; // last
    }
    long result() const { return done; }

private:
#if BODY == 3
    std::atomic<long> done{0};
#else
    long done = 0;
#endif
    [[maybe_unused]] long seen = 0;
    int last = 0;
};

static void worker(Work *mine, long *result)
{
#if MENDED == 2
    std::unique_ptr<Work> own(new Work);
    mine = own.get();
#endif
    for (ready++; ready < THREADS;)
        std::this_thread::yield();
    for (long i = 0; i < ROUNDS; i++)
        mine->step(i);
    *result = mine->result();
}

int main()
{
    std::unique_ptr<Work[]> work(new Work[THREADS]); // block
    long results[THREADS] = {}, sum = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back(worker, &work[i], &results[i]);
    for (auto &thread : threads)
        thread.join();
    for (long result : results)
        sum += result;
    std::printf("%ld\n", sum);
    return sum == THREADS * EXPECTED ? 0 : 1;
}
