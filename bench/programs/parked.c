// Memory that a parked thread costs: THREADS threads wait on one condition variable.
//
//   parked [THREADS] [STACK_KIB]
//
// parked_rss          growth of the resident set per thread (/proc/self/statm)
// parked_page_tables  growth of the page tables per thread (VmPTE), which the resident set leaves out
#include "bench.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_in = PTHREAD_COND_INITIALIZER;
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static size_t threads, checked_in, gone;
static int open_gate;

static void *body(void *argument) {
    (void)argument;
    pthread_mutex_lock(&lock);
    if (++checked_in == threads) pthread_cond_signal(&all_in);
    while (!open_gate) pthread_cond_wait(&let_go, &lock);
    gone++;
    pthread_mutex_unlock(&lock);
    return NULL;
}

static double resident_kib(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long total, resident;
    CHECK(file != NULL && fscanf(file, "%ld %ld", &total, &resident) == 2, "/proc/self/statm");
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static double page_tables_kib(void) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;
    CHECK(file != NULL, "/proc/self/status");
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmPTE: %ld", &kib) == 1) break;
    fclose(file);
    CHECK(kib >= 0, "no VmPTE");
    return (double)kib;
}

int main(int argc, char **argv) {
    threads = (size_t)argument(argc, argv, 1, 100000);
    size_t stack = (size_t)argument(argc, argv, 2, 64) * 1024;
    pthread_t *ids = malloc(threads * sizeof *ids);
    CHECK(ids != NULL && threads > 0, "no memory for %zu ids", threads);
    memset(ids, 1, threads * sizeof *ids); // the array is resident before the first reading
    pthread_attr_t attr;
    small_stack(&attr, stack);

    resident_kib();
    double tables_before = page_tables_kib(), before = resident_kib();
    for (size_t i = 0; i < threads; i++) {
        int error = pthread_create(&ids[i], &attr, body, NULL);
        CHECK(error == 0, "pthread_create of thread %zu: %s", i, strerror(error));
    }
    pthread_mutex_lock(&lock);
    while (checked_in < threads) pthread_cond_wait(&all_in, &lock);
    pthread_mutex_unlock(&lock);
    // The lock was free: every thread had got as far as waiting for the gate.
    usleep(200000);
    double after = resident_kib(), tables_after = page_tables_kib();
    figure("parked_rss", (after - before) / (double)threads, "KiB");
    figure("parked_page_tables", (tables_after - tables_before) / (double)threads, "KiB");

    pthread_mutex_lock(&lock);
    open_gate = 1;
    pthread_cond_broadcast(&let_go);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < threads; i++) PTHREAD(pthread_join(ids[i], NULL));
    CHECK(gone == threads, "%zu of %zu threads came back", gone, threads);
    return 0;
}
