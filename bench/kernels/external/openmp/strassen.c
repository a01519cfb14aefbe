#include "openmp.h"
#include "strassen.h"

static double *multiply(const double *a, const double *b, size_t n) {
    if (n == PLAIN) return plain(a, b);
    double *products[7];
    for (int i = 0; i < 7; i++) {
#pragma omp task firstprivate(i) shared(products)
        {
            double *x = factor_a(i, a, n), *y = factor_b(i, b, n);
            products[i] = multiply(x, y, n / 2);
            free(x), free(y);
        }
    }
#pragma omp taskwait
    double *c = combine(products, n);
    for (int i = 0; i < 7; i++) free(products[i]);
    return c;
}

static uint64_t kernel(size_t n) {
#pragma omp parallel
#pragma omp single
    product = multiply(a, b, n);
    return 0;
}
