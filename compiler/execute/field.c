/* Modulo 2^61 - 1: dot products, inverses, constants, and the fixed random function.
 *
 * Products are below 2^122, so 32 of them add up in 128 bits before one reduction.  The random function is
 * the finaliser of SplitMix64 (Steele et al. 2014) in three rounds, one per argument. */

#include "compiler/execute/field.h"

#include <math.h>
#include <string.h>

uint64_t field_dot(const uint64_t *a, uint64_t stride_a, const uint64_t *b, uint64_t stride_b, uint64_t n)
{
    field_wide sum = 0;
    for (; stride_a == 1 && stride_b == 1 && n >= 8; n -= 8, a += 8, b += 8) {
        field_wide even = (field_wide)a[0] * b[0], odd = (field_wide)a[1] * b[1];
        even += (field_wide)a[2] * b[2];
        odd += (field_wide)a[3] * b[3];
        even += (field_wide)a[4] * b[4];
        odd += (field_wide)a[5] * b[5];
        even += (field_wide)a[6] * b[6];
        odd += (field_wide)a[7] * b[7];
        sum = (sum & FIELD_P) + (sum >> FIELD_BITS) + even + odd;
    }
    sum = field_reduce(sum);
    for (uint64_t i = 0; i < n; i++) {
        sum += (field_wide)a[i * stride_a] * b[i * stride_b];
        if (i % 32 == 31)
            sum = field_reduce(sum);
    }
    return field_reduce(sum);
}

/* a^(2^n) b */
static uint64_t square(uint64_t a, int n, uint64_t b)
{
    for (; n; n--)
        a = field_mul(a, a);
    return field_mul(a, b);
}

/* a^(p - 2), whose exponent has in binary 59 ones, then 01; x[n] has n ones */
uint64_t field_inverse(uint64_t a)
{
    uint64_t x2 = square(a, 1, a), x4 = square(x2, 2, x2), x8 = square(x4, 4, x4), x16 = square(x8, 8, x8);
    uint64_t x48 = square(square(x16, 16, x16), 16, x16), x56 = square(x48, 8, x8);
    return square(square(square(x56, 2, x2), 1, a), 2, a);
}

uint64_t field_integer(int64_t i)
{
    uint64_t size = field_reduce(i < 0 ? 0 - (uint64_t)i : (uint64_t)i);
    return i < 0 ? field_minus(size) : size;
}

uint64_t field_real(double x)
{
    int e;
    if (!isfinite(x))
        return field_hash(field_image(x), 0, 0);
    int64_t m = (int64_t)ldexp(frexp(x, &e), 53);
    uint64_t size = (uint64_t)(m < 0 ? -m : m);
    uint32_t turn = (uint32_t)(((e - 53) % FIELD_BITS + FIELD_BITS) % FIELD_BITS);
    size = field_reduce((field_wide)size << turn);
    return m < 0 ? field_minus(size) : size;
}

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t field_bits(uint64_t a, uint64_t b, uint64_t c)
{
    return mix(mix(mix(a) ^ b) ^ c);
}

uint64_t field_hash(uint64_t a, uint64_t b, uint64_t c)
{
    return field_reduce(field_bits(a, b, c));
}

uint64_t field_image(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
