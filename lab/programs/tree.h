// The tree of the unbalanced tree search: binomial, each child's state the SHA-1 hash of its parent's and its number.
#ifndef TREE_H
#define TREE_H
#include <stdint.h>
#include <string.h>

struct state {
    uint8_t bytes[20];
};

static inline uint32_t rotate(uint32_t x, int by) { return x << by | x >> (32 - by); }

// SHA-1 of 20 bytes and a number of four: one block.
static struct state tree_hash(const uint8_t *twenty, uint32_t last) {
    uint32_t w[80], h[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
    for (int i = 0; i < 5; i++)
        w[i] = (uint32_t)twenty[4 * i] << 24 | (uint32_t)twenty[4 * i + 1] << 16 | (uint32_t)twenty[4 * i + 2] << 8 |
               twenty[4 * i + 3];
    w[5] = last;
    w[6] = 0x80000000;
    for (int i = 7; i < 15; i++) w[i] = 0;
    w[15] = 24 * 8;
    for (int i = 16; i < 80; i++) w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 ? b ^ c ^ d : i < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
        uint32_t k = i < 20 ? 0x5A827999 : i < 40 ? 0x6ED9EBA1 : i < 60 ? 0x8F1BBCDC : 0xCA62C1D6;
        uint32_t next = rotate(a, 5) + f + e + k + w[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
    struct state s;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 4; j++) s.bytes[4 * i + j] = (uint8_t)(h[i] >> (24 - 8 * j));
    return s;
}

// The root's hash is over 16 zero bytes and the seed: 20 bytes, a block of its own form.
static struct state tree_root(uint32_t seed) {
    uint32_t h[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0}, w[80] = {0};
    w[4] = seed;
    w[5] = 0x80000000;
    w[15] = 20 * 8;
    for (int i = 16; i < 80; i++) w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 ? b ^ c ^ d : i < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
        uint32_t k = i < 20 ? 0x5A827999 : i < 40 ? 0x6ED9EBA1 : i < 60 ? 0x8F1BBCDC : 0xCA62C1D6;
        uint32_t next = rotate(a, 5) + f + e + k + w[i];
        e = d, d = c, c = rotate(b, 30), b = a, a = next;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
    struct state s;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 4; j++) s.bytes[4 * i + j] = (uint8_t)(h[i] >> (24 - 8 * j));
    return s;
}

static inline long tree_children(const struct state *s, long depth, long root_children) {
    if (depth == 0) return root_children;
    uint32_t v = ((uint32_t)s->bytes[16] << 24 | (uint32_t)s->bytes[17] << 16 | (uint32_t)s->bytes[18] << 8 |
                  s->bytes[19]) & 0x7fffffff;
    return (double)v / 2147483648.0 < 0.124875 ? 8 : 0;
}

__attribute__((unused)) static uint64_t tree_plain(const struct state *s, long depth, long root_children) {
    uint64_t nodes = 1;
    long children = tree_children(s, depth, root_children);
    for (long i = 0; i < children; i++) {
        struct state child = tree_hash(s->bytes, (uint32_t)i);
        nodes += tree_plain(&child, depth + 1, root_children);
    }
    return nodes;
}
#endif
