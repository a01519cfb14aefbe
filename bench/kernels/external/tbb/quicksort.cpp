#include "tbb.h"
#include "quicksort.h"

static void sort(uint32_t *v, size_t n) {
    if (sort_few(v, n)) return;
    size_t middle = partition(v, n);
    tbb::task_group group;
    group.run([=] { sort(v, middle); });
    sort(v + middle, n - middle);
    group.wait();
}

static uint64_t kernel(size_t size) {
    sort(numbers, size);
    return 0;
}
