// Makes a thread, which ends, and prints the signals for which the kernel calls a handler: those that libc blocks while a
// thread ends are none of the program's business.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void *nothing(void *arg) {
    return arg;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    while (fgets(line, sizeof line, status)) {
        if (strncmp(line, "SigCgt:", 7) == 0) {
            printf("%s", line + 8);
        }
    }
    return 0;
}
