// A kernel's start with TBB: as many threads as the first argument says.
#pragma once
#include "bench.h"
#include <tbb/global_control.h>
#include <tbb/task_group.h>

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    tbb::global_control workers(tbb::global_control::max_allowed_parallelism, strtoull(argv[1], 0, 10));
    return bench_main(argc, argv);
}
