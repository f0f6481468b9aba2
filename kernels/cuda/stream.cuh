#ifndef LLMC_CUDA_STREAM_CUH
#define LLMC_CUDA_STREAM_CUH

/* What the files of the memory-bound rows tell one another: the sum of partial sums. */

#include "kernels/cuda/pack.cuh"
#include "runtime/workspace.h"

/* columns.cu: out (+)= the sums of `chunks` rows of partial sums, in order; out's width each */
void cuda_finish_columns(const struct view *out, const float *part, unsigned chunks, struct CUstream_st *stream);

/* loss.cu: out = factor times the sum of n numbers, in a fixed order, or += that */
const unsigned MOST_PARTS = WORKSPACE_PARTS; /* of a sum that is taken in two launches */
const char *cuda_sum_parts(const struct view *out, const double *part, unsigned n, double factor, struct CUstream_st *stream);

#endif
