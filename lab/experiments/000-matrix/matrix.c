// The product of two square matrices by three plain loops, stored by rows or by tiles of one page.
//
//   matrix kind=t|p|c n=TASKS k=ORDER layout=rows|tiles memory=malloc|shared|huge thp=on|off|as-is [part=1] [affinity=...]
//
// part=4: of its rows each task computes the first quarter only.
#include "lab.h"
#include <sys/prctl.h>

static long order, chunk, tasks, part;
static double *a, *b, *r;
static int tiled;

static inline size_t in_a(long i, long k) {
    if (!tiled) return (size_t)(i * order + k);
    return (size_t)(((i / 32 * (order / 16) + k / 16) * 32 + i % 32) * 16 + k % 16);
}

static inline size_t in_b(long k, long j) {
    if (!tiled) return (size_t)(k * order + j);
    return (size_t)(((k / 16 * (order / 32) + j / 32) * 16 + k % 16) * 32 + j % 32);
}

static inline size_t in_r(long i, long j) {
    if (!tiled) return (size_t)(i * order + j);
    return (size_t)(((i / 32 * (order / 32) + j / 32) * 32 + i % 32) * 32 + j % 32);
}

static void rows_of(long id, long *from, long *to) {
    if (tasks >= order) {
        *from = id < order ? id : order;
        *to = id < order ? id + 1 : order;
    } else {
        *from = chunk * id;
        *to = id == tasks - 1 ? order : *from + chunk;
    }
}

static void fill(long id) {
    long from, to;
    rows_of(id, &from, &to);
    unsigned seed_a = (unsigned)id, seed_b = (unsigned)(5 * id);
    for (long i = from; i < to; i++)
        for (long k = 0; k < order; k++) a[in_a(i, k)] = 1.0 / ((rand_r(&seed_a) >> 24) + 1);
    for (long k = from; k < to; k++)
        for (long j = 0; j < order; j++) b[in_b(k, j)] = 1.0 / ((rand_r(&seed_b) >> 24) + 1);
}

// Two copies, so that the compiler sees which addresses it deals with. The order of the loops is the experiment.
static inline __attribute__((always_inline)) void multiply_rows(long id) {
    long from, to;
    rows_of(id, &from, &to);
    to = from + (to - from + part - 1) / part;
    for (long i = from; i < to; i++)
        for (long j = 0; j < order; j++) {
            double sum = 0;
            for (long k = 0; k < order; k++) sum += a[in_a(i, k)] * b[in_b(k, j)];
            r[in_r(i, j)] = sum;
        }
}

static void multiply(long id) {
    if (tiled)
        multiply_rows(id);
    else
        multiply_rows(id);
}

static double *matrix(size_t bytes) {
    size_t huge = 2 << 20;
    bytes = (bytes + huge - 1) / huge * huge;
    void *memory;
    if (is("memory", "malloc")) {
        CHECK(posix_memalign(&memory, huge, bytes) == 0, "no memory");
        if (is("thp", "on")) CHECK(madvise(memory, bytes, MADV_HUGEPAGE) == 0, "madvise: %s", strerror(errno));
        return memory;
    }
    int flags = MAP_SHARED | MAP_ANONYMOUS | (is("memory", "huge") ? MAP_HUGETLB : 0);
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(memory != MAP_FAILED, "mmap of %zu bytes (%s): %s", bytes, text("memory", ""), strerror(errno));
    return memory;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    tasks = number("n", 1);
    order = number("k", 256);
    tiled = is("layout", "tiles");
    part = number("part", 1);
    CHECK(order % 32 == 0, "the order must be a multiple of 32");
    chunk = order / tasks;
    if (is("thp", "off")) CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0, "prctl: %s", strerror(errno));
    size_t bytes = (size_t)(order * order) * sizeof(double);
    a = matrix(bytes);
    b = matrix(bytes);
    r = matrix(bytes);
    uint64_t start = now_ns();
    run_tasks(tasks, fill);
    run_tasks(tasks, multiply);
    figure("time", (double)(now_ns() - start) / 1e9);
    // The same sums in the same order, whatever computed them: equal to the last bit.
    uint64_t hash = 0;
    for (long i = 0; i < order; i++)
        for (long j = 0; j < order; j++) {
            uint64_t bits;
            memcpy(&bits, &r[in_r(i, j)], sizeof bits);
            hash = hash * 1099511628211u + bits;
        }
    check_value("product", hash);
    return 0;
}
