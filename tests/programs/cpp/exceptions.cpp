// Asserts exceptions in threads: thrown and caught across waits, with the caught-exception stack each thread's own,
// rethrown, nested, carried between threads by exception_ptr, through destructors that wait, uncaught_exceptions counted.
#include "check.hpp"
#include <chrono>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

static std::mutex mutex;

static void wait_somehow(int round) {
  switch (round % 3) {
    case 0: std::this_thread::yield(); break;
    case 1: std::this_thread::sleep_for(50us); break;
    case 2: {
      std::lock_guard lock(mutex);
      std::this_thread::yield();
    }
  }
}

struct Waits {
  int id, expected;
  ~Waits() {
    wait_somehow(id);  // in the middle of unwinding
    CHECK(std::uncaught_exceptions() == expected);
  }
};

static int deep(int id, int depth) {
  Waits guard{id + depth, 1};
  std::string text(50, 'x');
  if (depth == 0) throw std::runtime_error("thread " + std::to_string(id));
  return deep(id, depth - 1) + static_cast<int>(text.size());
}

static void body(int id) {
  for (int round = 0; round < 20; round++) {
    try {
      deep(id, round % 8);
      CHECK(false);
    } catch (const std::runtime_error &e) {
      wait_somehow(id + round);
      CHECK(e.what() == "thread " + std::to_string(id));
      try {
        try {
          wait_somehow(round);
          throw id;
        } catch (int inner) {
          wait_somehow(id);
          CHECK(inner == id);
          throw;  // this thread's current one
        }
      } catch (int again) {
        CHECK(again == id);
      }
      CHECK(e.what() == "thread " + std::to_string(id));
      try {
        std::throw_with_nested(std::logic_error("outer"));
      } catch (const std::exception &outer) {
        wait_somehow(id);
        try {
          std::rethrow_if_nested(outer);
          CHECK(false);
        } catch (const std::runtime_error &inner) {
          CHECK(inner.what() == "thread " + std::to_string(id));
        }
      }
    }
    CHECK(std::uncaught_exceptions() == 0 && !std::current_exception());
  }
}

int main() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 24; i++) threads.emplace_back(body, i);
  for (auto &t : threads) t.join();
  threads.clear();
  body(99);
  std::puts("ok caught");
  std::vector<std::exception_ptr> pointers(20);
  for (int i = 0; i < 20; i++)
    threads.emplace_back([&, i] {
      try {
        deep(i, 3);
      } catch (...) {
        pointers[static_cast<size_t>(i)] = std::current_exception();
      }
    });
  for (auto &t : threads) t.join();
  threads.clear();
  for (int i = 0; i < 20; i++)
    threads.emplace_back([&, i] {  // another thread's, and two threads share each
      try {
        std::rethrow_exception(pointers[static_cast<size_t>((i + 7) % 20 / 2)]);
      } catch (const std::runtime_error &e) {
        wait_somehow(i);
        CHECK(e.what() == "thread " + std::to_string((i + 7) % 20 / 2));
      }
    });
  for (auto &t : threads) t.join();
  std::puts("ok carried");
}
