// Tasks that grow and shrink arrays of numbers and pass them round a ring of pipes.
//
//   exchange kind=t|p n=TASKS k=ITERATIONS [rebuild=1] [affinity=...]
//
// kind=t: the arrays are heap blocks in one table, and a pipe carries an array's number. kind=p: a task works on a private
// mapping, and an array that is passed on is written to its file in memory. rebuild=1: a heap is built anew three times for
// each addition, as the paper's programs did.
#include "lab.h"

struct vector {
    double *data;
    size_t length, capacity;
} __attribute__((aligned(64)));

struct place {
    uint64_t length;
} __attribute__((aligned(64)));

struct result {
    uint64_t done;
    double added;
} __attribute__((aligned(64)));

static long tasks, iterations, rebuild;
static struct vector *vectors; // of threads
static struct place *places;   // of processes: what lies in the files
static int *files, (*pipes)[2];
static struct result *results;

// The smallest two are replaced by their sum until one is left.
static void sift(double *heap, size_t length, size_t at) {
    double value = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= length) break;
        if (child + 1 < length && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= value) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = value;
}

static void build(double *heap, size_t length) {
    for (size_t i = length / 2; i-- > 0;) sift(heap, length, i);
}

static double total(double *heap, size_t length) {
    build(heap, length);
    while (length > 1) {
        double least = heap[0];
        heap[0] = heap[--length];
        if (rebuild) build(heap, length); else sift(heap, length, 0);
        heap[0] += least;
        if (rebuild) {
            build(heap, length);
            build(heap, length);
        } else {
            sift(heap, length, 0);
        }
    }
    return heap[0];
}

// The array a process works on: a mapping that grows at its end, and at its front loses whole pages.
struct window {
    char *base;
    size_t mapped, first, length; // bytes mapped; first element (in doubles from base); elements
};

static void window_fit(struct window *w, size_t length) {
    size_t page = 4096, need = ((w->first + length) * sizeof(double) + page - 1) / page * page;
    if (need == 0) need = page;
    if (need <= w->mapped) return;
    void *grown = w->base == NULL
                      ? mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                      : mremap(w->base, w->mapped, need, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED, "mapping %zu bytes: %s", need, strerror(errno));
    w->base = grown;
    w->mapped = need;
}

static void window_drop(struct window *w, size_t count) {
    w->first += count;
    w->length -= count;
    size_t pages = w->first * sizeof(double) / 4096;
    if (pages > 0 && pages * 4096 < w->mapped) {
        munmap(w->base, pages * 4096);
        w->base += pages * 4096;
        w->mapped -= pages * 4096;
        w->first -= pages * 512;
    }
}

static void give(struct window *w, int array) {
    size_t bytes = w->length * sizeof(double);
    const char *from = w->base + w->first * sizeof(double);
    for (size_t sent = 0; sent < bytes;) {
        ssize_t n = pwrite(files[array], from + sent, bytes - sent, (off_t)sent);
        CHECK(n > 0, "pwrite: %s", strerror(errno));
        sent += (size_t)n;
    }
    CHECK(ftruncate(files[array], (off_t)bytes) == 0, "ftruncate: %s", strerror(errno));
    places[array].length = w->length;
}

static void take(struct window *w, int array) {
    w->first = 0;
    w->length = places[array].length;
    window_fit(w, w->length);
    size_t bytes = w->length * sizeof(double);
    for (size_t got = 0; got < bytes;) {
        ssize_t n = pread(files[array], w->base + got, bytes - got, (off_t)got);
        CHECK(n > 0, "pread: %s", n < 0 ? strerror(errno) : "too short");
        got += (size_t)n;
    }
}

static int send_number(long id, int32_t value) {
    ssize_t n;
    while ((n = write(pipes[id][1], &value, sizeof value)) < 0 && errno == EINTR) {}
    return n == sizeof value;
}

static int32_t receive_number(long id) {
    int32_t value;
    ssize_t n;
    while ((n = read(pipes[(id + tasks - 1) % tasks][0], &value, sizeof value)) < 0 && errno == EINTR) {}
    return n == sizeof value ? value : -1;
}

