// The flags register is the same after a system call as before: those of computing, the direction flag and the one that
// the CPU never changes by itself (ID).
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>

static uint64_t flags_after(uint64_t flags, long number) {
    uint64_t after, result = number;
    __asm__ volatile("lea -256(%%rsp), %%rsp\n"
                     "pushfq\n"
                     "push %2\n"
                     "popfq\n"
                     "syscall\n"
                     "pushfq\n"
                     "pop %0\n"
                     "popfq\n"
                     "lea 256(%%rsp), %%rsp\n"
                     : "=&r"(after), "+a"(result)
                     : "r"(flags)
                     : "rcx", "r11", "memory", "cc");
    return after;
}

// Bits 0, 2, 4, 6, 7, 11: carry, parity, adjust, zero, sign, overflow; 10: direction; 21: ID.
static const int BITS[] = {0, 2, 4, 6, 7, 11, 10, 21};

static void *check(void *arg) {
    (void)arg;
    static const long CALLS[] = {SYS_gettid, SYS_sched_yield, SYS_getppid};
    int wrong = 0;
    for (unsigned set = 0; set < 256; set++) {
        uint64_t flags = 0x202;
        for (int i = 0; i < 8; i++) {
            flags |= (uint64_t)(set >> i & 1) << BITS[i];
        }
        for (int i = 0; i < 3; i++) {
            uint64_t after = flags_after(flags, CALLS[i]);
            wrong += after != flags;
        }
    }
    printf("%d wrong\n", wrong);
    return NULL;
}

int main(void) {
    pthread_t thread;
    // Also before the first thread.
    check(NULL);
    pthread_create(&thread, NULL, check, NULL);
    pthread_join(thread, NULL);
    check(NULL);
    return 0;
}
