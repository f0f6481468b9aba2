#ifndef LLMC_KERNELS_CUDA_BF16_CUH
#define LLMC_KERNELS_CUDA_BF16_CUH

/* bf16 as products and attention see it: 16 bits, the upper half of a float; rounding is to nearest, ties to even, by the
 * one instruction sm_80 and later have for it. */

#include "kernels/cuda/language.cuh"

#include <stdint.h>
#include <string.h>

/* before a loop whose trips are constants: unrolled, so that arrays it indexes stay in registers */
#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

struct bf16 {
    uint16_t bits;
};

/* low in the lower half */
static __device__ inline uint32_t pack_bf16(float low, float high)
{
#ifdef __CUDACC__
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
#else
    auto round = [](float x) {
        uint32_t b = __float_as_uint(x);
        return x != x ? 0x7fffu : (b + 0x7fffu + (b >> 16 & 1)) >> 16;
    };
    return round(low) | round(high) << 16;
#endif
}
static __device__ inline float bf16_value(bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}
static __device__ inline bf16 bf16_nearest(float x)
{
    return {(uint16_t)(pack_bf16(x, 0) & 0xffffu)};
}

/* 2^x by one instruction, whose error is 2 units in the last place; exp2f() adds three for denormal results */
static __device__ inline float exp_2(float x)
{
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/* elements of either dtype as fp32 */
static __device__ inline float value_of(float x)
{
    return x;
}
static __device__ inline float value_of(bf16 x)
{
    return bf16_value(x);
}

/* more than 48 KiB of shared memory must be asked for; not a stream operation, so it may stand in a capture */
static inline const char *allow_shared(const void *kernel, size_t bytes)
{
#ifdef __CUDACC__
    cudaError_t e = bytes > 48 * 1024 ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) : cudaSuccess;
    return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
#else
    (void)kernel;
    return bytes <= 227 * 1024 ? nullptr : "a kernel asks for more shared memory than a multiprocessor has";
#endif
}

#endif
