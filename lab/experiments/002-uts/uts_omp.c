// Unbalanced tree search with an OpenMP task per node: uts_omp root=CHILDREN threads=COUNT [seed=SEED trees=COUNT]
//
// trees: as many trees, one after the other, with this seed and those that follow.
#include "lab.h"
#include "tree.h"

static long root_children;

static uint64_t search(struct state state, long depth) {
    long children = tree_children(&state, depth, root_children);
    uint64_t sum = 1, *nodes = NULL;
    if (children == 0) return 1;
    nodes = malloc((size_t)children * sizeof *nodes);
    for (long i = 0; i < children; i++) {
        struct state child = tree_hash(state.bytes, (uint32_t)i);
#pragma omp task shared(nodes) firstprivate(child, i, depth)
        nodes[i] = search(child, depth + 1);
    }
#pragma omp taskwait
    for (long i = 0; i < children; i++) sum += nodes[i];
    free(nodes);
    return sum;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    root_children = number("root", 2000);
    long threads = number("threads", 1);
    long trees = number("trees", 1);
    uint32_t seed = (uint32_t)number("seed", 42);
    uint64_t result = 0, start = now_ns();
    for (long i = 0; i < trees; i++) {
#pragma omp parallel num_threads(threads)
#pragma omp single
        result += search(tree_root(seed + (uint32_t)i), 0);
    }
    figure("time", (double)(now_ns() - start) / 1e9);
    check_value("nodes", result);
    return 0;
}
