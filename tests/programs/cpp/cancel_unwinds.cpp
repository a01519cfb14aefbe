// Asserts that cancellation and pthread_exit unwind C++ frames: destructors run, catch (...) sees it and must pass it on,
// thread_local objects are destroyed; while waiting in read, sleep, a condition variable and join.
#include "check.hpp"
#include <atomic>
#include <cxxabi.h>
#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <string>
#include <thread>
#include <unistd.h>

static std::atomic<int> destroyed, seen, locals, entered;
static int fds[2];
static std::mutex mutex;
static std::condition_variable_any condition;

struct Object {
  std::string text = std::string(64, 'o');
  ~Object() {
    if (text == std::string(64, 'o')) destroyed++;
  }
};
struct Local {
  ~Local() { locals++; }
};

static void *idle(void *argument) {
  for (;;) pause();
  return argument;
}

static void blocks(long kind) {
  static thread_local Local local;
  (void)local;
  Object object;
  pthread_t other;
  char byte;
  entered++;
  switch (kind % 5) {
    case 0: CHECK(read(fds[0], &byte, 1) == 1); break;
    case 1: sleep(1000); break;
    case 2: {
      std::unique_lock lock(mutex);
      for (;;) condition.wait(lock);
    }
    case 3:
      pthread_create(&other, nullptr, idle, nullptr);
      pthread_join(other, nullptr);
      break;
    case 4: pthread_exit(PTHREAD_CANCELED);
  }
}

static void *body(void *argument) {
  Object outer;
  try {
    Object middle;
    blocks(reinterpret_cast<long>(argument));
  } catch (const abi::__forced_unwind &) {
    seen++;
    throw;
  }
  return nullptr;
}

int main() {
  constexpr int threads = 20;
  pthread_t ids[threads];
  CHECK(pipe(fds) == 0);
  for (long i = 0; i < threads; i++) CHECK(pthread_create(&ids[i], nullptr, body, reinterpret_cast<void *>(i)) == 0);
  while (entered < threads) usleep(1000);
  usleep(30000);
  for (int i = 0; i < threads; i++)
    if (i % 5 != 4) CHECK(pthread_cancel(ids[i]) == 0);
  for (int i = 0; i < threads; i++) {
    void *result;
    CHECK(pthread_join(ids[i], &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
  }
  CHECK(seen == threads);
  CHECK(destroyed == 3 * threads);
  CHECK(locals == threads);
  CHECK(mutex.try_lock());
  mutex.unlock();
  std::puts("ok unwound");
  std::fflush(stdout);
  _exit(0);  // the idle threads live on
}
