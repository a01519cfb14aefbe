// The hashes of the tree's nodes. By clang wherever it is, since Rust has the same back end: how well SHA-1 is compiled is
// not what is compared.
#include "uts.h"

static inline uint32_t left(uint32_t x, int n) { return x << n | x >> (32 - n); }

static inline __attribute__((always_inline)) void sha1(const uint32_t block[16], uint32_t hash[5]) {
    uint32_t w[16];
    memcpy(w, block, 64);
    uint32_t a = 0x67452301, b = 0xefcdab89, c = 0x98badcfe, d = 0x10325476, e = 0xc3d2e1f0;
#define F1(b, c, d) (d ^ (b & (c ^ d)))
#define F2(b, c, d) (b ^ c ^ d)
#define F3(b, c, d) ((b & c) | (d & (b | c)))
#define STEP(a, b, c, d, e, i, f, k)                                                                          \
    if ((i) >= 16) w[(i) % 16] = left(w[((i) + 13) % 16] ^ w[((i) + 8) % 16] ^ w[((i) + 2) % 16] ^ w[(i) % 16], 1); \
    e = e + k + w[(i) % 16] + f(b, c, d) + left(a, 5);\
    b = left(b, 30)
#define FIVE(i, f, k)                      \
    STEP(a, b, c, d, e, i, f, k);          \
    STEP(e, a, b, c, d, i + 1, f, k);      \
    STEP(d, e, a, b, c, i + 2, f, k);      \
    STEP(c, d, e, a, b, i + 3, f, k);      \
    STEP(b, c, d, e, a, i + 4, f, k)
#define TWENTY(i, f, k)  \
    FIVE(i, f, k);       \
    FIVE(i + 5, f, k);   \
    FIVE(i + 10, f, k);  \
    FIVE(i + 15, f, k)
    TWENTY(0, F1, 0x5a827999);
    TWENTY(20, F2, 0x6ed9eba1);
    TWENTY(40, F3, 0x8f1bbcdc);
    TWENTY(60, F2, 0xca62c1d6);
    hash[0] = a + 0x67452301;
    hash[1] = b + 0xefcdab89;
    hash[2] = c + 0x98badcfe;
    hash[3] = d + 0x10325476;
    hash[4] = e + 0xc3d2e1f0;
}

node root(void) {
    uint32_t block[16] = {0};
    block[4] = 42;
    block[5] = 0x80000000;
    block[15] = 160;
    node root;
    sha1(block, root.hash);
    root.is_root = 1;
    return root;
}

node child(const node *parent, uint32_t i) {
    uint32_t block[16] = {0};
    memcpy(block, parent->hash, 20);
    block[5] = i;
    block[6] = 0x80000000;
    block[15] = 192;
    node child;
    sha1(block, child.hash);
    child.is_root = 0;
    return child;
}
