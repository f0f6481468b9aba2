#ifndef LLMC_CUDA_PACK_CUH
#define LLMC_CUDA_PACK_CUH

/* What the memory-bound kernels share: bf16 and packs of eight elements as fp32, sums over the threads of a row, and the
 * launch shapes that go with them.
 *
 * A pack is N = 8 neighbouring elements, moved 16 bytes at a time, where rows begin at multiples of 16 bytes and have
 * whole packs; else N = 1.  Kernels are templates over N and element types; all arithmetic is fp32 or fp64. */

#include "kernels/cuda/reduce.cuh"

#define OPERAND(op, name) (c->args->operand[OPND(op, name)])
#define INTEGER(op, name) (c->args->attr[ATTR(op, name)].i)
#define NUMBER(op, name) (c->args->attr[ATTR(op, name)].f)

enum { PACK = 8, BLOCK = 256 /* threads, where nothing else is said */ };
static const unsigned GRID_Y = 65535; /* the most blocks a grid has in y */

struct bf16 {
    uint16_t bits;
};

static __device__ __forceinline__ float widen(float x)
{
    return x;
}
static __device__ __forceinline__ float widen(bf16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}

/* two numbers to bf16, to nearest, ties to even; the first in the low half */
static __device__ __forceinline__ unsigned narrow2(float low, float high)
{
#if defined(__CUDA_ARCH__)
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    unsigned half[2];
    float x[2] = {low, high};
    for (int i = 0; i < 2; i++) {
        unsigned bits = __float_as_uint(x[i]);
        half[i] = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    }
    return half[0] | half[1] << 16;
#endif
}
template <class T> static __device__ __forceinline__ T narrow(float x);
template <> __device__ __forceinline__ float narrow<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ bf16 narrow<bf16>(float x)
{
    return bf16{(uint16_t)narrow2(x, 0)};
}

/* N elements from memory as fp32, and back */
template <int N> static __device__ __forceinline__ void load(float *v, const float *at)
{
    if constexpr (N == 1) {
        v[0] = *at;
    } else {
        UNROLL for (int j = 0; j < N; j += 4)
        {
            float4 four = *reinterpret_cast<const float4 *>(at + j);
            v[j] = four.x, v[j + 1] = four.y, v[j + 2] = four.z, v[j + 3] = four.w;
        }
    }
}
static __device__ __forceinline__ void widen_eight(float *v, uint4 eight)
{
    unsigned word[4] = {eight.x, eight.y, eight.z, eight.w};
    UNROLL for (int j = 0; j < 8; j++) v[j] = __uint_as_float(j & 1 ? word[j / 2] & 0xffff0000u : word[j / 2] << 16);
}
template <int N> static __device__ __forceinline__ void load(float *v, const bf16 *at)
{
    if constexpr (N == 1)
        v[0] = widen(*at);
    else
        widen_eight(v, *reinterpret_cast<const uint4 *>(at));
}
template <int N> static __device__ __forceinline__ void store(float *at, const float *v)
{
    if constexpr (N == 1) {
        *at = v[0];
    } else {
        UNROLL for (int j = 0; j < N; j += 4)
            *reinterpret_cast<float4 *>(at + j) = make_float4(v[j], v[j + 1], v[j + 2], v[j + 3]);
    }
}
template <int N> static __device__ __forceinline__ void store(bf16 *at, const float *v)
{
    if constexpr (N == 1) {
        *at = narrow<bf16>(v[0]);
    } else {
        uint4 eight = {narrow2(v[0], v[1]), narrow2(v[2], v[3]), narrow2(v[4], v[5]), narrow2(v[6], v[7])};
        *reinterpret_cast<uint4 *>(at) = eight;
    }
}
/* a pack as it came from memory: as bf16 half of the registers of what it is as fp32 */
template <class T> struct raw_pack;
template <> struct raw_pack<float> {
    float4 half[2];
    __device__ __forceinline__ void load(const float *at)
    {
        half[0] = reinterpret_cast<const float4 *>(at)[0];
        half[1] = reinterpret_cast<const float4 *>(at)[1];
    }
    __device__ __forceinline__ void widen(float *v) const
    {
        UNROLL for (int i = 0; i < 2; i++)
        {
            v[4 * i] = half[i].x, v[4 * i + 1] = half[i].y;
            v[4 * i + 2] = half[i].z, v[4 * i + 3] = half[i].w;
        }
    }
};
template <> struct raw_pack<bf16> {
    uint4 eight;
    __device__ __forceinline__ void load(const bf16 *at)
    {
        eight = *reinterpret_cast<const uint4 *>(at);
    }
    __device__ __forceinline__ void widen(float *v) const
    {
        widen_eight(v, eight);
    }
};
/* at = v, or += v */
template <int N, class T> static __device__ __forceinline__ void put(T *at, float *v, bool add)
{
    float old[N];
    if (add) {
        load<N>(old, at);
        UNROLL for (int j = 0; j < N; j++) v[j] += old[j];
    }
    store<N>(at, v);
}

