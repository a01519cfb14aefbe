// Two tasks on one CPU take turns and touch pages in between: what a switch costs, and what is left of the TLB after it.
//
//   turns kind=t|p|alone turns=COUNT pages=COUNT [flush=1]
//
// kind=alone: one task, no turns, the same touching. flush=1 with kind=alone: the rights of many pages change before each
// round, which empties the TLB: the control that shows that the touching notices.
#include "lab.h"

static long turns, pages;
static int (*pipes)[2];
static volatile char *touched;
static uint64_t *sums;

static void touch(long id) {
    uint64_t sum = 0;
    // A line of its own in each page, so that the lines do not fall into the same set of the cache.
    for (long i = 0; i < pages; i++) sum += (unsigned char)touched[i * 4096 + i * 64 % 4096];
    sums[id] += sum;
}

static void work(long id) {
    char token = 0;
    for (long i = 0; i < turns; i++) {
        if (id == 0) {
            touch(0);
            CHECK(write(pipes[0][1], &token, 1) == 1 && read(pipes[1][0], &token, 1) == 1, "pipe");
        } else {
            CHECK(read(pipes[0][0], &token, 1) == 1, "pipe");
            touch(1);
            CHECK(write(pipes[1][1], &token, 1) == 1, "pipe");
        }
    }
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    turns = number("turns", 1000);
    pages = number("pages", 0);
    pipes = calloc(2, sizeof *pipes);
    sums = shared_memory(4096);
    touched = shared_memory((size_t)(pages ? pages : 1) * 4096);
    for (long i = 0; i < pages; i++) touched[i * 4096 + i * 64 % 4096] = 1;
    CHECK(pipes && pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0, "pipe: %s", strerror(errno));
    cpu_set_t first;
    sched_getaffinity(0, sizeof first, &first);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &first)) cpu++;
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
    sched_setaffinity(0, sizeof first, &first);
    uint64_t start = now_ns();
    if (is("kind", "alone")) {
        char *other = mmap(NULL, 128 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(other != MAP_FAILED, "mmap");
        memset(other, 1, 128 * 4096);
        uint64_t touching = 0;
        for (long i = 0; i < 2 * turns; i++) {
            if (number("flush", 0)) {
                mprotect(other, 128 * 4096, i % 2 ? PROT_READ | PROT_WRITE : PROT_READ);
            }
            uint64_t before = now_ns();
            touch(0);
            touching += now_ns() - before;
        }
        figure("turn", (double)touching / (double)(2 * turns));
    } else {
        run_tasks(2, work);
        figure("turn", (double)(now_ns() - start) / (double)(2 * turns));
    }
    CHECK(sums[0] + sums[1] == (uint64_t)(2 * turns * pages), "a page was not touched");
    return 0;
}
