#ifndef LLMC_CUDA_LIBRARIES_H
#define LLMC_CUDA_LIBRARIES_H

/* cuBLASLt and cuDNN as tables filled by dlsym(), so that nothing links against them and fakes can stand in.  Types and
 * numbers are declared here as the libraries' binary interface has them, without their headers; abi.cu compares them
 * with the headers where those are.  Functions return 0 = success unless they say otherwise. */

#include "runtime/cuda_api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lt_algo {
    uint64_t data[8]; /* may be stored, for the same version of the library */
};
struct lt_result {
    struct lt_algo algo;
    size_t workspace_bytes;
    int state; /* 0 = it can do it */
    float waves;
    int reserved[4];
};
enum {
    LT_COMPUTE_32F = 68,
    LT_R_32F = 0,
    LT_R_16BF = 14,
    LT_R_8F_E4M3 = 28,
    LT_R_8F_E5M2 = 29,
    LT_OP_N = 0,
    LT_OP_T = 1
};
enum lt_desc {
    LT_TRANSA = 3,
    LT_TRANSB = 4,
    LT_EPILOGUE = 7,
    LT_BIAS_POINTER = 8,
    LT_AUX_POINTER = 11,
    LT_AUX_LD = 12,
    LT_A_SCALE_POINTER = 17,
    LT_B_SCALE_POINTER = 18,
    LT_FAST_ACCUM = 25,
    LT_BIAS_TYPE = 26
};
enum lt_pref { LT_MAX_WORKSPACE = 1, LT_REDUCTION_SCHEMES = 3, LT_ALIGN_A = 5, LT_ALIGN_B, LT_ALIGN_C, LT_ALIGN_D };
enum {
    LT_EPILOGUE_DEFAULT = 1,
    LT_EPILOGUE_BIAS = 4,
    LT_EPILOGUE_GELU_AUX = 32 | 128,
    LT_EPILOGUE_DGELU = 64 | 128,
    LT_EPILOGUE_SUM_B = 512 /* sums of its second operand over the contraction, as for a bias gradient */
};
/* split sums through the workspace, in fp32 or in the result's dtype; in-place split sums (1) are excluded, since
 * their order varies */
enum { LT_SUMS_IN_FP32 = 2, LT_SUMS_IN_RESULT = 4 };

/* append what you need; the loader follows.  F(name, returned type, parameters) */
#define CUBLASLT_FUNCTIONS(F)                                                                                          \
    F(cublasLtGetVersion, size_t, (void))                                                                              \
    F(cublasLtGetStatusString, const char *, (int status))                                                             \
    F(cublasLtCreate, int, (void **handle))                                                                            \
    F(cublasLtDestroy, int, (void *handle))                                                                            \
    F(cublasLtMatmul, int,                                                                                             \
      (void *handle, void *desc, const void *alpha, const void *a, void *la, const void *b, void *lb,                  \
       const void *beta, const void *c, void *lc, void *d, void *ld, const struct lt_algo *algo, void *workspace,      \
       size_t workspace_bytes, cuda_stream stream))                                                                    \
    F(cublasLtMatmulDescCreate, int, (void **desc, int compute, int scale))                                            \
    F(cublasLtMatmulDescDestroy, int, (void *desc))                                                                    \
    F(cublasLtMatmulDescSetAttribute, int, (void *desc, int attribute, const void *value, size_t bytes))               \
    F(cublasLtMatrixLayoutCreate, int, (void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld))            \
    F(cublasLtMatrixLayoutDestroy, int, (void *layout))                                                                \
    F(cublasLtMatmulPreferenceCreate, int, (void **preference))                                                        \
    F(cublasLtMatmulPreferenceDestroy, int, (void *preference))                                                        \
    F(cublasLtMatmulPreferenceSetAttribute, int, (void *preference, int attribute, const void *value, size_t bytes))   \
    F(cublasLtMatmulAlgoGetHeuristic, int,                                                                             \
      (void *handle, void *desc, void *la, void *lb, void *lc, void *ld, void *preference, int wanted,                 \
       struct lt_result *results, int *found))                                                                         \
    F(cublasLtMatmulAlgoCheck, int,                                                                                    \
      (void *handle, void *desc, void *la, void *lb, void *lc, void *ld, const struct lt_algo *algo,                   \
       struct lt_result *result))
#define CUDNN_FUNCTIONS(F)                                                                                             \
    F(cudnnGetVersion, size_t, (void))                                                                                 \
    F(cudnnGetErrorString, const char *, (int status))                                                                 \
    F(cudnnGetLastErrorString, void, (char *out, size_t size))                                                         \
    F(cudnnCreate, int, (void **handle))                                                                               \
    F(cudnnDestroy, int, (void *handle))                                                                               \
    F(cudnnSetStream, int, (void *handle, cuda_stream stream))                                                         \
    F(cudnnBackendCreateDescriptor, int, (int type, void **descriptor))                                                \
    F(cudnnBackendDestroyDescriptor, int, (void *descriptor))                                                          \
    F(cudnnBackendSetAttribute, int, (void *descriptor, int attribute, int type, int64_t n, const void *values))       \
    F(cudnnBackendGetAttribute, int,                                                                                   \
      (void *descriptor, int attribute, int type, int64_t room, int64_t *n, void *values))                             \
    F(cudnnBackendFinalize, int, (void *descriptor))                                                                   \
    F(cudnnBackendExecute, int, (void *handle, void *plan, void *pack))

#define MEMBER(name, type, parameters) type(*name) parameters;
struct cublaslt_functions {
    CUBLASLT_FUNCTIONS(MEMBER)
};
struct cudnn_functions {
    CUDNN_FUNCTIONS(MEMBER)
};
#undef MEMBER

/* one per process and device */
struct cuda_libraries {
    struct cublaslt_functions lt;
    struct cudnn_functions dnn;
    const struct cuda_runtime *runtime;
    void *lt_handle, *dnn_handle;    /* dnn: NULL without cuDNN, in which case attention uses our own kernels */
    int device, sm, multiprocessors; /* sm: 90 = compute capability 9.0 */
    char device_name[64];
    bool deterministic;
    struct product_cache *products; /* chosen algorithms, matmul_tune.c */
    struct attention_cache *plans;  /* cuDNN's plans, cudnn_attention.c */
    void *lt_library, *dnn_library;
    char error[256]; /* message of the last refused call */
};

/* only fill the tables, which needs no device: NULL = fine, else what is missing */
const char *cudnn_load(struct cudnn_functions *f, void **library);
/* opens everything; the device has been set.  cuDNN may be missing, cuBLASLt may not. */
const char *cuda_libraries_open(struct cuda_libraries **out, const struct cuda_runtime *runtime,
                                const char *device_name, int device, int sm, int multiprocessors, bool deterministic);
void cuda_libraries_close(struct cuda_libraries *l);
/* the owners of the two caches free them; NULL is fine */
void product_cache_free(struct cuda_libraries *l);
void attention_cache_free(struct cuda_libraries *l);

#ifdef __cplusplus
}
#endif

#endif
