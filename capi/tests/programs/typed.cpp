// Channels and tasks of types, as a C++ program would wrap them; a task that an exception leaves dies alone.
#include "check.h"

#include <sys/wait.h>

#include <csignal>
#include <stdexcept>
#include <type_traits>

template <typename T>
class Channel {
    static_assert(std::is_trivially_copyable<T>::value, "values are copied byte by byte");
    heddle_channel_t *channel = nullptr;

public:
    explicit Channel(size_t capacity) {
        if (heddle_channel_create(&channel, sizeof(T), capacity) != 0) {
            throw std::bad_alloc();
        }
    }
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;
    ~Channel() { heddle_channel_destroy(channel); }
    bool send(const T &value) { return heddle_channel_send(channel, &value) == 0; }
    bool receive(T &value) { return heddle_channel_receive(channel, &value) == 0; }
    void close() { heddle_channel_close(channel); }
};

struct Point {
    double x, y;
    int weight;
};

static Channel<Point> *points;

static void *produce(void *) {
    for (int i = 1; i <= 1000; i++) {
        CHECK(points->send(Point{i * 1.0, i * 2.0, i}));
    }
    points->close();
    return nullptr;
}

static void weigh(const void *argument, void *result) {
    auto point = static_cast<const Point *>(argument);
    try {
        if (point->weight < 0) {
            throw std::runtime_error("light");
        }
        *static_cast<double *>(result) = (point->x + point->y) * point->weight;
    } catch (const std::runtime_error &) {
        *static_cast<double *>(result) = -1;
    }
}

static void fails(const void *, void *) { throw 1; }

int main() {
    heddle_task_t task = HEDDLE_TASK_NONE;
    heddle_thread_t thread;
    heddle_options_t options = HEDDLE_OPTIONS_INIT;
    options.processes = 2;
    ANSWERS(heddle_start(&options), 0);
    Channel<Point> channel(16);
    points = &channel;
    ANSWERS(heddle_thread_create(&thread, nullptr, produce, nullptr), 0);
    double sum = 0;
    for (Point point; channel.receive(point);) {
        CHECK(point.y == 2 * point.x);
        sum += point.weight;
    }
    ANSWERS(heddle_thread_join(thread, nullptr), 0);
    CHECK(sum == 500500);

    double weight = 0;
    Point point{1, 2, 3};
    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, weigh, &point, sizeof point, sizeof weight), 0);
    ANSWERS(heddle_task_join(task, &weight, nullptr), 0);
    CHECK(weight == 9);
    point.weight = -1;
    ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, weigh, &point, sizeof point, sizeof weight), 0);
    ANSWERS(heddle_task_join(task, &weight, nullptr), 0);
    CHECK(weight == -1);
    if (heddle_task_mode() == HEDDLE_MODE_PROCESS) {
        int status = 0;
        ANSWERS(heddle_task_create(&task, HEDDLE_MODE_DEFAULT, fails, nullptr, 0, 0), 0);
        ANSWERS(heddle_task_join(task, nullptr, &status), EOWNERDEAD);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
    puts("typed");
    return 0;
}
