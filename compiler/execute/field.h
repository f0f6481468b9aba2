#ifndef LLMC_FIELD_H
#define LLMC_FIELD_H

/* Arithmetic modulo the prime 2^61 - 1, in which every way to add up the same products gives the same number.
 *
 * Real constants go in as dyadic rationals m 2^e, exactly: 2^61 = 1, so a power of two is a rotation of bits.  What is
 * not a sum of products (exp, rsqrt, activations) becomes field_hash() of its arguments: a fixed function without any
 * structure that two different inputs could share. */

#include <stdint.h>

#define FIELD_BITS 61
#define FIELD_P (((uint64_t)1 << FIELD_BITS) - 1)
__extension__ typedef unsigned __int128 field_wide;

static inline uint64_t field_reduce(field_wide x)
{
    uint64_t y = (uint64_t)(x & FIELD_P) + ((uint64_t)(x >> FIELD_BITS) & FIELD_P) + (uint64_t)(x >> 2 * FIELD_BITS);
    y = (y & FIELD_P) + (y >> FIELD_BITS);
    return y >= FIELD_P ? y - FIELD_P : y;
}

static inline uint64_t field_add(uint64_t a, uint64_t b)
{
    uint64_t s = a + b;
    return s >= FIELD_P ? s - FIELD_P : s;
}

static inline uint64_t field_minus(uint64_t a)
{
    return a ? FIELD_P - a : 0;
}

static inline uint64_t field_sub(uint64_t a, uint64_t b)
{
    return field_add(a, field_minus(b));
}

static inline uint64_t field_mul(uint64_t a, uint64_t b)
{
    return field_reduce((field_wide)a * b);
}

/* sum over i < n of a[i * stride_a] b[i * stride_b] */
uint64_t field_dot(const uint64_t *a, uint64_t stride_a, const uint64_t *b, uint64_t stride_b, uint64_t n);
uint64_t field_inverse(uint64_t a); /* 0 for 0 */
uint64_t field_integer(int64_t i);
uint64_t field_real(double x);
/* 64 well mixed bits of (a, b, c); not reduced */
uint64_t field_bits(uint64_t a, uint64_t b, uint64_t c);
uint64_t field_hash(uint64_t a, uint64_t b, uint64_t c);
uint64_t field_image(double x); /* bits of a real, as an argument of field_hash() */

#endif
