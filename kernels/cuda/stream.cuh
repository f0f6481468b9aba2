#ifndef LLMC_CUDA_STREAM_CUH
#define LLMC_CUDA_STREAM_CUH

/* What the files of the memory-bound rows tell one another: workspaces, and the sum of partial sums. */

#include "kernels/cuda/pack.cuh"

/* columns.cu: `sums` kinds of sums over dy's rows, of cols columns each (several heads: of each head's) */
size_t cuda_columns_workspace_bytes(const struct view *dy, unsigned cols, unsigned sums);
/* out (+)= the sums of `chunks` rows of partial sums, in order; out's width each */
void cuda_finish_columns(const struct view *out, const float *part, unsigned chunks, struct CUstream_st *stream);
/* embed.cu */
size_t cuda_embed_workspace_bytes(size_t tokens, size_t vocab);
/* experts.cu */
size_t cuda_arrange_workspace_bytes(size_t experts);

/* loss.cu: out = factor times the sum of n numbers, in a fixed order, or += that */
const unsigned MOST_PARTS = 1024; /* of a sum that is taken in two launches */
const char *cuda_sum_parts(const struct view *out, const double *part, unsigned n, double factor, struct CUstream_st *stream);

#endif
