#ifndef LLMC_CUDA_REDUCE_CUH
#define LLMC_CUDA_REDUCE_CUH

/* Sums and maxima over the threads of a row or a block, in an order that depends on the block's shape alone. */

#include "kernels/cuda/language.cuh"

#if defined(__CUDACC__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

/* Sums of K numbers over the blockDim.x threads of a row, a power of two up to 32 or a multiple of 32; all of them get the
 * sums.  Every thread of the block must come.  part: 32 K floats of shared memory, used where a row has several warps;
 * a block then holds one row, and part must not be used again without a barrier. */
template <int K> static __device__ __forceinline__ void row_sums(float *sum, float *part)
{
    unsigned lanes = blockDim.x < 32 ? blockDim.x : 32;
    for (unsigned o = lanes / 2; o; o /= 2)
        UNROLL for (int i = 0; i < K; i++) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], (int)o);
    if (blockDim.x <= 32)
        return;
    UNROLL for (int i = 0; i < K; i++) if (threadIdx.x % 32 == 0) part[i * 32 + threadIdx.x / 32] = sum[i];
    __syncthreads();
    UNROLL for (int i = 0; i < K; i++) sum[i] = threadIdx.x % 32 < blockDim.x / 32 ? part[i * 32 + threadIdx.x % 32] : 0;
    for (unsigned o = 16; o; o /= 2) /* every warp by itself: one after the other would take several times as long */
        UNROLL for (int i = 0; i < K; i++) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], (int)o);
}

/* the same for a block of one row, and the largest in place of the sum; NaN counts as smaller than any number */
static __device__ __forceinline__ float block_max(float x, float *part)
{
    for (int o = 16; o; o /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : x;
    for (int o = 16; o; o /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
    return x;
}
/* sum over all threads of a block, in thread 0; part: 32 doubles */
static __device__ __forceinline__ double block_sum(double x, double *part)
{
    unsigned t = threadIdx.y * blockDim.x + threadIdx.x, warps = blockDim.x * blockDim.y / 32;
    for (int o = 16; o; o /= 2)
        x += __shfl_down_sync(0xffffffffu, x, (unsigned)o);
    if (t % 32 == 0)
        part[t / 32] = x;
    __syncthreads();
    x = part[0];
    for (unsigned w = 1; w < warps; w++)
        x += part[w];
    return x;
}

#endif
