#ifndef LLMC_CUDA_CUDNN_ATTENTION_H
#define LLMC_CUDA_CUDNN_ATTENTION_H

/* Attention as cuDNN graphs: what they support, what memory they need, and the graphs themselves. */

#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/products.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bf16; strides of rows in elements */
struct cudnn_job {
    int64_t batch, heads, kv, head, value, sequence, window; /* window 0 = none */
    int64_t ldq, ldk, ldv, ldo, lddout, lddq, lddk, lddv;
    float scale, softcap; /* softcap: 0 = none; both are bound when the plan runs */
    int64_t backward;
};
/* names of tensors, in the order in which a run binds them */
enum {
    UID_Q = 1,
    UID_K,
    UID_V,
    UID_O,
    UID_STATS,
    UID_DO,
    UID_DQ,
    UID_DK,
    UID_DV,
    UID_SUMS,
    UID_DQ_SUM,
    UID_SCALE,
    UID_LOW,
    UID_CAP,
    UID_UNCAP,
    UID_WINDOW,
    UID_ONE,
    UID_VIRTUAL
};

/* NULL: cuDNN supports it, by rule, and job and memory are filled in.  Else why our own kernels compute it.  sm:
 * compute capability */
const char *cudnn_job_get(enum op op, const struct kernel_args *k, int sm, struct cudnn_job *j,
                          struct workspace_attention *m);
/* adds the job's operations; the caller makes a plan of them, and frees the graph */
void cudnn_attention_graph(struct cudnn_graph *g, const struct cudnn_job *j);

#ifdef __cplusplus
}
#endif

#endif
