// openmp ROUNDS: OpenMP with more threads than cores, and regions inside regions.
// Prints sums that do not depend on the schedule, so two runs must print the same.
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t mix(uint64_t x) {
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

// Every thread of an oversubscribed team meets the others at barriers; phase order is checked.
static uint64_t oversubscribed(int threads, int phases) {
    uint64_t *slots = calloc((size_t)threads, sizeof *slots), sum = 0;
    int wrong = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        int me = omp_get_thread_num(), team = omp_get_num_threads();
#pragma omp single
        if (team != threads) wrong = 1;
        for (int phase = 0; phase < phases; phase++) {
            slots[me] = (uint64_t)phase + 1;
#pragma omp barrier
            if (slots[(me + 1) % team] != (uint64_t)phase + 1) {
#pragma omp atomic write
                wrong = 1;
            }
#pragma omp barrier
            sum += mix((uint64_t)me * 1000 + (uint64_t)phase);
        }
    }
    free(slots);
    if (wrong) exit(1);
    return sum;
}

static uint64_t nested(int outer, int inner) {
    uint64_t total = 0;
    int teams = 0;
#pragma omp parallel for num_threads(outer) schedule(dynamic, 1) reduction(+ : total)
    for (int i = 0; i < outer * 4; i++) {
        uint64_t part = 0;
#pragma omp parallel num_threads(inner) reduction(+ : part)
        {
            if (omp_get_level() != 2 || omp_get_num_threads() != inner) {
#pragma omp atomic
                teams++;
            }
#pragma omp for schedule(guided)
            for (int j = 0; j < 2000; j++) part += mix((uint64_t)(i * 2000 + j));
        }
        total += part;
    }
    if (teams != 0) exit(2);
    return total;
}

static uint64_t tree(int depth, uint64_t seed) {
    uint64_t left, right;
    if (depth == 0) return mix(seed);
#pragma omp task shared(left) if (depth > 3)
    left = tree(depth - 1, seed * 2);
#pragma omp task shared(right) if (depth > 3)
    right = tree(depth - 1, seed * 2 + 1);
#pragma omp taskwait
    return left + right;
}

static uint64_t locks(int threads, int times) {
    omp_lock_t lock;
    uint64_t counted = 0, critical = 0, ordered = 1;
    omp_init_lock(&lock);
#pragma omp parallel num_threads(threads)
    for (int i = 0; i < times; i++) {
        omp_set_lock(&lock);
        counted++;
        omp_unset_lock(&lock);
#pragma omp critical
        critical += 2;
    }
#pragma omp parallel for ordered num_threads(threads) schedule(static, 1)
    for (int i = 0; i < 500; i++) {
#pragma omp ordered
        ordered = mix(ordered + (uint64_t)i);
    }
    omp_destroy_lock(&lock);
    return counted + critical + ordered;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    omp_set_dynamic(0);
    omp_set_max_active_levels(2);
    for (int round = 0; round < rounds; round++) {
        uint64_t tasks = 0;
        printf("oversubscribed %llu\n", (unsigned long long)oversubscribed(16 + round, 100));
        printf("nested %llu\n", (unsigned long long)nested(4, 8));
#pragma omp parallel num_threads(8)
#pragma omp single
        tasks = tree(12, 1);
        printf("tasks %llu\n", (unsigned long long)tasks);
        printf("locks %llu\n", (unsigned long long)locks(12, 2000));
        fflush(stdout);
    }
    return 0;
}
