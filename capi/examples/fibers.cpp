// C++: a class that makes fibers out of functions, and exceptions in them: thrown and caught between two waits, or
// kept for who joins.
#include <heddle.h>

#include <cstdio>
#include <exception>
#include <functional>
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

// Joins in its destructor; keeps what its function throws for `get`.
class Fiber {
public:
    explicit Fiber(std::function<int()> f) : function(std::move(f)) {
        heddle_fiber_attr_t attr = HEDDLE_FIBER_ATTR_INIT;
        attr.stack_size = 256 * 1024; // Throwing takes some.
        check(heddle_fiber_create(&fiber, &attr, run, this), "heddle_fiber_create");
        made = true;
    }
    Fiber(const Fiber &) = delete;
    Fiber &operator=(const Fiber &) = delete;
    ~Fiber() { join(); }

    int get() {
        join();
        if (error) {
            std::rethrow_exception(error);
        }
        return result;
    }

private:
    static void *run(void *argument) {
        Fiber *self = static_cast<Fiber *>(argument);
        // Nothing may leave a fiber's first function.
        try {
            self->result = self->function();
        } catch (...) {
            self->error = std::current_exception(); // No wait in here: what is being caught is the thread's.
        }
        return nullptr;
    }

    void join() {
        if (made) {
            heddle_fiber_join(fiber, nullptr);
            made = false;
        }
    }

    std::function<int()> function;
    heddle_fiber_t fiber = HEDDLE_FIBER_INIT;
    std::exception_ptr error;
    int result = 0;
    bool made = false;
};

static int deep(int depth, int number) {
    if (depth == 0) {
        throw std::runtime_error("fiber " + std::to_string(number));
    }
    return deep(depth - 1, number) + 1;
}

static int work(int number) {
    int caught = 0;
    for (int round = 0; round < 5; round++) {
        try {
            deep(5, number);
        } catch (const std::runtime_error &error) {
            caught += error.what() == "fiber " + std::to_string(number);
        }
        heddle_fiber_yield(); // Others throw and catch meanwhile.
    }
    if (number % 2 == 1) {
        throw std::out_of_range("odd");
    }
    return caught;
}

int main() {
    check(heddle_start(nullptr), "heddle_start");
    int caught = 0, odd = 0;
    std::vector<Fiber *> fibers;
    for (int i = 0; i < 100; i++) {
        fibers.push_back(new Fiber([i] { return work(i); }));
    }
    for (Fiber *fiber : fibers) {
        try {
            caught += fiber->get();
        } catch (const std::out_of_range &) {
            odd++;
        }
        delete fiber;
    }
    std::printf("caught %d, odd %d\n", caught, odd);
    return 0;
}
