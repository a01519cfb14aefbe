/* Fork-join: two functions, any number of jobs, a loop. */
#include <heddle.h>

#include <stdio.h>

struct fib {
    unsigned n;
    unsigned long long result;
};

static void fib(void *argument) {
    struct fib *f = argument, a, b;
    if (f->n < 2) {
        f->result = f->n;
        return;
    }
    a.n = f->n - 1;
    b.n = f->n - 2;
    heddle_fork_join(fib, &a, fib, &b);
    f->result = a.result + b.result;
}

static const char *words[] = {"warp", "weft", "loom", "shuttle"};
static size_t lengths[4];

static void measure(void *argument) {
    const char **word = argument;
    size_t length = 0;
    while ((*word)[length] != 0) {
        length++;
    }
    lengths[word - words] = length;
}

static void all_words(heddle_scope_t *scope, void *argument) {
    size_t i, *count = argument;
    for (i = 0; i < *count; i++) {
        heddle_scope_spawn(scope, measure, &words[i]);
    }
}

static unsigned squares[100000];

static void fill(size_t begin, size_t end, void *argument) {
    unsigned *to = argument;
    for (; begin < end; begin++) {
        to[begin] = (unsigned)(begin * begin % 1000);
    }
}

int main(void) {
    struct fib f = {27, 0};
    size_t i, count = 4;
    unsigned long long sum = 0;

    fib(&f);
    printf("fib(%u) = %llu\n", f.n, f.result);

    heddle_scope(all_words, &count);
    for (i = 0; i < count; i++) {
        printf("%s has %zu letters\n", words[i], lengths[i]);
    }

    heddle_for(0, 100000, 1, fill, squares);
    for (i = 0; i < 100000; i++) {
        sum += squares[i];
    }
    printf("sum %llu\n", sum);
    return 0;
}
