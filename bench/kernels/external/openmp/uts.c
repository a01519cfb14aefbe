#define NO_SETUP
#include "openmp.h"
#include "uts.h"

static uint64_t count(const node *parent, uint32_t limit) {
    uint32_t n = children(parent, limit);
    if (n == 0) return 1;
    uint64_t counts[n], sum = 1;
    for (uint32_t i = 0; i < n; i++) {
#pragma omp task firstprivate(i) shared(counts)
        {
            node own = child(parent, i);
            counts[i] = count(&own, limit);
        }
    }
#pragma omp taskwait
    for (uint32_t i = 0; i < n; i++) sum += counts[i];
    return sum;
}

static uint64_t kernel(size_t size) {
    uint64_t result = 0;
    node top = root();
#pragma omp parallel
#pragma omp single
    result = count(&top, limit_of(size));
    return result;
}
