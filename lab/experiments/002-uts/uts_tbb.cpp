// Unbalanced tree search with a TBB task per node: uts_tbb root=CHILDREN seed=SEED threads=COUNT
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <oneapi/tbb.h>
#include <vector>
extern "C" {
#include "tree.h"
}

static long root_children;

static uint64_t search(const state &s, long depth) {
    long children = tree_children(&s, depth, root_children);
    if (children == 0) return 1;
    std::vector<uint64_t> nodes((size_t)children);
    tbb::task_group group;
    for (long i = 0; i < children; i++) {
        state child = tree_hash(s.bytes, (uint32_t)i);
        group.run([&nodes, child, i, depth] { nodes[(size_t)i] = search(child, depth + 1); });
    }
    group.wait();
    uint64_t sum = 1;
    for (uint64_t n : nodes) sum += n;
    return sum;
}

static long number(char **argv, const char *name, long otherwise) {
    for (; *argv; argv++)
        if (!strncmp(*argv, name, strlen(name)) && (*argv)[strlen(name)] == '=') return atol(*argv + strlen(name) + 1);
    return otherwise;
}

int main(int, char **argv) {
    root_children = number(argv, "root", 2000);
    long threads = number(argv, "threads", 1);
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism, (size_t)threads);
    tbb::global_control stack(tbb::global_control::thread_stack_size, 64u << 20);
    auto seed = (uint32_t)number(argv, "seed", 42);
    uint64_t result = 0;
    auto start = std::chrono::steady_clock::now();
    tbb::task_arena arena((int)threads);
    arena.execute([&] { result = search(tree_root(seed), 0); });
    double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    printf("time %.9g\ncheck nodes %lu\n", took, result);
}
