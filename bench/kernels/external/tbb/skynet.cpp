#define NO_SETUP
#include "tbb.h"

static uint64_t skynet(uint64_t number, uint64_t leaves) {
    if (leaves == 1) return number;
    uint64_t sums[10], sum = 0;
    tbb::task_group group;
    for (uint64_t i = 0; i < 10; i++) {
        uint64_t *result = &sums[i];
        group.run([=] { *result = skynet(number + i * (leaves / 10), leaves / 10); });
    }
    group.wait();
    for (int i = 0; i < 10; i++) sum += sums[i];
    return sum;
}

static uint64_t kernel(size_t size) { return skynet(0, size); }
