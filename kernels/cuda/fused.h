#ifndef LLMC_CUDA_FUSED_H
#define LLMC_CUDA_FUSED_H

/* Instructions that follow one another on a queue, done by one call: fewer launches, and one pass over memory where the rows
 * one by one take two or three.
 *
 *   ADD, then RMSNORM or LAYERNORM of its result                    same bits as one by one
 *   RMSNORM_I or LAYERNORM_I, then the W of the same operands       dx: same bits; weights: sums in another order
 *   XENT_MAX, XENT_SUM, and if they follow XENT_LOSS and XENT_I     sums in another order
 *   several ADAMW of the same attributes                            same bits
 *   several SQNORM into the same sum                                sums in another order
 *
 * The caller makes sure that nothing else comes between: no wait, no signal before the last, no other instruction. */

#include "kernels/cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_FUSE_MOST = 48 }; /* instructions in one call */

/* how many of n instructions, from the first on, one call can do: 1 = it stands alone; args have passed the checks */
unsigned cuda_fuse(const enum op *ops, const struct kernel_args *const *args, unsigned n);
/* the same, but only where the bits are those of one by one, so that it does not matter when it is done; no workspace */
unsigned cuda_fuse_exact(const enum op *ops, const struct kernel_args *const *args, unsigned n);
/* workspace of such a call */
size_t cuda_fused_workspace_bytes(const enum op *ops, const struct kernel_args *const *args, unsigned n);
/* c: the stream, the workspace; its args are not looked at */
const char *cuda_fused(const enum op *ops, const struct kernel_args *const *args, unsigned n, const struct cuda_call *c);

#ifdef __cplusplus
}
#endif

#endif
