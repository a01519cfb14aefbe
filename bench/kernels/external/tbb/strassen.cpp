#include "tbb.h"
#include "strassen.h"

static double *multiply(const double *a, const double *b, size_t n) {
    if (n == PLAIN) return plain(a, b);
    double *products[7];
    tbb::task_group group;
    for (int i = 0; i < 7; i++) {
        double **result = &products[i];
        group.run([=] {
            double *x = factor_a(i, a, n), *y = factor_b(i, b, n);
            *result = multiply(x, y, n / 2);
            free(x), free(y);
        });
    }
    group.wait();
    double *c = combine(products, n);
    for (int i = 0; i < 7; i++) free(products[i]);
    return c;
}

static uint64_t kernel(size_t n) {
    product = multiply(a, b, n);
    return 0;
}
