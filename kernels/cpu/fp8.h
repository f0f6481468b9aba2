#ifndef LLMC_KERNELS_CPU_FP8_H
#define LLMC_KERNELS_CPU_FP8_H

/* Operands of products rounded to 8 bits by a recipe, as isa.def says, and back in fp32. */

#include "kernels/cpu/rows.h"

enum fp8_format { FP8_E4M3, FP8_E5M2 };
enum fp8_use { FP8_INPUT, FP8_WEIGHT, FP8_GRADIENT };
struct fp8_pair {
    int64_t recipe; /* the attribute; 0 = none */
    enum fp8_use a, b;
};

/* the nearest of the format's numbers, ties to even; beyond the largest the largest, NaN stays NaN */
float fp8_round(float x, enum fp8_format format);

/* the whole view as fp32, like tile_load(), rounded where recipe is not 0: then always in tmp (rows * cols
 * floats). down: products sum over its rows, else over its columns */
const float *fp8_load(const struct view *v, int64_t recipe, enum fp8_use use, bool down, float *tmp, uint32_t *ld);

/* matmul.c: c (+)= op(a) op(b) + bias; a is [m, k] or, transposed, [k, m]; b is [k, n] or, transposed, [n,
 * k]; bias may be NULL.  scratch: the floats of every operand that is not fp32 or that is rounded, one after
 * the other */
void fp8_multiply(const struct view *c, const struct view *a, bool ta, const struct view *b, bool tb,
                  const struct view *bias, const struct fp8_pair *fp8, float *scratch);

#endif
