#ifndef LLMC_KERNELS_CPU_SUMS_H
#define LLMC_KERNELS_CPU_SUMS_H

/* Sums and maxima over ranks, a block of elements at a time, for the transport: fp32, bf16 and fp16 are taken in
 * fp32, fp64 and int32 in their own type.  The order of the additions is the order of the calls. */

#include "runtime/isa.h"

enum { SUMS_BLOCK = 1024 };

union sums {
    float f[SUMS_BLOCK];
    double d[SUMS_BLOCK];
    int32_t i[SUMS_BLOCK];
};
enum sums_rule { SUMS_SET, SUMS_ADD, SUMS_MAX };

/* sums = in, sums + in or max(sums, in); n <= SUMS_BLOCK elements of dtype at in */
void sums_take(union sums *sums, const void *in, uint32_t n, enum dtype dtype, enum sums_rule rule);
/* out = the sums, rounded to dtype */
void sums_store(const union sums *sums, void *out, uint32_t n, enum dtype dtype);

#endif
