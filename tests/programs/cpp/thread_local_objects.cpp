// Asserts thread_local objects: constructed on first use in each thread, destroyed once at its end in reverse order,
// theirs alone in between, whatever the thread waits for; the main thread's too, and those of detached threads.
#include "check.hpp"
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

static std::atomic<int> constructed, destroyed, order_errors;
struct Tracked {
  int number, value = 0;
  std::string text;
  explicit Tracked(int n) : number(n), text(100, static_cast<char>('a' + n)) { constructed++; }
  ~Tracked() {
    if (text != std::string(100, static_cast<char>('a' + number))) order_errors++;
    destroyed++;
    last -= number == last - 1 ? 1 : 100;
    if (number == 0 && last != 0) order_errors++;
  }
  static thread_local int last;  // trivially destroyed: still there
};
thread_local int Tracked::last = 3;

static thread_local std::unique_ptr<int> owned;

static Tracked &object(int n) {
  static thread_local Tracked first(0);
  if (n == 0) return first;
  static thread_local Tracked second(1);
  if (n == 1) return second;
  static thread_local Tracked third(2);
  return third;
}

static std::mutex mutex;

static void body(int id) {
  for (int n = 0; n < 3; n++) object(n).value = id * 10 + n;
  Tracked *addresses[] = {&object(0), &object(1), &object(2)};
  owned = std::make_unique<int>(id);
  for (int round = 0; round < 30; round++) {
    switch (round % 3) {
      case 0: std::this_thread::yield(); break;
      case 1: std::this_thread::sleep_for(100us); break;
      case 2: {
        std::lock_guard lock(mutex);
        std::this_thread::yield();
      }
    }
    for (int n = 0; n < 3; n++) CHECK(&object(n) == addresses[n] && object(n).value == id * 10 + n);
    CHECK(*owned == id);
  }
}

struct AtEnd {
  ~AtEnd() { std::puts("ok main's object"); }
};

int main() {
  static thread_local AtEnd at_end;
  for (int round = 0; round < 5; round++) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 40; i++) threads.emplace_back(body, i);
    for (auto &t : threads) t.join();
    CHECK(constructed == 120 * (round + 1));
    CHECK(destroyed == 120 * (round + 1));  // before join returns
  }
  CHECK(order_errors == 0);
  std::puts("ok threads");
  std::atomic<int> started{0};
  for (int i = 0; i < 20; i++) std::thread([&started] { object(2).value = 1; started++; }).detach();
  while (started < 20 || destroyed < 660) std::this_thread::sleep_for(1ms);
  CHECK(destroyed == 660);
  std::puts("ok detached threads");
}
