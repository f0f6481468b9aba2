#ifndef LLMC_CUDA_HOST_CUH
#define LLMC_CUDA_HOST_CUH

/* The device language for a C++ compiler: what kernels/cuda uses of CUDA C++, on the fibers of host.cc. */

#include "tests/emulated/host.h"

#include <math.h>
#include <new>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>

#if __has_include(<vector_functions.h>)
#include <driver_types.h>
#include <vector_functions.h>
#include <vector_types.h>
#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __launch_bounds__
#undef __constant__
#undef __noinline__
#undef __grid_constant__
#else
typedef struct CUstream_st *cudaStream_t;
struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
#define CUDA_HOST_VECTOR2(name, type)                                                                        \
    struct alignas(2 * sizeof(type)) name {                                                                  \
        type x, y;                                                                                           \
    };                                                                                                       \
    static inline name make_##name(type x, type y) { return name{x, y}; }
#define CUDA_HOST_VECTOR4(name, type)                                                                        \
    struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name {                                          \
        type x, y, z, w;                                                                                     \
    };                                                                                                       \
    static inline name make_##name(type x, type y, type z, type w) { return name{x, y, z, w}; }
CUDA_HOST_VECTOR2(float2, float)
CUDA_HOST_VECTOR2(int2, int)
CUDA_HOST_VECTOR2(uint2, unsigned)
CUDA_HOST_VECTOR2(double2, double)
CUDA_HOST_VECTOR4(float4, float)
CUDA_HOST_VECTOR4(int4, int)
CUDA_HOST_VECTOR4(uint4, unsigned)
#undef CUDA_HOST_VECTOR2
#undef CUDA_HOST_VECTOR4
#endif

#define __global__ static __attribute__((unused))
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __expf(x) expf(x) /* the fast unit's */

struct cuda_host_place {
    uint3 thread, block, threads, blocks;
};
extern __thread struct cuda_host_place cuda_host_here;
#define threadIdx (cuda_host_here.thread)
#define blockIdx (cuda_host_here.block)
#define blockDim (cuda_host_here.threads)
#define gridDim (cuda_host_here.blocks)
#define warpSize 32

enum cuda_host_kind {
    CUDA_HOST_SYNC,
    CUDA_HOST_SHUFFLE,
    CUDA_HOST_UP,
    CUDA_HOST_DOWN,
    CUDA_HOST_XOR,
    CUDA_HOST_BALLOT,
    CUDA_HOST_MATCH
};
void cuda_host_barrier(int line);
/* deposits 64 bits and an argument, returns what the operation gives this lane */
uint64_t cuda_host_warp(enum cuda_host_kind kind, unsigned mask, uint64_t value, int argument, int width);
/* shared memory of this block: the same for all threads that ask with the same key; key NULL = the launch's own */
void *cuda_host_shared(const void *key, size_t bytes);
void cuda_host_launch_new(const char *name, dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream,
                          void (*call)(void *arguments), void (*drop)(void *arguments), void *arguments);

#define __syncthreads() cuda_host_barrier(__LINE__)
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    cuda_host_warp(CUDA_HOST_SYNC, mask, 0, 0, 32);
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

template <class T> static inline T cuda_host_shuffle(enum cuda_host_kind kind, unsigned mask, T value, int argument, int width)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves 64 bits at most");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = cuda_host_warp(kind, mask, bits, argument, width);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32)
{
    return cuda_host_shuffle(CUDA_HOST_SHUFFLE, mask, value, lane, width);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    return cuda_host_shuffle(CUDA_HOST_UP, mask, value, (int)by, width);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    return cuda_host_shuffle(CUDA_HOST_DOWN, mask, value, (int)by, width);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32)
{
    return cuda_host_shuffle(CUDA_HOST_XOR, mask, value, lanes, width);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return (unsigned)cuda_host_warp(CUDA_HOST_BALLOT, mask, predicate != 0, 0, 32);
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return (unsigned)cuda_host_warp(CUDA_HOST_MATCH, mask, bits, 0, 32);
}

