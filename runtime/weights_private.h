#ifndef LLMC_WEIGHTS_PRIVATE_H
#define LLMC_WEIGHTS_PRIVATE_H

/* One walk over buckets, for weights.c and weights_save.c: the elements [from, to) of a bucket as runs, each a stretch
 * of one row (or, for boxes stored transposed, one column) of one logical tensor, clipped to its logical shape. */

#include "kernels/cpu/rows.h"
#include "runtime/weights.h"

struct weights_run {
    const struct tensor *tensor;
    uint64_t member;      /* of the tensor's family */
    uint64_t element;     /* in the bucket */
    uint64_t first, step; /* logical element of the first one, distance to the next */
    uint32_t n;
};
typedef enum status weights_visit(void *context, const struct weights_run *run);
enum status weights_walk(const struct weights_place *w, const struct bucket *b, uint64_t from, uint64_t to,
                         weights_visit *visit, void *context);
/* the rank's value of a slot; 0 for NONE */
uint64_t weights_slot(const struct weights_place *w, uint32_t slot);
/* Does the instruction update a parameter?  What it updates is its first operand. */
bool weights_is_optimizer(const struct insn *in);
/* element i of state kept as fp32, fp16 or bf16 */
static inline float weights_value(enum dtype dtype, const void *data, uint64_t i)
{
    return dtype == DTYPE_F32   ? ((const float *)data)[i]
           : dtype == DTYPE_F16 ? f16_load(((const uint16_t *)data)[i])
                                : bf16_load(((const uint16_t *)data)[i]);
}
enum { WEIGHTS_NAME = 112 }; /* bytes of a tensor's name, with the 0 */

#endif
