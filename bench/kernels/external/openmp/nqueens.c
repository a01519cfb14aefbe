#define NO_SETUP
#include "openmp.h"
#include "nqueens.h"

static uint64_t solutions(const board *b, size_t n) {
    if (b->rows == n) return 1;
    uint64_t counts[16] = {0}, sum = 0;
    for (size_t column = 0; column < n; column++) {
        if (!is_free(b, (uint8_t)column)) continue;
#pragma omp task firstprivate(column) shared(counts)
        {
            board next = with(b, (uint8_t)column);
            counts[column] = solutions(&next, n);
        }
    }
#pragma omp taskwait
    for (size_t column = 0; column < n; column++) sum += counts[column];
    return sum;
}

static uint64_t kernel(size_t size) {
    uint64_t result = 0;
    board empty = {{0}, 0};
#pragma omp parallel
#pragma omp single
    result = solutions(&empty, size);
    return result;
}
