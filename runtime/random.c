/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11) and
 * Box-Muller.
 *
 * Counter = (element / 4, seed), key = hash of the tensor's name; the four words of a counter give two pairs
 * of normals.  In fp64 and rounded once, so that no compiler's fp32 arithmetic shows. */

#include "runtime/random.h"
#include "runtime/hash.h"

#include <math.h>
#include <string.h>

void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    memcpy(out, counter, 4 * sizeof *out);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * out[0], b = (uint64_t)0xcd9e8d57u * out[2];
        uint32_t next0 = (uint32_t)(b >> 32) ^ out[1] ^ k0, next2 = (uint32_t)(a >> 32) ^ out[3] ^ k1;
        out[1] = (uint32_t)b;
        out[3] = (uint32_t)a;
        out[0] = next0;
        out[2] = next2;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

/* the four normals of a counter */
static void quartet(uint64_t seed, uint64_t key, uint64_t block, double out[4])
{
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)}, word[4];
    random_philox(counter, k, word);
    for (int pair = 0; pair < 4; pair += 2) {
        double radius = sqrt(-2 * log(((double)word[pair] + 1) * 0x1p-32)); /* argument in (0, 1] */
        double angle = (double)word[pair + 1] * (0x1p-32 * 6.28318530717958647693);
        out[pair] = radius * cos(angle);
        out[pair + 1] = radius * sin(angle);
    }
}

void random_normals(uint64_t seed, const char *name, uint64_t first, uint64_t step, uint32_t n, double std, float *out)
{
    uint64_t key = hash64(name, strlen(name), 0), have = UINT64_MAX;
    double four[4] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint64_t e = first + i * step;
        if (e / 4 != have)
            quartet(seed, key, have = e / 4, four);
        out[i] = (float)(std * four[e % 4]);
    }
}
