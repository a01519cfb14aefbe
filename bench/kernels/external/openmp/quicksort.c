#include "openmp.h"
#include "quicksort.h"

static void sort(uint32_t *v, size_t n) {
    if (sort_few(v, n)) return;
    size_t middle = partition(v, n);
#pragma omp task
    sort(v, middle);
    sort(v + middle, n - middle);
#pragma omp taskwait
}

static uint64_t kernel(size_t size) {
#pragma omp parallel
#pragma omp single
    sort(numbers, size);
    return 0;
}
