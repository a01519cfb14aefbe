// An exception that leaves what Heddle called ends the process by std::terminate, before anything is unwound.
#include "check.h"

#include <atomic>
#include <exception>
#include <stdexcept>

struct Unwound {
    ~Unwound() { std::puts("unwound"); }
};

static void throws() {
    Unwound unwound;
    heddle_sleep(1000);
    throw std::runtime_error("left");
}

static void *in_thread(void *) {
    throws();
    return nullptr;
}

static void job(void *) { throws(); }
static void body(size_t, size_t, void *) { throws(); }
static void scope(heddle_scope_t *s, void *) { heddle_scope_spawn(s, job, nullptr); }

static void terminated() {
    // Several threads may be here at once; the first one speaks and ends the process.
    static std::atomic_flag spoken = ATOMIC_FLAG_INIT;
    while (spoken.test_and_set()) {
        heddle_sleep(1000000);
    }
    try {
        std::rethrow_exception(std::current_exception());
    } catch (const std::exception &e) {
        std::printf("terminated: %s\n", e.what());
    }
    std::fflush(stdout);
    std::_Exit(3);
}

int main(int, char **argv) {
    ANSWERS(heddle_start(nullptr), 0);
    std::set_terminate(terminated);
    heddle_once_t once = HEDDLE_ONCE_INIT;
    heddle_thread_t thread;
    heddle_fiber_t fiber = HEDDLE_FIBER_INIT;
    switch (argv[1][0]) {
    case 't':
        ANSWERS(heddle_thread_create(&thread, nullptr, in_thread, nullptr), 0);
        heddle_thread_join(thread, nullptr);
        break;
    case 'l': // light: a fiber
        ANSWERS(heddle_fiber_create(&fiber, nullptr, in_thread, nullptr), 0);
        heddle_fiber_join(fiber, nullptr);
        break;
    case 'j':
        try {
            heddle_fork_join(job, nullptr, job, nullptr);
        } catch (...) {
            std::puts("caught");
        }
        break;
    case 's':
        heddle_scope(scope, nullptr);
        break;
    case 'f':
        heddle_for(0, 10, 1, body, nullptr);
        break;
    case 'o':
        heddle_once(&once, job, nullptr);
        break;
    }
    std::puts("went on");
    return 0;
}
