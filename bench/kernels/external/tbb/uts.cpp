#define NO_SETUP
#include "tbb.h"
#include "uts.h"

static uint64_t count(const node *parent, uint32_t limit) {
    uint32_t n = children(parent, limit);
    if (n == 0) return 1;
    uint64_t counts[n], sum = 1;
    tbb::task_group group;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *result = &counts[i];
        group.run([=] {
            node own = child(parent, i);
            *result = count(&own, limit);
        });
    }
    group.wait();
    for (uint32_t i = 0; i < n; i++) sum += counts[i];
    return sum;
}

static uint64_t kernel(size_t size) {
    node top = root();
    return count(&top, limit_of(size));
}
