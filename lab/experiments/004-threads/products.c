// Threads that each multiply small private matrices: products kind=t|c n=THREADS times=COUNT
#include "lab.h"

enum { ORDER = 100 };
struct matrices {
    double a[ORDER][ORDER], b[ORDER][ORDER], c[ORDER][ORDER];
};
static struct matrices *all;
static long times;

static void work(long id) {
    struct matrices *m = &all[id];
    for (int i = 0; i < ORDER; i++)
        for (int j = 0; j < ORDER; j++) m->a[i][j] = i + j, m->b[i][j] = i == j ? 2 : 0;
    for (long t = 0; t < times; t++)
        for (int i = 0; i < ORDER; i++)
            for (int j = 0; j < ORDER; j++) {
                double sum = 0;
                for (int k = 0; k < ORDER; k++) sum += m->a[i][k] * m->b[k][j];
                m->c[i][j] = sum;
            }
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    long n = number("n", 5);
    times = number("times", 20);
    all = shared_memory((size_t)n * sizeof *all);
    memset(all, 0, (size_t)n * sizeof *all);
    uint64_t start = now_ns();
    if (is("kind", "c")) {
        run_tasks(n, work);
    } else {
        task_kind = 't';
        run_tasks(n, work);
    }
    figure("time", (double)(now_ns() - start) / 1e9);
    for (long i = 0; i < n; i++)
        for (int row = 0; row < ORDER; row++)
            for (int j = 0; j < ORDER; j++)
                CHECK(all[i].c[row][j] == 2.0 * (row + j), "product of thread %ld is wrong", i);
    return 0;
}
