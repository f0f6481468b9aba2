#ifndef LLMC_KERNELS_CPU_ROWS_H
#define LLMC_KERNELS_CPU_ROWS_H

/* How the CPU kernels see operands: one row at a time, as fp32 whatever the dtype.
 *
 * Kernels compute a row into scratch and then store it, so an output may be the very same view as an input
 * ("in place") wherever isa.def allows it.  bf16 and fp16 are stored by rounding to nearest, ties to even; NaN
 * stays NaN. */

#include "kernels/cpu/elementary.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define V(op, name) (&k->operand[OPND(op, name)])
#define INTEGER(op, name) (k->attr[ATTR(op, name)].i)
#define NUMBER(op, name) (k->attr[ATTR(op, name)].f)

enum { ATTENTION_BLOCK = 64 }; /* query rows that attention handles together */

float bf16_load(uint16_t bits);
uint16_t bf16_round(float x);
float f16_load(uint16_t bits);
uint16_t f16_round(float x);

/* an optional factor, fp64 */
static inline double number_or_one(const struct view *v)
{
    return v->data ? *(const double *)v->data : 1;
}

/* row i as fp32: in place for fp32, else converted into tmp (cols floats) */
const float *row_load(const struct view *v, uint32_t i, float *tmp);
/* row i = x, or += x where the view accumulates; x may be the row itself where it does not */
void row_store(const struct view *v, uint32_t i, const float *x);
/* rows [row, row + rows) and columns [col, col + cols) as an fp32 matrix with leading dimension *ld: in place
 * for fp32, else converted into tmp (rows * cols floats) */
const float *tile_load(const struct view *v, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols, float *tmp,
                       uint32_t *ld);
/* where to compute such a tile of an output that does not accumulate: in place for fp32, else tmp */
float *tile_open(const struct view *v, uint32_t row, uint32_t col, uint32_t cols, float *tmp, uint32_t *ld);
/* the counterpart: rounds tmp into the view; nothing to do for fp32 */
void tile_close(const struct view *v, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols, const float *tmp);

/* sums in fp64, in sixteen lanes that are added pairwise, then the last n mod 16: the same bits everywhere */
double row_dot(const float *a, const float *b, uint32_t n);
double row_sum(const float *a, uint32_t n);
/* the largest of n elements, -inf if there are none; a NaN counts as smaller than any number */
float row_max(const float *a, uint32_t n);
/* out = e^(a - shift), out may be a; returns the sum of out */
double row_exp(float *out, const float *a, float shift, uint32_t n);
/* ATTENTION's slope of a head, 0 without biases; a += slope (ahead, ahead + 1, ...) */
float attention_slope(int64_t heads, int64_t head);
void row_bias(float *a, float slope, float ahead, uint32_t n);
/* out (+)= the fp64 sums of n columns */
void columns_store(const struct view *out, const double *sum);

#endif
