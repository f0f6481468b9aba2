/* XXH64 (Yann Collet's specification, version 0.1.1) and SHA-256 (FIPS 180-4, sections 4.1.2, 5.1.1, 6.2).
 *
 * Words are read in the order of bytes that each specification fixes, so that results are the same on every
 * machine.  XXH64 takes about 10 GB/s, SHA-256 about 0.4 GB/s.
 */

#include "runtime/hash.h"

#include <endian.h>
#include <string.h>

#define PRIME1 0x9E3779B185EBCA87u
#define PRIME2 0xC2B2AE3D27D4EB4Fu
#define PRIME3 0x165667B19E3779F9u
#define PRIME4 0x85EBCA77C2B2AE63u
#define PRIME5 0x27D4EB2F165667C5u

static uint64_t rotate_left(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static uint64_t read32_le(const unsigned char *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return le32toh(x);
}

static uint64_t read64_le(const unsigned char *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return le64toh(x);
}

static uint64_t mix_round(uint64_t lane, uint64_t word)
{
    return rotate_left(lane + word * PRIME2, 31) * PRIME1;
}

uint64_t hash64(const void *bytes, size_t n, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t h;
    size_t left = n;
    if (n >= 32) {
        uint64_t lane[4] = {seed + PRIME1 + PRIME2, seed + PRIME2, seed, seed - PRIME1};
        for (; left >= 32; left -= 32, p += 32)
            for (int i = 0; i < 4; i++)
                lane[i] = mix_round(lane[i], read64_le(p + 8 * i));
        h = rotate_left(lane[0], 1) + rotate_left(lane[1], 7) + rotate_left(lane[2], 12) + rotate_left(lane[3], 18);
        for (int i = 0; i < 4; i++)
            h = (h ^ mix_round(0, lane[i])) * PRIME1 + PRIME4;
    } else {
        h = seed + PRIME5;
    }
    h += (uint64_t)n;
    for (; left >= 8; left -= 8, p += 8)
        h = rotate_left(h ^ mix_round(0, read64_le(p)), 27) * PRIME1 + PRIME4;
    if (left >= 4) {
        h = rotate_left(h ^ read32_le(p) * PRIME1, 23) * PRIME2 + PRIME3;
        left -= 4, p += 4;
    }
    for (; left; left--, p++)
        h = rotate_left(h ^ *p * PRIME5, 11) * PRIME1;
    h = (h ^ h >> 33) * PRIME2;
    h = (h ^ h >> 29) * PRIME3;
    return h ^ h >> 32;
}

/* first 32 bits of the fractional parts of the cube roots of the first 64 primes */
static const uint32_t sha_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate_right(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

/* the eight words a .. h of the state, which round i leaves turned by one place */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                                               \
    do {                                                                                                               \
        uint32_t t = h + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) + (g ^ (e & (f ^ g))) +      \
                     sha_constant[i] + w[i];                                                                           \
        d += t;                                                                                                        \
        h = t + (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) + ((a & b) | (c & (a | b)));          \
    } while (0)

static void sha_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6],
             h = state[7];
    for (int i = 0; i < 64; i += 8) {
        ROUND(a, b, c, d, e, f, g, h, i);
        ROUND(h, a, b, c, d, e, f, g, i + 1);
        ROUND(g, h, a, b, c, d, e, f, i + 2);
        ROUND(f, g, h, a, b, c, d, e, i + 3);
        ROUND(e, f, g, h, a, b, c, d, i + 4);
        ROUND(d, e, f, g, h, a, b, c, i + 5);
        ROUND(c, d, e, f, g, h, a, b, i + 6);
        ROUND(b, c, d, e, f, g, h, a, i + 7);
    }
    const uint32_t v[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void sha256_start(struct sha256 *s)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->state, start, sizeof start);
    s->length = 0;
}

void sha256_add(struct sha256 *s, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    size_t used = s->length % 64;
    s->length += n;
    if (used) {
        size_t take = n < 64 - used ? n : 64 - used;
        if (take)
            memcpy(s->block + used, p, take);
        p += take, n -= take;
        if (used + take < 64)
            return;
        sha_block(s->state, s->block);
    }
    for (; n >= 64; n -= 64, p += 64)
        sha_block(s->state, p);
    if (n)
        memcpy(s->block, p, n);
}

void sha256_finish(struct sha256 *s, char hex[65])
{
    unsigned char tail[72] = {0x80};
    uint64_t bits = s->length * 8;
    size_t pad = 1 + (119 - s->length % 64) % 64;
    for (size_t i = 0; i < 8; i++)
        tail[pad + i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(s, tail, pad + 8);
    for (size_t i = 0; i < 64; i++)
        hex[i] = "0123456789abcdef"[s->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    hex[64] = 0;
}

void hash_sha256(const void *bytes, size_t n, char hex[65])
{
    struct sha256 s;
    sha256_start(&s);
    sha256_add(&s, bytes, n);
    sha256_finish(&s, hex);
}
