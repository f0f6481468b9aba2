#ifndef LLMC_KERNELS_CUDA_FP8_CUH
#define LLMC_KERNELS_CUDA_FP8_CUH

/* 8-bit numbers: E4M3 (largest 448, no infinity) and E5M2 (largest 57344), to nearest, ties to even, what is beyond the
 * largest to the largest, NaN stays NaN; and the operands that are made of them. */

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/language.cuh"
#include "kernels/cuda/products.cuh"
#include "runtime/workspace.h"

static __device__ inline uint32_t eight_bits(float x, bool e5m2)
{
    uint32_t bits = __float_as_uint(x), sign = bits >> 24 & 0x80u, a = bits & 0x7fffffffu;
    uint32_t mantissa = e5m2 ? 2 : 3, below = e5m2 ? 112 : 120; /* exponent in fp32 of what would have the field 0 */
    if (a > 0x7f800000u)
        return 0x7f;
    if (a >= (e5m2 ? 0x47600000u : 0x43e00000u))
        return sign | (e5m2 ? 0x7bu : 0x7eu);
    if (a >> 23 <= below) /* denormal, or rounded to the smallest that is not */
        return sign | (uint32_t)rintf(__uint_as_float(a) * (e5m2 ? 65536.0f : 512.0f));
    uint32_t shift = 23 - mantissa;
    a += (1u << (shift - 1)) - 1 + (a >> shift & 1);
    return sign | ((a >> shift) - (below << mantissa));
}

/* two numbers, the first in the low byte */
static __device__ inline uint32_t eight_pair(float low, float high, bool e5m2)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t both;
    if (e5m2)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
    return both;
#else
    return eight_bits(low, e5m2) | eight_bits(high, e5m2) << 8;
#endif
}

/* An operand in groups of rows that share a scale, and its copy of 8 bits: as it lies, or turned, so that what is summed over
 * is next to each other. */
struct eight_operand {
    const void *x;
    int rows, cols, ld;     /* rows: of a group, where there is no table of them */
    int all_rows;
    const row_group *group; /* NULL: one behind the other */
    int groups;
    bool turned, e5m2;
    uint8_t *out; /* turned: cols rows of ld_out, with a table those of all groups, from eight_column() on; else of each group */
    int ld_out;
    float *part; /* [groups][parts] */
    int parts;
    float *scale; /* [groups] */
};
struct eight_operands {
    eight_operand operand[2];
};

static __device__ inline row_group eight_group(const eight_operand &s, int g)
{
    return s.group ? s.group[g] : row_group{g * s.rows, s.rows};
}
enum { EIGHT_PARTS = 512 /* of an operand, or one per group */ };

/* launches; sets the numbers of parts */
const char *eight_make(eight_operands *p, bool fp32, cudaStream_t stream);
eight_operand eight_of(const struct view *v, int groups, bool turned, bool e5m2);
void eight_place(eight_operands *p, void *workspace, const struct workspace_fp8 *w);
/* 16 bytes at a time: rows begin at multiples of that */
bool eight_aligned(const struct view *v);

#endif
