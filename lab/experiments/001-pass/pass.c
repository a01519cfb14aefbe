// Objects handed from thread to thread through slots.
//
//   pass n=THREADS cycles=COUNT v=OBJECTS shift=0|1 mode=allocs|assigns|values|return|ring [wait=yield|spin] [aligned=1]
//
// Thread i fills slot i and empties slot (i + shift) mod n. mode=allocs: objects come from malloc and are freed by who empties
// the slot; assigns: one static object; values: the object itself lies in the slot; return: objects go back to the thread
// that made them; ring: they come from a ring of that thread and are marked free.
#include "lab.h"

struct object {
    void *fields[6];
    _Atomic int in_use; // for mode=ring; outside the 48 bytes that are handed over
    struct object *next;
};

struct slot {
    _Atomic unsigned count;
    void **pointers;
    void *(*values)[6];
    _Atomic(struct object *) returned; // mode=return: what comes back
    struct object *spare, *ring;
    size_t ring_at;
};

static long threads, cycles, objects, shift;
static int spin, ring_size;
static struct slot **slots;
static struct object stock;
static uint64_t *taken;

typedef void *obtain_function(struct slot *);
typedef void release_function(struct slot *, void *);

static void *obtain_heap(struct slot *own) {
    (void)own;
    void **object = malloc(48);
    CHECK(object != NULL, "no memory");
    memset(object, 0, 48);
    return object;
}
static void release_heap(struct slot *from, void *object) {
    (void)from;
    free(object);
}
static void *obtain_static(struct slot *own) {
    (void)own;
    return &stock;
}
static void release_static(struct slot *from, void *object) { (void)from, (void)object; }

static void *obtain_returned(struct slot *own) {
    if (own->spare == NULL) own->spare = atomic_exchange_explicit(&own->returned, NULL, memory_order_acquire);
    struct object *object = own->spare;
    if (object == NULL) return calloc(1, sizeof *object);
    own->spare = object->next;
    memset(object->fields, 0, sizeof object->fields);
    return object;
}
static void release_returned(struct slot *from, void *given) {
    struct object *object = given, *head = atomic_load_explicit(&from->returned, memory_order_relaxed);
    do {
        object->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&from->returned, &head, object, memory_order_release,
                                                    memory_order_relaxed));
}

static void *obtain_ring(struct slot *own) {
    struct object *object = &own->ring[own->ring_at];
    own->ring_at = (own->ring_at + 1) % (size_t)ring_size;
    while (atomic_load_explicit(&object->in_use, memory_order_acquire)) sched_yield();
    memset(object->fields, 0, sizeof object->fields);
    atomic_store_explicit(&object->in_use, 1, memory_order_relaxed);
    return object;
}
static void release_ring(struct slot *from, void *object) {
    (void)from;
    atomic_store_explicit(&((struct object *)object)->in_use, 0, memory_order_release);
}

static inline void pause_a_little(void) {
    if (spin)
        __builtin_ia32_pause();
    else
        sched_yield();
}

static obtain_function *volatile obtain;
static release_function *volatile release_;

static void *work(void *argument) {
    long id = (long)(intptr_t)argument;
    struct slot *fill = slots[id], *clear = slots[(id + shift) % threads];
    int values = is("mode", "values");
    uint64_t count = 0;
    for (long i = 0; i < cycles; i++) {
        while (atomic_load_explicit(&fill->count, memory_order_acquire) != 0) pause_a_little();
        if (values)
            for (long j = 0; j < objects; j++) {
                memset(fill->values[j], 0, 48);
                fill->values[j][0] = (void *)(intptr_t)1;
            }
        else
            for (long j = 0; j < objects; j++) fill->pointers[j] = obtain(fill);
        atomic_store_explicit(&fill->count, (unsigned)objects, memory_order_release);
        while (atomic_load_explicit(&clear->count, memory_order_acquire) == 0) pause_a_little();
        if (values)
            for (long j = 0; j < objects; j++) {
                void *copy[6];
                memcpy(copy, clear->values[j], 48);
                count += (uint64_t)(uintptr_t)copy[0];
            }
        else
            for (long j = 0; j < objects; j++) {
                CHECK(clear->pointers[j] != NULL, "an empty place in a full slot");
                release_(clear, clear->pointers[j]);
                clear->pointers[j] = NULL;
                count++;
            }
        atomic_store_explicit(&clear->count, 0, memory_order_release);
    }
    taken[id * 8] = count;
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    threads = number("n", 2);
    cycles = number("cycles", 1000);
    objects = number("v", 1);
    shift = number("shift", 1);
    spin = is("wait", "spin");
    obtain = is("mode", "assigns") ? obtain_static : is("mode", "return") ? obtain_returned
             : is("mode", "ring") ? obtain_ring : obtain_heap;
    release_ = is("mode", "assigns") ? release_static : is("mode", "return") ? release_returned
               : is("mode", "ring") ? release_ring : release_heap;
    ring_size = (int)(2 * objects);
    slots = calloc((size_t)threads, sizeof *slots);
    taken = calloc((size_t)threads * 8, sizeof *taken);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    CHECK(slots && taken && ids, "no memory");
    size_t size = (sizeof(struct slot) + 127) / 128 * 128;
    for (long i = 0; i < threads; i++) {
        slots[i] = number("aligned", 0) ? aligned_alloc(128, size) : malloc(sizeof(struct slot));
        CHECK(slots[i] != NULL, "no memory");
        memset(slots[i], 0, sizeof(struct slot));
        slots[i]->pointers = calloc((size_t)objects, sizeof(void *));
        slots[i]->values = calloc((size_t)objects, 48);
        slots[i]->ring = calloc((size_t)ring_size, sizeof(struct object));
    }
    uint64_t start = now_ns();
    for (long i = 0; i < threads; i++) PTHREAD(pthread_create(&ids[i], NULL, work, (void *)(intptr_t)i));
    for (long i = 0; i < threads; i++) PTHREAD(pthread_join(ids[i], NULL));
    double took = (double)(now_ns() - start);
    uint64_t sum = 0;
    for (long i = 0; i < threads; i++) sum += taken[i * 8];
    CHECK(sum == (uint64_t)(threads * cycles * objects), "%llu objects arrived", (unsigned long long)sum);
    figure("price", took / (double)sum);
    figure("time", took / 1e9);
    return 0;
}
