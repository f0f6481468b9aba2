#ifndef LLMC_CUDA_FUSED_CUH
#define LLMC_CUDA_FUSED_CUH

/* Between fused.cu, which knows all patterns, and the files that do some of them. */

#include "kernels/cuda/fused.h"
#include "kernels/cuda/stream.cuh"

const unsigned SLOPE_THREADS = 512, SLOPE_GROUPS = 16 /* most rows at a time */, SLOPE_BLOCKS = 256;

/* loss.cu's and optimizer.cu's share of fused.h's functions */
unsigned cuda_fuse_xent(const enum op *ops, const struct kernel_args *const *args, unsigned n);
const char *cuda_fused_xent(const struct kernel_args *const *args, unsigned n, const struct cuda_call *c);
unsigned cuda_fuse_many(const enum op *ops, const struct kernel_args *const *args, unsigned n);
const char *cuda_fused_many(const enum op *ops, const struct kernel_args *const *args, unsigned n, const struct cuda_call *c);

#endif
