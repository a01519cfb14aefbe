// Tasks that map, touch and unmap memory again and again: what keeping one address space right over several CPUs costs.
//
//   maps kind=t|p n=TASKS rounds=COUNT pages=COUNT
#include "lab.h"

static long rounds, pages;
static uint64_t *done;

static void work(long id) {
    size_t bytes = (size_t)pages * 4096;
    for (long i = 0; i < rounds; i++) {
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
        for (long page = 0; page < pages; page++) memory[page * 4096] = 1;
        munmap(memory, bytes);
        done[id * 8]++;
    }
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    long n = number("n", 2);
    rounds = number("rounds", 1000);
    pages = number("pages", 4);
    done = shared_memory((size_t)n * 64);
    uint64_t start = now_ns();
    run_tasks(n, work);
    figure("round", (double)(now_ns() - start) / (double)rounds);
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) sum += done[i * 8];
    check_value("rounds", sum);
    return 0;
}
