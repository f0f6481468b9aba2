#ifndef LLMC_CUDA_CUDNN_GRAPH_H
#define LLMC_CUDA_CUDNN_GRAPH_H

/* Operation graphs of cuDNN's C backend: tensors and operations are added, then a plan is made of the whole.  The
 * first error is kept and makes all later calls do nothing, so only the end needs a check.  No handle or device is
 * needed until the plan, which is for the device whose handle or properties are given. */

#include "kernels/cuda/libraries.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDNN_GRAPH_DESCRIPTORS = 192, CUDNN_GRAPH_OPS = 48 };
enum cudnn_type { CUDNN_F32 = 0, CUDNN_I32 = 4, CUDNN_BF16 = 9, CUDNN_BOOL = 11 };
enum cudnn_pointwise {
    CUDNN_ADD = 0,
    CUDNN_MUL = 1,
    CUDNN_DIV = 6,
    CUDNN_SUB = 9,
    CUDNN_EXP = 13,
    CUDNN_LOG = 15,
    CUDNN_IDENTITY = 21,
    CUDNN_TANH = 101,
    CUDNN_TANH_BACK = 201,
    CUDNN_GT = 302,
    CUDNN_GE = 303,
    CUDNN_INDEX = 501,
    CUDNN_SELECT = 601
};
enum cudnn_reduce { CUDNN_SUM = 0, CUDNN_MAX = 3 };

struct cudnn_graph {
    const struct cudnn_functions *f;
    void *made[CUDNN_GRAPH_DESCRIPTORS], *op[CUDNN_GRAPH_OPS];
    int nmade, nops;
    int64_t next_uid; /* of virtual tensors */
    int status;       /* the first error */
    const char *what; /* the call that failed first */
};
struct cudnn_shape {
    int64_t dim[4], stride[4]; /* batch, heads, rows, columns; in elements */
};

/* shape of a dense tensor */
struct cudnn_shape cudnn_dense(int64_t b, int64_t h, int64_t rows, int64_t cols);
/* uid > 0: memory bound when it runs */
void *cudnn_tensor(struct cudnn_graph *g, int64_t uid, enum cudnn_type type, const struct cudnn_shape *s);
/* uid > 0: one number on the host, read when it is launched */
void *cudnn_value(struct cudnn_graph *g, int64_t uid, enum cudnn_type type);
void *cudnn_virtual(struct cudnn_graph *g, enum cudnn_type type, const struct cudnn_shape *s);
void cudnn_matmul(struct cudnn_graph *g, void *a, void *b, void *c);
/* y = mode(x, b); GT and GE compare as integers of type math */
void cudnn_map(struct cudnn_graph *g, enum cudnn_pointwise mode, enum cudnn_type math, void *x, void *b, void *y);
/* TANH_BACK: y = dy times tanh's slope at x */
void cudnn_map_back(struct cudnn_graph *g, enum cudnn_pointwise mode, void *x, void *dy, void *y);
void cudnn_index(struct cudnn_graph *g, int64_t axis, void *x, void *y);
/* y = where ? x : b */
void cudnn_select(struct cudnn_graph *g, void *x, void *b, void *where, void *y);
void cudnn_reduction(struct cudnn_graph *g, enum cudnn_reduce mode, void *x, void *y);
void cudnn_reshape(struct cudnn_graph *g, void *x, void *y);
/* The plan of the first engine that needs no more than room bytes and can be built, NULL if none; properties: a
 * device's, or NULL with a handle.  The caller destroys it. */
void *cudnn_plan(struct cudnn_graph *g, void *handle, void *properties, size_t room, size_t *workspace_bytes);
/* what the first engine reports that it needs, without building its plan, which takes 200 times as long; false: no
 * engine */
bool cudnn_bytes(struct cudnn_graph *g, void *handle, void *properties, size_t *workspace_bytes);
/* destroys all descriptors but plans */
void cudnn_graph_free(struct cudnn_graph *g);

/* a device's properties from cuDNN's own text form of them; NULL = not accepted */
void *cudnn_properties(const struct cudnn_functions *f, const char *json);
int cudnn_run(const struct cudnn_functions *f, void *handle, void *plan, int n, const int64_t *uid,
              void *const *pointer, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
