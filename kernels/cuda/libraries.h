#ifndef LLMC_CUDA_LIBRARIES_H
#define LLMC_CUDA_LIBRARIES_H

/* cuBLASLt and cuDNN as tables filled by dlsym(), so that nothing links against them and fakes can stand in.
 * Only for files that are compiled where the toolkit's headers are. */

#include <cublasLt.h>
#include <cudnn.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* append what you need; the loader follows */
#define CUBLASLT_FUNCTIONS(F)                                                                                \
    F(cublasLtGetVersion) F(cublasLtGetStatusString) F(cublasLtCreate) F(cublasLtDestroy) F(cublasLtMatmul)  \
    F(cublasLtMatmulDescCreate) F(cublasLtMatmulDescDestroy) F(cublasLtMatmulDescSetAttribute)               \
    F(cublasLtMatrixLayoutCreate) F(cublasLtMatrixLayoutDestroy) F(cublasLtMatrixLayoutSetAttribute)         \
    F(cublasLtMatmulPreferenceCreate) F(cublasLtMatmulPreferenceDestroy) F(cublasLtMatmulPreferenceSetAttribute) \
    F(cublasLtMatmulAlgoGetHeuristic) F(cublasLtMatmulAlgoCheck)
#define CUDNN_FUNCTIONS(F)                                                                                   \
    F(cudnnGetVersion) F(cudnnGetErrorString) F(cudnnGetLastErrorString) F(cudnnCreate) F(cudnnDestroy)      \
    F(cudnnSetStream) F(cudnnBackendCreateDescriptor) F(cudnnBackendDestroyDescriptor)                       \
    F(cudnnBackendSetAttribute) F(cudnnBackendGetAttribute) F(cudnnBackendFinalize) F(cudnnBackendExecute)

#define MEMBER(name) __typeof__(&name) name;
struct cublaslt_functions {
    CUBLASLT_FUNCTIONS(MEMBER)
};
struct cudnn_functions {
    CUDNN_FUNCTIONS(MEMBER)
};
#undef MEMBER

/* one per process and device; of what lies behind `cache` the products and attention are the owners */
struct cuda_libraries {
    struct cublaslt_functions lt;
    struct cudnn_functions dnn;
    cublasLtHandle_t lt_handle;
    cudnnHandle_t dnn_handle; /* NULL: cuDNN is not there, attention falls back to our own kernels */
    int device, sm, multiprocessors; /* sm: 90 = compute capability 9.0 */
    bool deterministic;
    void *cache;
    void (*cache_close)(struct cuda_libraries *l);
    void *lt_library, *dnn_library;
    char error[256];
};

/* fill the tables alone, no device needed: NULL = fine, else what is missing */
const char *cublaslt_load(struct cublaslt_functions *f, void **library);
const char *cudnn_load(struct cudnn_functions *f, void **library);
/* all of it; device is set already.  Without cuDNN it goes on, without cuBLASLt it does not. */
const char *cuda_libraries_open(struct cuda_libraries **out, int device, int sm, int multiprocessors, bool deterministic);
void cuda_libraries_close(struct cuda_libraries *l);

#ifdef __cplusplus
}
#endif

#endif
