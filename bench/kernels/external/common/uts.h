// The tree of src/uts/mod.rs. The hashing is a file of its own, compiled by the same compiler for all.
#pragma once
#include <stdint.h>
#include <string.h>

typedef struct {
    uint32_t hash[5];
    int is_root;
} node;

#ifdef __cplusplus
extern "C" {
#endif
node root(void);
node child(const node *parent, uint32_t i);
#ifdef __cplusplus
}
#endif

static inline uint32_t children(const node *node, uint32_t limit) {
    if (node->is_root) return 2000;
    return (node->hash[4] & 0x7fffffff) < limit ? 8 : 0;
}

static inline uint32_t limit_of(size_t size) { return (uint32_t)((double)size / 1e6 * 2147483648.0) + 1; }
