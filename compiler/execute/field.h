#ifndef LLMC_FIELD_H
#define LLMC_FIELD_H

/* Arithmetic modulo the prime 2^61 - 1, in which sums of the same products are equal in every order.
 *
 * Real constants are converted exactly, as dyadic rationals m 2^e: 2^61 = 1, so multiplying by a power of two
 * rotates bits.  Functions that are no sums of products (exp, rsqrt, activations) become field_hash() of their
 * arguments: a fixed function without any structure that two different inputs could share. */

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

/* The sum over i < n of a[i * stride_a] b[i * stride_b]. */
uint64_t field_dot(const uint64_t *a, uint64_t stride_a, const uint64_t *b, uint64_t stride_b, uint64_t n);
uint64_t field_inverse(uint64_t a); /* the inverse of 0 is 0 */
uint64_t field_integer(int64_t i);
uint64_t field_real(double x);
/* 64 well mixed bits of (a, b, c), not reduced modulo the prime. */
uint64_t field_bits(uint64_t a, uint64_t b, uint64_t c);
uint64_t field_hash(uint64_t a, uint64_t b, uint64_t c);
uint64_t field_image(double x); /* the bits of a real number, as an argument of field_hash() */

#endif
