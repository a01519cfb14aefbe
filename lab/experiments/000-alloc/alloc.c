// Rings of heap blocks that grow, are walked along, and shrink at random.
//
//   alloc kind=t|p n=TASKS k=ITERATIONS [free=1] [constant=1] [affinity=...]
//
// Each task does k/n iterations (k with constant=1) on its 256 rings. free=1: it frees what is left at its end.
#include "lab.h"

enum { RINGS = 256 };
struct node {
    struct node *next, *previous;
    uint32_t value;
};

struct result {
    uint64_t made, freed, bytes, steps;
} __attribute__((aligned(64)));

static struct result *results;
static long iterations, free_at_end;
static struct node *process_rings[RINGS];

static void work(long id) {
    struct node *own[RINGS] = {0}, **rings = task_kind == 'p' ? process_rings : own;
    static const char operations[8] = "wmfwmfwm";
    struct result r = {0};
    unsigned seed = (unsigned)id;
    for (long i = 0; i < iterations; i++) {
        char operation = operations[rand_r(&seed) % 8];
        struct node **head = &rings[rand_r(&seed) % RINGS];
        unsigned p = 2u << (rand_r(&seed) % 7);
        if (operation == 'm') {
            struct node *block = malloc(64 * p);
            CHECK(block != NULL, "no memory");
            if (*head == NULL) {
                *head = block->next = block->previous = block;
            } else {
                block->next = *head;
                block->previous = (*head)->previous;
                block->previous->next = block;
                (*head)->previous = block;
            }
            r.made++;
            r.bytes += 64 * p;
        } else if (*head != NULL) {
            struct node *at = *head;
            for (unsigned step = p; step > 0; step--) {
                at = at->next;
                if (operation == 'w') at->value = step;
            }
            r.steps += p;
            if (operation == 'w') {
                *head = at;
            } else {
                *head = at->next == at ? NULL : at->next;
                at->previous->next = at->next;
                at->next->previous = at->previous;
                free(at);
                r.freed++;
            }
        }
    }
    for (int ring = 0; free_at_end && ring < RINGS; ring++) {
        struct node *head = rings[ring];
        if (head == NULL) continue;
        head->previous->next = NULL;
        while (head != NULL) {
            struct node *next = head->next;
            free(head);
            head = next;
        }
    }
    results[id] = r;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    long n = number("n", 1), k = number("k", 1 << 16);
    iterations = number("constant", 0) ? k : k / n;
    free_at_end = number("free", 0);
    results = shared_memory((size_t)n * sizeof *results);
    uint64_t start = now_ns();
    run_tasks(n, work);
    figure("time", (double)(now_ns() - start) / 1e9);
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) {
        struct result *r = &results[i];
        CHECK(r->made >= r->freed, "task %ld freed more than it made", i);
        sum = sum * 31 + r->made * 7 + r->freed * 5 + r->bytes * 3 + r->steps;
    }
    check_value("stream", sum);
    return 0;
}