/* Launch shapes, on the host. */

static inline bool view_packed(const struct view *v)
{
    size_t size = isa_dtype_bytes(v->dtype);
    return !v->data || ((uintptr_t)v->data % 16 == 0 && v->cols % PACK == 0 && (v->rows == 1 || v->ld * size % 16 == 0));
}

static inline unsigned power_of_two(size_t at_least, unsigned most)
{
    unsigned n = 1;
    while (n < at_least && n < most)
        n *= 2;
    return n;
}
static inline unsigned blocks_for(size_t n, size_t per_block)
{
    return (unsigned)((n + per_block - 1) / per_block);
}

/* threads of x for columns and y for rows, one pack per thread; rows beyond the grid by a loop over gridDim.y */
struct shape {
    dim3 grid, block;
};
static inline struct shape map_shape(size_t rows, size_t packs)
{
    unsigned x = power_of_two(packs, BLOCK), y = BLOCK / x;
    unsigned down = blocks_for(rows, y);
    struct shape s = {dim3(blocks_for(packs, x), down < GRID_Y ? down : GRID_Y), dim3(x, y)};
    return s;
}

/* A row of packs per group of threads: how many packs each thread keeps in registers, 1, 2 or 4, by at most ROW_THREADS
 * threads, so that each may have 128 registers; 0 = rows are too wide, they are read again. */
const unsigned ROW_THREADS = 512, WIDE_ROW_THREADS = 1024;
#define ROW_BOUNDS(keep) __launch_bounds__((keep) ? ROW_THREADS : WIDE_ROW_THREADS)
struct row_shape {
    dim3 grid, block;
    int keep;
};
static inline struct row_shape row_shape(size_t rows, size_t packs, int n)
{
    unsigned x = packs <= 32 ? power_of_two(packs, 32) : 32, y;
    int keep = packs <= 32 ? 1 : packs <= 64 ? 2 : 4;
    if (packs > 128) {
        keep = packs <= 1024 ? 2 : 4;
        x = blocks_for(packs, 32 * (size_t)keep) * 32;
    }
    if (n == 1 || x > ROW_THREADS) {
        keep = 0;
        x = packs <= 32 ? x : packs < WIDE_ROW_THREADS ? blocks_for(packs, 32) * 32 : WIDE_ROW_THREADS;
        x = x > 256 && n == 1 ? 256 : x;
    }
    y = x <= 32 ? BLOCK / x : 1;
    struct row_shape s = {dim3(blocks_for(rows, y)), dim3(x, y), keep};
    return s;
}

/* dtype as a template argument: f<float>(...) or f<bf16>(...) */
#define BY_DTYPE(dtype_, f, ...) ((dtype_) == DTYPE_F32 ? f<float>(__VA_ARGS__) : f<bf16>(__VA_ARGS__))

#endif
