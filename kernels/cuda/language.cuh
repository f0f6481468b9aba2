#ifndef LLMC_CUDA_LANGUAGE_CUH
#define LLMC_CUDA_LANGUAGE_CUH

/* What a .cu file includes first.  Under nvcc that is CUDA C++; under a host compiler the emulation that the build names,
 * which has all of these as well.
 *
 *   LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)   in place of <<<>>>; (kernel<A, B>) in parentheses
 *   SHARED(type, name, count)       name points to shared memory; contents unspecified
 *   DYNAMIC_SHARED(type, name)      the launch's shared_bytes, aligned to 128
 *   cuda_launched()                 NULL, or what the launches since the last call met
 *   cuda_allow_shared(kernel, n)    before a launch with more than 48 KiB of dynamic shared memory; NULL, or what is wrong
 * Threads must not end before a barrier that others still reach. */

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                               \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define DYNAMIC_SHARED(type, name)                                                                           \
    extern __shared__ __align__(128) unsigned char dynamic_shared_[];                                        \
    type *const name = reinterpret_cast<type *>(dynamic_shared_)
static inline const char *cuda_launched()
{
    cudaError_t e = cudaGetLastError();
    return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}
static inline const char *cuda_allow_shared(const void *kernel, size_t bytes)
{
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}
#else
#include CUDA_EMULATION
#endif

#include "kernels/cuda/cuda_kernels.h"

#endif
