// The board of src/nqueens/mod.rs.
#pragma once
#include <stdint.h>

typedef struct {
    uint8_t columns[16];
    size_t rows;
} board;

static inline int is_free(const board *b, uint8_t column) {
    for (size_t row = 0; row < b->rows; row++) {
        uint8_t other = b->columns[row], distance = (uint8_t)(b->rows - row);
        if (other == column || other == (uint8_t)(column + distance) || other == (uint8_t)(column - distance)) return 0;
    }
    return 1;
}

static inline board with(const board *b, uint8_t column) {
    board next = *b;
    next.columns[next.rows++] = column;
    return next;
}
