#ifndef LLMC_CUDA_FUSED_H
#define LLMC_CUDA_FUSED_H

/* Instructions that follow one another on a queue, done by one call: fewer launches, and one pass over memory where the
 * rows one by one take two or three.
 *
 *   ADD, then RMSNORM or LAYERNORM of its result                    same bits as one by one
 *   RMSNORM_I or LAYERNORM_I, then the W of the same operands       dx: same bits; weights: sums in another order
 *     and BIAS_W of dx, if it follows
 *   XENT_MAX, XENT_SUM, and if they follow XENT_LOSS and XENT_I     sums in another order
 *   several ADAMW of the same attributes                            same bits
 *   several SQNORM into the same sum                                sums in another order
 *   ROPE of neighbouring columns                                    same bits
 *   MATMUL_NT, then GELU of the result                              gelu of what was not rounded
 *   MATMUL_TN, then BIAS_W of its first operand                     sums in another order
 *   MATMUL_NN, MATMUL_TN, then GELU_I, or without the second        the same, and the first one's result may stay
 * unwritten
 *
 * The caller makes sure that nothing else comes between: no wait, no signal before the last, no other instruction. */

#include "kernels/cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_FUSE_MOST = 48 }; /* instructions in one call */

/* how many of n instructions, starting with the first, one call can execute; 1 = it stands alone; args have passed
 * the checks */
unsigned cuda_fuse(const enum op *ops, const struct kernel_args *const *args, unsigned n);
/* of such a call: the instruction whose first operand it may leave unwritten, so nobody else may read it; n = none */
unsigned cuda_fused_hides(const enum op *ops, unsigned n);
/* workspace of such a call */
size_t cuda_fused_workspace_bytes(const enum op *ops, const struct kernel_args *const *args, unsigned n);
/* like cuda_prepare() for single instructions, and to be called after it */
const char *cuda_fused_prepare(const enum op *ops, const struct kernel_args *const *args, unsigned n,
                               const struct cuda_call *c);
/* c: provides stream, workspace and libraries; its args are ignored */
const char *cuda_fused(const enum op *ops, const struct kernel_args *const *args, unsigned n,
                       const struct cuda_call *c);

#ifdef __cplusplus
}
#endif

#endif
