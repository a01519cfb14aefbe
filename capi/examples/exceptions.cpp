// C++: classes that hold threads and locks, and exceptions that are thrown, pass frames and are caught while the threads
// park and move from worker to worker.
#include <heddle.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

static void check(int error, const char *what) {
    if (error != 0) {
        throw std::system_error(error, std::generic_category(), what);
    }
}

// Fits std::unique_lock.
class Mutex {
public:
    Mutex() = default;
    Mutex(const Mutex &) = delete;
    Mutex &operator=(const Mutex &) = delete;

    void lock() { check(heddle_mutex_lock(&mutex), "lock"); }
    bool try_lock() { return heddle_mutex_trylock(&mutex) == 0; }
    void unlock() { heddle_mutex_unlock(&mutex); }

private:
    heddle_mutex_t mutex = HEDDLE_MUTEX_INIT;
};

// Joins in its destructor; keeps what its function throws for `get`.
class Thread {
public:
    explicit Thread(std::function<int()> f) : function(std::move(f)) {
        check(heddle_thread_create(&thread, nullptr, run, this), "heddle_thread_create");
    }
    Thread(const Thread &) = delete;
    Thread &operator=(const Thread &) = delete;
    ~Thread() { join(); }

    int get() {
        join();
        if (error) {
            std::rethrow_exception(error);
        }
        return result;
    }

private:
    static void *run(void *argument) {
        Thread *self = static_cast<Thread *>(argument);
        // Nothing may leave a thread's first function.
        try {
            self->result = self->function();
        } catch (...) {
            self->error = std::current_exception();
        }
        return nullptr;
    }

    void join() {
        if (thread != HEDDLE_THREAD_NONE) {
            heddle_thread_join(thread, nullptr);
            thread = HEDDLE_THREAD_NONE;
        }
    }

    std::function<int()> function;
    heddle_thread_t thread = HEDDLE_THREAD_NONE;
    std::exception_ptr error;
    int result = 0;
};

static Mutex mutex;
static int alive, unwound;

// Whether this thread, and no other, has thrown something that is not caught yet.
static bool is_unwinding() {
#if __cplusplus >= 201703L
    return std::uncaught_exceptions() > 0;
#else
    return std::uncaught_exception();
#endif
}

// Parks in its destructor, which runs while an exception passes.
class Parks {
public:
    Parks() {
        std::unique_lock<Mutex> lock(mutex);
        alive++;
    }
    Parks(const Parks &) = delete;
    Parks &operator=(const Parks &) = delete;
    ~Parks() {
        heddle_sleep(1000);
        heddle_yield();
        std::unique_lock<Mutex> lock(mutex);
        alive--;
        unwound += is_unwinding();
    }
};

static int deep(int depth, int number) {
    Parks parks;
    if (depth == 0) {
        heddle_yield();
        throw std::runtime_error("thread " + std::to_string(number));
    }
    return deep(depth - 1, number) + 1;
}

static int work(int number) {
    int caught = 0;
    for (int round = 0; round < 5; round++) {
        try {
            deep(5, number);
        } catch (const std::runtime_error &first) {
            heddle_sleep(1000); // Others throw and catch meanwhile.
            try {
                deep(2, number + 100);
            } catch (const std::runtime_error &second) {
                heddle_yield();
                caught += second.what() == "thread " + std::to_string(number + 100);
            }
            caught += first.what() == "thread " + std::to_string(number);
        }
    }
    if (number % 2 == 1) {
        throw std::out_of_range("odd");
    }
    return caught;
}

int main() {
    check(heddle_start(nullptr), "heddle_start");
    int caught = 0, odd = 0;
    {
        std::vector<Thread *> threads;
        for (int i = 0; i < 8; i++) {
            threads.push_back(new Thread([i] { return work(i); }));
        }
        for (Thread *thread : threads) {
            try {
                caught += thread->get();
            } catch (const std::out_of_range &) {
                odd++;
            }
            delete thread;
        }
    }
    std::printf("caught %d, odd %d, unwound %d, alive %d\n", caught, odd, unwound, alive);
    try {
        std::unique_lock<Mutex> lock(mutex);
        std::unique_lock<Mutex> again(mutex);
    } catch (const std::system_error &error) {
        std::printf("refused: %s\n", error.code() == std::errc::resource_deadlock_would_occur ? "deadlock" : "other");
    }
    return 0;
}
