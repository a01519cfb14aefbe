#define NO_SETUP
#include "openmp.h"

static uint64_t skynet(uint64_t number, uint64_t leaves) {
    if (leaves == 1) return number;
    uint64_t sums[10], sum = 0;
    for (uint64_t i = 0; i < 10; i++) {
#pragma omp task firstprivate(i) shared(sums)
        sums[i] = skynet(number + i * (leaves / 10), leaves / 10);
    }
#pragma omp taskwait
    for (int i = 0; i < 10; i++) sum += sums[i];
    return sum;
}

static uint64_t kernel(size_t size) {
    uint64_t result = 0;
#pragma omp parallel
#pragma omp single
    result = skynet(0, size);
    return result;
}
