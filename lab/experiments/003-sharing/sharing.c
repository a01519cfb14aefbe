// Threads that write to memory of their own, in lines that others use too.
//
//   sharing pattern=array|struct|queue n=THREADS count=TOTAL body=plain|mixed|atomic layout=packed|local|pad64|pad128|own
//           [live=1] [meet=1]
//
// The work is divided among the threads. array: each writes one element of a shared array. struct: each updates three fields
// of its structure; layout=own: each allocates it itself. queue: one thread appends and one removes (n=1: one does both);
// live=1: it starts empty. meet=100: the threads do their work in a hundred parts and begin each together, so that they
// take turns also where they do not run at the same time.
#include "lab.h"

enum { MOST = 64 };
struct span {
    uint64_t begin, end;
} __attribute__((aligned(128)));

static struct span spans[MOST];
static long threads, each, meetings;
static size_t stride;
static char *block, body;
static int local, own, live;
static pthread_barrier_t start_line;

struct item {
    struct item *_Atomic next;
    uint64_t value;
};
static struct item *_Atomic *head, *_Atomic *tail;
static char *items;
static size_t item_size;
// The reader's alone: beside `items` and `tail` each item taken would cost the writer a line, in the padded queue too.
static struct {
    uint64_t value;
} __attribute__((aligned(128))) taken_sum;

static void pin(long id) {
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    int cpu = -1, count = CPU_COUNT(&allowed);
    for (long left = id % count; left >= 0; left--)
        do cpu++;
        while (!CPU_ISSET(cpu, &allowed));
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static inline void update(volatile uint64_t *word, volatile uint64_t *other, uint64_t by) {
    if (body == 'p') {
        *word = *word + by;
    } else if (body == 'm') {
        // Stores one own word and loads another: the load cannot be answered from the store's buffer.
        uint64_t seen = *other;
        *word = by + (seen & 0);
        *other = seen;
    } else {
        __atomic_fetch_add(word, by, __ATOMIC_RELAXED);
    }
}

static void append(long i) {
    struct item *item = (struct item *)(void *)(items + (size_t)i * item_size);
    item->value = (uint64_t)i;
    atomic_store_explicit(&item->next, NULL, memory_order_relaxed);
    struct item *last = atomic_load_explicit(tail, memory_order_relaxed);
    atomic_store_explicit(&last->next, item, memory_order_release);
    atomic_store_explicit(tail, item, memory_order_relaxed);
}

static int take(void) {
    struct item *first = atomic_load_explicit(head, memory_order_relaxed);
    struct item *next = atomic_load_explicit(&first->next, memory_order_acquire);
    if (next == NULL) return 0;
    taken_sum.value += next->value;
    atomic_store_explicit(head, next, memory_order_relaxed);
    return 1;
}

static void *work(void *argument) {
    long id = (long)(intptr_t)argument;
    pin(id);
    char *mine = block + (size_t)id * stride;
    uint64_t kept[3] = {0};
    if (own) {
        mine = aligned_alloc(128, 128);
        memset(mine, 0, 128);
    }
    pthread_barrier_wait(&start_line);
    spans[id].begin = now_ns();
    for (long part = 0; part < meetings; part++) {
        long from = each * part / meetings, to = each * (part + 1) / meetings;
        if (part > 0) pthread_barrier_wait(&start_line);
        if (is("pattern", "queue")) {
            if (threads == 1) {
                for (long i = from; i < to; i++) {
                    append(i + 1 + (live ? 0 : each));
                    while (!take()) {}
                }
            } else if (id == 0) {
                for (long i = from; i < to; i++) append(i + 1 + (live ? 0 : each));
            } else {
                for (long i = from; i < to; i++)
                    while (!take()) __builtin_ia32_pause();
            }
        } else if (is("pattern", "array")) {
            volatile uint64_t *word = local ? &kept[0] : (volatile uint64_t *)(void *)mine;
            volatile uint64_t *other = local || stride < 16 ? word : word + 1;
            for (long i = from; i < to; i++) update(word, body == 'm' ? other : word, 1);
        } else {
            volatile uint64_t *fields = local ? kept : (volatile uint64_t *)(void *)mine;
            for (long i = from; i < to; i++) {
                update(&fields[0], &fields[1], 1);
                update(&fields[1], &fields[2], 2);
                update(&fields[2], &fields[0], 3);
            }
        }
    }
    if (local) memcpy(mine, kept, is("pattern", "array") ? sizeof kept[0] : sizeof kept);
    spans[id].end = now_ns();
    if (own) memcpy(block + (size_t)id * stride, mine, 24);
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    threads = number("n", 1);
    long count = number("count", 1000000);
    CHECK(threads >= 1 && threads <= MOST, "n is 1 to %d", MOST);
    body = *text("body", "plain");
    local = is("layout", "local");
    own = is("layout", "own");
    live = (int)number("live", 0);
    meetings = number("meet", 1);
    long pad = is("layout", "pad64") ? 64 : is("layout", "pad128") ? 128 : 0;
    int queue = is("pattern", "queue"), array = is("pattern", "array");
    each = queue ? count : count / threads;
    // With the mixed body an element is two words: one is stored and one loaded.
    size_t size = array ? (body == 'm' ? 16 : 8) : 24;
    stride = pad ? (size_t)pad : size;
    block = aligned_alloc(128, 128 * MOST);
    CHECK(block != NULL, "no memory");
    memset(block, 0, 128 * MOST);
    if (queue) {
        head = (struct item *_Atomic *)(void *)block;
        tail = (struct item *_Atomic *)(void *)(block + (pad ? (size_t)pad : 8));
        item_size = pad ? (size_t)pad : sizeof(struct item);
        items = aligned_alloc(128, (size_t)(2 * count + 2) * item_size);
        CHECK(items != NULL, "no memory");
        memset(items, 0, (size_t)(2 * count + 2) * item_size);
        struct item *first = (struct item *)(void *)items;
        *head = *tail = first;
        for (long i = 0; !live && i < count; i++) append(i + 1);
    }
    pthread_t ids[MOST];
    PTHREAD(pthread_barrier_init(&start_line, NULL, (unsigned)threads));
    for (long i = 0; i < threads; i++) PTHREAD(pthread_create(&ids[i], NULL, work, (void *)(intptr_t)i));
    for (long i = 0; i < threads; i++) PTHREAD(pthread_join(ids[i], NULL));
    uint64_t begin = UINT64_MAX, end = 0;
    for (long i = 0; i < threads; i++) {
        if (spans[i].begin < begin) begin = spans[i].begin;
        if (spans[i].end > end) end = spans[i].end;
    }
    if (queue)
        CHECK(taken_sum.value == (uint64_t)count * ((uint64_t)count + 1) / 2, "the items taken are not the first %ld", count);
    else if (body != 'm')
        for (long i = 0; i < threads; i++) {
            uint64_t *word = (uint64_t *)(void *)(block + (size_t)i * stride);
            CHECK(word[0] == (uint64_t)each && (array || (word[1] == 2 * (uint64_t)each && word[2] == 3 * (uint64_t)each)),
                  "thread %ld counted %llu instead of %ld", i, (unsigned long long)word[0], each);
        }
    figure("time", (double)(end - begin) / 1e9);
    return 0;
}