/* every lane's bytes to every lane, 32 of them at all: for what on a GPU a warp does together, as matrix instructions */
static inline void cuda_host_warp_gather(const void *own, size_t bytes, void *all)
{
    for (int lane = 0; lane < 32; lane++)
        memcpy(static_cast<char *>(all) + (size_t)lane * bytes, __shfl_sync(0xffffffffu, own, lane), bytes);
    __syncwarp();
}

/* one thread runs at a time, so plain memory operations are atomic */
#define CUDA_HOST_ATOMIC(name, expression)                                                                   \
    template <class T> static inline T name(T *at, T value)                                                  \
    {                                                                                                        \
        T old = *at;                                                                                         \
        *at = (expression);                                                                                  \
        return old;                                                                                          \
    }
CUDA_HOST_ATOMIC(atomicAdd, old + value)
CUDA_HOST_ATOMIC(atomicSub, old - value)
CUDA_HOST_ATOMIC(atomicMax, old > value ? old : value)
CUDA_HOST_ATOMIC(atomicMin, old < value ? old : value)
CUDA_HOST_ATOMIC(atomicOr, old | value)
CUDA_HOST_ATOMIC(atomicAnd, old & value)
CUDA_HOST_ATOMIC(atomicExch, value)
#undef CUDA_HOST_ATOMIC
template <class T> static inline T atomicCAS(T *at, T compare, T value)
{
    T old = *at;
    *at = old == compare ? value : old;
    return old;
}

template <class T> static inline T __ldg(const T *at) { return *at; }
template <class T> static inline T __ldcs(const T *at) { return *at; }
template <class T> static inline void __stcs(T *at, T value) { *at = value; }
#define __expf(x) expf(x) /* glibc declares functions of these names */
#define __logf(x) logf(x)
static inline float __fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, sizeof y); return y; }
static inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, sizeof y); return y; }
static inline int __float_as_int(float x) { int y; memcpy(&y, &x, sizeof y); return y; }
static inline float __int_as_float(int x) { float y; memcpy(&y, &x, sizeof y); return y; }
static inline void sincospif(float x, float *s, float *c) { *s = (float)sin(3.14159265358979323846 * (double)x); *c = (float)cos(3.14159265358979323846 * (double)x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }

/* Constant per expansion and template instance: its address tells pieces of shared memory apart. */
#define SHARED(type, name, count)                                                                            \
    static const char name##_key = 0;                                                                        \
    type *const name = static_cast<type *>(cuda_host_shared(&name##_key, sizeof(type) * (size_t)(count)))
#define DYNAMIC_SHARED(type, name) type *const name = static_cast<type *>(cuda_host_shared(nullptr, 0))

template <class... P> struct cuda_host_arguments {
    void (*kernel)(P...);
    std::tuple<P...> values;
    static void call(void *self)
    {
        cuda_host_arguments *a = static_cast<cuda_host_arguments *>(self);
        std::apply(a->kernel, a->values);
    }
    static void drop(void *self)
    {
        static_cast<cuda_host_arguments *>(self)->~cuda_host_arguments();
        free(self);
    }
};
template <class... P, class... A>
static inline void cuda_host_launch_kernel(const char *name, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                                           void (*kernel)(P...), A... values)
{
    typedef cuda_host_arguments<P...> arguments;
    void *memory = aligned_alloc(64, (sizeof(arguments) + 63) / 64 * 64);
    if (!memory)
        abort();
    new (memory) arguments{kernel, std::tuple<P...>(values...)};
    cuda_host_launch_new(name, grid, block, shared_bytes, stream, arguments::call, arguments::drop, memory);
}
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                               \
    cuda_host_launch_kernel(#kernel, dim3(grid), dim3(block), shared_bytes, stream, kernel, __VA_ARGS__)

static inline const char *cuda_launched() { return cuda_host_error(); }
static inline const char *cuda_allow_shared(const void *, size_t) { return nullptr; }

#endif
