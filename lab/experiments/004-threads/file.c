// One thread writes, one reads, byte by byte: file pairs=COUNT how=regular|pipe|yield [kind=t|c]
//
// regular: a file, no hand-shake. pipe: a pipe, blocking. yield: a pipe that does not block, with a yield when it would.
// kind=c: threads made by clone itself, which call the kernel directly.
#include "lab.h"

static int in, out;
static long pairs;
static int yielding;
static _Atomic long written;
static uint64_t got;

static long call(long number_, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number_), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static void work(long id) {
    char byte = 1;
    int raw = task_kind == 'c';
    for (long i = 0; i < pairs;) {
        long n = id == 0 ? (raw ? call(SYS_write, out, (long)&byte, 1) : write(out, &byte, 1))
                         : (raw ? call(SYS_read, in, (long)&byte, 1) : read(in, &byte, 1));
        if (n == 1) {
            i++;
            if (id == 1) got++;
        } else if (yielding) {
            if (raw) call(SYS_sched_yield, 0, 0, 0); else sched_yield();
        } else if (n == 0) {
            // The regular file's end: the writer has not come so far. The reader stops there.
            if (atomic_load(&written) || is("how", "regular")) {
                if (raw) call(SYS_sched_yield, 0, 0, 0); else sched_yield();
            }
        } else {
            break;
        }
    }
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    pairs = number("pairs", 10000);
    yielding = is("how", "yield");
    int ends[2];
    if (is("how", "regular")) {
        char name[] = "/tmp/heddle-lab-XXXXXX";
        out = mkstemp(name);
        in = open(name, O_RDONLY);
        CHECK(out >= 0 && in >= 0, "%s: %s", name, strerror(errno));
        unlink(name);
    } else {
        CHECK(pipe2(ends, yielding ? O_NONBLOCK : 0) == 0, "pipe");
        in = ends[0];
        out = ends[1];
    }
    uint64_t start = now_ns();
    run_tasks(2, work);
    double took = (double)(now_ns() - start);
    CHECK(got == (uint64_t)pairs, "%llu of %ld bytes arrived", (unsigned long long)got, pairs);
    figure("pair", took / (double)pairs);
    figure("time", took / 1e9);
    return 0;
}
