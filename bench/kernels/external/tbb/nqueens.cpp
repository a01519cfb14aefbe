#define NO_SETUP
#include "tbb.h"
#include "nqueens.h"

static uint64_t solutions(const board *b, size_t n) {
    if (b->rows == n) return 1;
    uint64_t counts[16] = {0}, sum = 0;
    tbb::task_group group;
    for (size_t column = 0; column < n; column++) {
        if (!is_free(b, (uint8_t)column)) continue;
        uint64_t *result = &counts[column];
        group.run([=] {
            board next = with(b, (uint8_t)column);
            *result = solutions(&next, n);
        });
    }
    group.wait();
    for (size_t column = 0; column < n; column++) sum += counts[column];
    return sum;
}

static uint64_t kernel(size_t size) {
    board empty = {{0}, 0};
    return solutions(&empty, size);
}
