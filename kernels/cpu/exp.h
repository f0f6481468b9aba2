#ifndef LLMC_KERNELS_CPU_EXP_H
#define LLMC_KERNELS_CPU_EXP_H

/* exp in fp32, in a header and without branches so that loops over it become vector code; libm's cannot.
 *
 * x = n ln 2 + r, |r| <= ln 2 / 2; e^r by a polynomial of degree 6 with minimax coefficients (Cephes, expf); 2^n by
 * the exponent bits, in two factors so that results near both ends of the range stay right.  Error below 2 units in
 * the last place; 0 for -inf, inf beyond 88.7, NaN for NaN. */

#include <stdint.h>
#include <string.h>

static inline float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float exp_f32(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    float clamped = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
    float whole = (clamped * 1.44269504f + shift) - shift;
    float r = clamped - whole * 0.693359375f + whole * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    int32_t n = (int32_t)(whole == whole ? whole : 0), half = n / 2;
    return p * float_of_bits((uint32_t)(half + 127) << 23) * float_of_bits((uint32_t)(n - half + 127) << 23);
}

#endif