static void work(long id) {
    static const char operations[8] = "esxesxes";
    struct result r = {0};
    struct window w = {0};
    int array = (int)id, process = task_kind == 'p';
    unsigned seed = (unsigned)id;
    char last = 0;
    long i = 0;
    for (; i < iterations; i++) {
        unsigned random = (unsigned)rand_r(&seed);
        size_t n = random % 1024;
        struct vector *v = &vectors[array];
        last = operations[random % 8];
        if (last == 'e') {
            unsigned local = random;
            size_t length = process ? w.length : v->length;
            double *data;
            if (process) {
                window_fit(&w, length + n);
                data = (double *)(void *)w.base + w.first;
                w.length += n;
            } else {
                if (length + n > v->capacity) {
                    v->capacity = length + n;
                    v->data = realloc(v->data, v->capacity * sizeof(double));
                    CHECK(v->data != NULL || v->capacity == 0, "no memory");
                }
                data = v->data;
                v->length += n;
            }
            for (size_t j = 0; j < n; j++) r.added += data[length + j] = 1.0 / ((rand_r(&local) >> 24) + 1);
        } else if (last == 's') {
            size_t length = process ? w.length : v->length, m = n < length ? n : length;
            if (m == 0) continue;
            double *data = process ? (double *)(void *)w.base + w.first : v->data;
            double sum = total(data, m);
            // The sum goes to the end, the m elements leave the front: with m > 0 there is room.
            if (process) {
                window_drop(&w, m - 1);
                double *moved = (double *)(void *)w.base + w.first;
                memmove(moved, moved + 1, (w.length - 1) * sizeof(double));
                moved[w.length - 1] = sum;
            } else {
                memmove(data, data + m, (length - m) * sizeof(double));
                data[length - m] = sum;
                v->length = length - m + 1;
            }
        } else {
            if (process) give(&w, array);
            if (!send_number(id, array)) break;
            int next = receive_number(id);
            if (next < 0) {
                array = -1;
                break;
            }
            array = next;
            if (process) take(&w, array);
        }
    }
    r.done = (uint64_t)i;
    send_number(id, -1);
    if (process && array >= 0 && last != 'x') give(&w, array);
    if (process) {
        close(pipes[id][1]);
        close(pipes[(id + tasks - 1) % tasks][0]);
    }
    results[id] = r;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    tasks = number("n", 1);
    long k = number("k", 1 << 12);
    iterations = k / tasks;
    rebuild = number("rebuild", 0);
    signal(SIGPIPE, SIG_IGN);
    results = shared_memory((size_t)tasks * sizeof *results);
    places = shared_memory((size_t)tasks * sizeof *places);
    vectors = aligned_alloc(64, (size_t)tasks * sizeof *vectors);
    pipes = calloc((size_t)tasks, sizeof *pipes);
    files = calloc((size_t)tasks, sizeof *files);
    CHECK(vectors && pipes && files, "no memory");
    memset(vectors, 0, (size_t)tasks * sizeof *vectors);
    uint64_t start = now_ns();
    for (long i = 0; i < tasks; i++) {
        CHECK(pipe(pipes[i]) == 0, "pipe %ld: %s", i, strerror(errno));
        if (is("kind", "p")) {
            files[i] = memfd_create("array", 0);
            CHECK(files[i] >= 0, "file %ld: %s", i, strerror(errno));
        }
    }
    run_tasks(tasks, work);
    figure("time", (double)(now_ns() - start) / 1e9);
    // What was put in is still there, but for rounding: in the vectors, or in the files.
    double added = 0, kept = 0;
    uint64_t done = 0;
    for (long i = 0; i < tasks; i++) {
        added += results[i].added;
        done += results[i].done;
        if (is("kind", "p")) {
            double *data = malloc(places[i].length * sizeof(double) + 8);
            CHECK(data && pread(files[i], data, places[i].length * sizeof(double), 0) >= 0, "reading back");
            for (uint64_t j = 0; j < places[i].length; j++) kept += data[j];
            free(data);
        } else {
            for (size_t j = 0; j < vectors[i].length; j++) kept += vectors[i].data[j];
        }
    }
    double gap = added - kept;
    CHECK(gap > -1e-6 * added - 1e-9 && gap < 1e-6 * added + 1e-9, "%f was added, %f is there", added, kept);
    figure("done", (double)done);
    figure("asked", (double)(iterations * tasks));
    return 0;
}
