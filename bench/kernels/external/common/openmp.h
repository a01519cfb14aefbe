// A kernel's start with OpenMP: one thread of the team begins, the others wait for tasks. OMP_NUM_THREADS has the workers.
#pragma once
#include "bench.h"

int main(int argc, char **argv) { return bench_main(argc, argv); }
