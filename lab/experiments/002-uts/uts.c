// Unbalanced tree search with a thread per node, or as a plain recursion.
//
//   uts mode=threads|plain root=CHILDREN [stack=KIB] [warm=1] [detach=1]
//
// warm=1: the same search once before the clock runs, so that stacks are there and touched. detach=1: a thread's stack is
// freed when it ends, not when it is joined (counters and a semaphore take the place of join).
#include "lab.h"
#include "tree.h"
#include <semaphore.h>

static pthread_attr_t attributes;
static long root_children;
static int detached;

struct node {
    struct state state;
    long depth;
    uint64_t nodes;
    sem_t *done;
};

static void *search(void *argument) {
    struct node *self = argument;
    long children = tree_children(&self->state, self->depth, root_children);
    uint64_t sum = 1;
    if (children > 0) {
        struct node *nodes = malloc((size_t)children * sizeof *nodes);
        pthread_t *ids = malloc((size_t)children * sizeof *ids);
        sem_t done;
        sem_init(&done, 0, 0);
        CHECK(nodes && ids, "no memory");
        for (long i = 0; i < children; i++) {
            nodes[i] = (struct node){tree_hash(self->state.bytes, (uint32_t)i), self->depth + 1, 0,
                                     detached ? &done : NULL};
            PTHREAD(pthread_create(&ids[i], &attributes, search, &nodes[i]));
        }
        for (long i = 0; i < children; i++) {
            if (detached)
                while (sem_wait(&done) != 0) {}
            else
                PTHREAD(pthread_join(ids[i], NULL));
        }
        for (long i = 0; i < children; i++) sum += nodes[i].nodes;
        free(nodes);
        free(ids);
    }
    self->nodes = sum;
    if (self->done) sem_post(self->done);
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    lab_arguments = argv;
    root_children = number("root", 2000);
    detached = (int)number("detach", 0);
    PTHREAD(pthread_attr_init(&attributes));
    PTHREAD(pthread_attr_setstacksize(&attributes, (size_t)number("stack", 64) * 1024));
    if (detached) PTHREAD(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED));
    struct node root = {tree_root((uint32_t)number("seed", 42)), 0, 0, NULL};
    if (number("warm", 0)) search(&root);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    uint64_t start = now_ns();
    if (is("mode", "plain"))
        root.nodes = tree_plain(&root.state, 0, root_children);
    else
        search(&root);
    double took = (double)(now_ns() - start);
    getrusage(RUSAGE_SELF, &after);
    figure("node", took / (double)root.nodes);
    figure("time", took / 1e9);
    figure("faults", (double)(after.ru_minflt - before.ru_minflt) / (double)root.nodes);
    check_value("nodes", root.nodes);
    return 0;
}
