// Asserts the standard library's threading: thread, async, promise, packaged_task, condition_variable (with time-outs),
// timed and shared mutexes, call_once, and C++20's latch, barrier, semaphores, atomic waiting, jthread with stop tokens.
#include "check.hpp"
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <future>
#include <latch>
#include <mutex>
#include <numeric>
#include <queue>
#include <semaphore>
#include <shared_mutex>
#include <stop_token>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

template <class F> static void in_threads(int count, F body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; i++) threads.emplace_back(body, i);
  for (auto &t : threads) t.join();
}

static long fib(int n) {
  if (n < 2) return n;
  if (n < 10) return fib(n - 1) + fib(n - 2);
  auto left = std::async(std::launch::async, fib, n - 1);
  long right = fib(n - 2);
  return left.get() + right;
}

static void futures() {
  CHECK(fib(15) == 610);
  std::promise<int> promise;
  std::shared_future<int> shared = promise.get_future().share();
  std::atomic<int> sum{0};
  std::thread setter([&] { std::this_thread::sleep_for(10ms); promise.set_value(7); });
  in_threads(10, [&](int) { sum += shared.get(); });
  setter.join();
  CHECK(sum == 70);
  std::packaged_task<int(int)> task([](int n) { return n * 2; });
  auto result = task.get_future();
  CHECK(result.wait_for(10ms) == std::future_status::timeout);
  std::thread(std::move(task), 21).join();
  CHECK(result.get() == 42);
  auto broken = std::async(std::launch::async, []() -> int { throw std::runtime_error("from the thread"); });
  try {
    broken.get();
    CHECK(false);
  } catch (const std::runtime_error &e) {
    CHECK(std::string(e.what()) == "from the thread");
  }
  std::future<void> abandoned = std::promise<void>().get_future();
  try {
    abandoned.get();
    CHECK(false);
  } catch (const std::future_error &e) {
    CHECK(e.code() == std::future_errc::broken_promise);
  }
  std::puts("ok futures");
}

static void conditions() {
  std::mutex mutex;
  std::condition_variable not_empty, turn_changed;
  std::condition_variable_any any;
  std::queue<int> queue;
  std::atomic<long> sum{0};
  in_threads(16, [&](int id) {
    for (int i = 0; i < 300; i++) {
      if (id % 2) {
        std::lock_guard lock(mutex);
        queue.push(id * 1000 + i);
        not_empty.notify_one();
      } else {
        std::unique_lock lock(mutex);
        not_empty.wait(lock, [&] { return !queue.empty(); });
        sum += queue.front();
        queue.pop();
      }
    }
  });
  CHECK(sum == 300 * 1000L * (1 + 3 + 5 + 7 + 9 + 11 + 13 + 15) + 8 * 299 * 150);
  int turn = 0;
  in_threads(6, [&](int id) {
    for (int i = 0; i < 100; i++) {
      std::unique_lock lock(mutex);
      CHECK(turn_changed.wait_for(lock, 30s, [&] { return turn % 6 == id; }));
      turn++;
      turn_changed.notify_all();
    }
  });
  CHECK(turn == 600);
  std::unique_lock lock(mutex);
  auto from = Clock::now();
  CHECK(!not_empty.wait_for(lock, 30ms, [] { return false; }));
  CHECK(Clock::now() - from >= 30ms);
  from = Clock::now();
  CHECK(!any.wait_until(lock, std::chrono::system_clock::now() + 30ms, [] { return false; }));
  CHECK(Clock::now() - from >= 29ms && Clock::now() - from < 10s);
  std::puts("ok condition variables");
}

static void mutexes() {
  std::timed_mutex timed;
  std::recursive_mutex recursive;
  std::shared_mutex shared;
  std::once_flag once;
  long counters[3] = {};
  std::atomic<int> ones{0}, readers{0};
  in_threads(12, [&](int id) {
    for (int i = 0; i < 500; i++) {
      if (timed.try_lock_for(20s)) {
        counters[0]++;
        timed.unlock();
      } else {
        CHECK(false);
      }
      std::lock_guard a(recursive), b(recursive);
      counters[1]++;
      if (id % 3 == 0) {
        std::unique_lock write(shared);
        CHECK(readers == 0);
        counters[2]++;
      } else {
        std::shared_lock read(shared);
        readers++;
        CHECK(counters[2] <= 2000);
        readers--;
      }
      std::call_once(once, [&] { std::this_thread::sleep_for(1ms); ones++; });
      CHECK(ones == 1);
    }
  });
  CHECK(counters[0] == 6000 && counters[1] == 6000 && counters[2] == 2000);
  timed.lock();
  std::thread([&] {
    auto from = Clock::now();
    CHECK(!timed.try_lock_for(30ms));
    CHECK(Clock::now() - from >= 30ms);
  }).join();
  timed.unlock();
  std::mutex left, right;
  in_threads(8, [&](int id) {
    for (int i = 0; i < 200; i++) {
      if (id % 2) std::scoped_lock both(left, right);
      else std::scoped_lock both(right, left);
    }
  });
  std::once_flag again;
  int tries = 0;
  in_threads(5, [&](int) {
    try {
      std::call_once(again, [&] {
        if (++tries < 3) throw 1;
      });
    } catch (int) {
    }
  });
  CHECK(tries == 3);
  std::puts("ok mutexes");
}

static void twenty() {
  std::latch latch(10);
  std::atomic<int> before{0};
  in_threads(10, [&](int) {
    before++;
    latch.arrive_and_wait();
    CHECK(before == 10);
  });
  int phases = 0;
  std::barrier barrier(8, [&]() noexcept { phases++; });
  in_threads(8, [&](int) {
    for (int i = 0; i < 100; i++) {
      barrier.arrive_and_wait();
      CHECK(phases == 2 * i + 1);
      barrier.arrive_and_wait();  // so that nobody is in the next phase while others look
    }
  });
  std::counting_semaphore<3> pool(3);
  std::binary_semaphore signal(0);
  std::atomic<int> inside{0};
  in_threads(12, [&](int) {
    for (int i = 0; i < 100; i++) {
      pool.acquire();
      CHECK(++inside <= 3);
      if (i % 20 == 0) std::this_thread::yield();
      inside--;
      pool.release();
    }
  });
  auto from = Clock::now();
  CHECK(!signal.try_acquire_for(30ms));
  CHECK(Clock::now() - from >= 30ms);
  std::atomic<int> word{0};
  in_threads(2, [&](int id) {
    for (int i = 0; i < 2000; i++) {
      for (int seen; (seen = word.load()) % 2 != id;) word.wait(seen);
      word++;
      word.notify_all();
    }
  });
  CHECK(word == 4000);
  std::puts("ok latch, barrier, semaphores, atomic wait");
}

static void stops() {
  std::atomic<int> stopped{0};
  std::mutex mutex;
  std::condition_variable_any any;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 10; i++)
      threads.emplace_back([&, i](std::stop_token token) {
        if (i % 2) {
          while (!token.stop_requested()) std::this_thread::yield();
        } else {
          std::unique_lock lock(mutex);
          CHECK(!any.wait(lock, token, [] { return false; }));
        }
        stopped++;
      });
    std::this_thread::sleep_for(10ms);
    CHECK(stopped == 0);
  }  // asks them to stop, and joins
  CHECK(stopped == 10);
  std::stop_source source;
  int called = 0;
  std::stop_callback callback(source.get_token(), [&] { called++; });
  std::thread([&] { CHECK(source.request_stop()); }).join();
  CHECK(called == 1);
  std::puts("ok stop tokens");
}

int main() {
  futures();
  conditions();
  mutexes();
  twenty();
  stops();
}
