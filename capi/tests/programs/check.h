/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <heddle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is not so ends the program with its place. */
#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

#define ANSWERS(call, expected) \
    do { \
        int answer_ = (call); \
        if (answer_ != (expected)) { \
            fprintf(stderr, "%s:%d: %s answers %d (%s), not %s: %s\n", __FILE__, __LINE__, #call, answer_, \
                    strerror(answer_), #expected, heddle_last_error()); \
            abort(); \
        } \
    } while (0)

enum { MILLISECOND = 1000 * 1000 };

/* The mode that the test asks for. */
static inline heddle_mode_t asked_mode(void) {
    const char *mode = getenv("HEDDLE_MODE");
    return mode != NULL && strcmp(mode, "kernel") == 0 ? HEDDLE_MODE_KERNEL : HEDDLE_MODE_USER;
}

#endif
