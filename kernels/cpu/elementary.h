#ifndef LLMC_KERNELS_CPU_ELEMENTARY_H
#define LLMC_KERNELS_CPU_ELEMENTARY_H

/* bf16 and fp16 to fp32 and back, and exp, the logistic function and tanh of an fp32 number, without branch or call,
 * so that loops over them become vector instructions; hence code in a header.  The coefficients are minimax
 * fits of ours (least squares reweighted until the error is level, in fp64, then rounded).
 * tests/kernels/test_elementary.c holds the stated errors to libm in fp64. */

#include <stdint.h>
#include <string.h>

/* Compiled for AVX-512, for AVX2 and for any processor, chosen when the program starts.  No variant
 * reassociates or fuses anything (-ffp-contract=off), so all give the same bits.  Not under clang 14, which
 * cannot call such a function from another file, nor with the sanitizers, whose instrumentation cannot run
 * before main(). */
#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define VARIANTS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VARIANTS
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* bf16: the upper half of a float; stored by rounding to nearest, ties to even */
ALWAYS_INLINE float float_of_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

ALWAYS_INLINE uint16_t bf16_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t nan = (bits >> 16) | 0x40u; /* stays a NaN even where its payload lies in the low half */
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* fp16: 5 bits of exponent, 10 of fraction.  Below 2^-14 its numbers are multiples of 2^-24: the sum with a power of
 * two whose last digit is that one leaves the multiple, rounded to nearest even, in the low bits. */
ALWAYS_INLINE float float_of_f16(uint16_t bits)
{
    const uint32_t least = 113u << 23; /* 2^-14 */
    uint32_t size = bits & 0x7fffu, normal = (size << 13) + (112u << 23), small = (size << 13) + least;
    float x, origin;
    memcpy(&x, &small, sizeof x);
    memcpy(&origin, &least, sizeof origin);
    x -= origin;
    memcpy(&small, &x, sizeof small);
    uint32_t wide = size >= 0x7c00u ? 0x7f800000u | size << 13 : size >= 0x0400u ? normal : small;
    wide |= (uint32_t)(bits & 0x8000u) << 16;
    memcpy(&x, &wide, sizeof x);
    return x;
}

/* to nearest even; 65520 and more become infinity */
ALWAYS_INLINE uint16_t f16_of_float(float x)
{
    const float unit = 0.5f; /* its last digit is 2^-24 */
    uint32_t bits, small, origin;
    memcpy(&bits, &x, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    uint32_t normal = (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
    float sum = __builtin_fabsf(x) + unit;
    memcpy(&small, &sum, sizeof small);
    memcpy(&origin, &unit, sizeof origin);
    uint32_t large = size > 0x7f800000u ? 0x7e00u | (size >> 13 & 0x3ffu) : 0x7c00u; /* NaN stays one */
    return (uint16_t)(sign | (size >= 143u << 23 ? large : size < 113u << 23 ? small - origin : normal));
}

/* 2^n for -126 <= n <= 127 */
ALWAYS_INLINE float float_power_of_two(int32_t n)
{
    uint32_t bits = (uint32_t)(n + 127) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e^x within 1.1 units in the last place; underflows through the subnormal numbers to 0, overflows to
 * infinity. x = n ln 2 + r with |r| <= ln(2) / 2; e^r by a polynomial whose own error is 3e-9.  ln 2 is split
 * in two so that n times its upper part is exact (Cody & Waite).  2^n is two factors: it may lie outside
 * fp32's range. */
ALWAYS_INLINE float float_exp(float x)
{
    const float to_integer = 0x1.8p23f; /* adding it leaves the nearest integer in the low bits */
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float shifted = x * 1.44269504f + to_integer, whole = shifted - to_integer;
    float r = (x - whole * 0x1.63p-1f) - whole * -0x1.bd0106p-13f;
    float q = 0x1.5558f2p-5f + r * (0x1.123a2p-7f + r * 0x1.6a23dp-10f);
    float p = 1 + (r + r * r * (0x1.fffffcp-2f + r * (0x1.555492p-3f + r * q)));
    int32_t n;
    memcpy(&n, &shifted, sizeof n);
    n -= 0x4b400000; /* the bits of to_integer */
    return p * float_power_of_two(n >> 1) * float_power_of_two(n - (n >> 1));
}

/* 1 / (1 + e^-x) within 2.5 units in the last place; 0 where e^-x overflows, below -88.7 */
ALWAYS_INLINE float float_logistic(float x)
{
    return 1 / (1 + float_exp(-x));
}

/* tanh x within 1.7 units in the last place: x + x^3 p(x^2) near 0, p's error 3e-9, else 1 - 2 / (e^(2 |x|) +
 * 1) with x's sign */
ALWAYS_INLINE float float_tanh(float x)
{
    float size = __builtin_fabsf(x), s = x * x;
    float p = -0x1.55553ep-2f + s * (0x1.1109aep-3f + s * (-0x1.b898dep-5f + s * (0x1.54b8ap-6f + s * -0x1.8258p-8f)));
    float far = __builtin_copysignf(1 - 2 / (float_exp(2 * size) + 1), x);
    return size < 0.6f ? x + x * (s * p) : far;
}

#endif
