#ifndef LLMC_KERNELS_CUDA_TENSOR_CORE_CUH
#define LLMC_KERNELS_CUDA_TENSOR_CORE_CUH

/* bf16 products of one warp, 16 x 8 x 16, and what feeds them: fragments from shared memory, copies into it.
 *
 * Every function is one instruction or two (PTX ISA, sections on mma.m16n8k16, ldmatrix and cp.async; all from sm_80 on)
 * with a plain version beside it that the emulation of tests/emulated runs, so that the algorithms above are tested without a GPU.
 * Layout of fragments, with g = lane / 4 and t = lane % 4:
 *   a  16 x 16, rows by k:    r0 = (g, 2t..)  r1 = (g + 8, 2t..)  r2 = (g, 2t + 8..)  r3 = (g + 8, 2t + 8..)
 *   b  16 x 8, k by columns:  r0 = (2t.., g)  r1 = (2t + 8.., g)
 *   c  16 x 8, fp32:          c0 = (g, 2t)  c1 = (g, 2t + 1)  c2 = (g + 8, 2t)  c3 = (g + 8, 2t + 1)
 * Tiles in shared memory are row-major with `ld` elements from row to row.  Rows of 8 elements more than a power of two
 * put the 8 rows of 16 bytes that ldmatrix reads at once into different banks. */

#include "kernels/cuda/bf16.cuh"

struct frag_a {
    uint32_t r[4];
};
struct frag_b {
    uint32_t r[2];
};

/* two neighbouring 16 x 8 results, rounded, as the 16 x 16 left operand of the next product */
static __device__ inline struct frag_a pack_a(const float *c0, const float *c1)
{
    return {{pack_bf16(c0[0], c0[1]), pack_bf16(c0[2], c0[3]), pack_bf16(c1[0], c1[1]), pack_bf16(c1[2], c1[3])}};
}

#ifdef __CUDACC__
static __device__ inline void mma_bf16(float *c, const struct frag_a &a, const struct frag_b &b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
}

/* 16 x 8 x 32 of 8 bits: fragments are those of bf16 with two numbers in place of one; b is E4M3, a E4M3 or E5M2 */
template <bool E5M2> static __device__ inline void mma_eight(float *c, const struct frag_a &a, const struct frag_b &b)
{
#if __CUDA_ARCH__ >= 890
    if (E5M2)
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
#else
    (void)c, (void)a, (void)b;
    __trap(); /* refused on such a GPU before it comes here */
#endif
}

static __device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ inline void ldmatrix(uint32_t *r, const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}

static __device__ inline void ldmatrix_trans(uint32_t *r, const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}

/* 16 bytes of shared memory: the first `bytes` from `from`, which is aligned to 16 too, then zeros; done at copies_wait */
static __device__ inline void copy_16(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes));
}
static __device__ inline void copies_commit(void)
{
    asm volatile("cp.async.commit_group;");
}
/* all but the last `pending` committed groups are in shared memory, for this thread: then __syncthreads */
template <int pending> static __device__ inline void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending));
}
#else
/* Operands are exchanged through shared memory, as fp32; two buffers in turn, so that one barrier per product is enough:
 * who is at the product after the next has seen everybody leave this one. */
static inline void mma_bf16(float *c, const struct frag_a &a, const struct frag_b &b)
{
    SHARED(float, exchange, 8 * 2 * 24 * 16);
    SHARED(uint32_t, turn, 8 * 32);
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float(*row)[16] = (float(*)[16])exchange + (threadIdx.x / 32 * 2 + (turn[threadIdx.x]++ & 1)) * 24; /* 16 of a, 8 of b' */
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t pair = i < 4 ? a.r[i] : b.r[i - 4];
        float *to = i < 4 ? &row[g + i % 2 * 8][2 * t + i / 2 * 8] : &row[16 + g][2 * t + (i - 4) * 8];
        to[0] = __uint_as_float(pair << 16);
        to[1] = __uint_as_float(pair & 0xffff0000u);
    }
    __syncwarp();
    for (uint32_t i = 0; i < 4; i++) {
        const float *x = row[g + i / 2 * 8], *y = row[16 + 2 * t + i % 2];
        float sum = 0;
        for (uint32_t k = 0; k < 16; k++)
            sum += x[k] * y[k];
        c[i] += sum;
    }
}

static inline float eight_value(uint32_t code, bool e5m2)
{
    uint32_t mantissa = e5m2 ? 2 : 3, field = code >> mantissa & (e5m2 ? 31 : 15), low = code & ((1u << mantissa) - 1);
    float x = field ? ldexpf((float)(low + (1u << mantissa)), (int)field - 1) : (float)low;
    x = (e5m2 ? field == 31 : (code & 127) == 127) ? NAN : ldexpf(x, e5m2 ? -16 : -9);
    return code & 128 ? -x : x;
}
template <bool E5M2> static inline void mma_eight(float *c, const struct frag_a &a, const struct frag_b &b)
{
    SHARED(uint16_t, exchange, 8 * 2 * 24 * 32); /* upper halves of fp32, which hold any of 8 bits */
    SHARED(uint32_t, turn, 8 * 32);
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint16_t(*row)[32] = (uint16_t(*)[32])exchange + (threadIdx.x / 32 * 2 + (turn[threadIdx.x]++ & 1)) * 24; /* 16 of a, 8 of b' */
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t code = (i < 4 ? a.r[i] : b.r[i - 4]) >> 8 * k & 255;
            uint16_t *to = i < 4 ? row[g + i % 2 * 8] + i / 2 * 16 : row[16 + g] + (i - 4) * 16;
            to[4 * t + k] = (uint16_t)(__float_as_uint(eight_value(code, E5M2 && i < 4)) >> 16);
        }
    __syncwarp();
    for (uint32_t i = 0; i < 4; i++) {
        const uint16_t *x = row[g + i / 2 * 8], *y = row[16 + 2 * t + i % 2];
        float sum = 0;
        for (uint32_t k = 0; k < 32; k++)
            sum += __uint_as_float((uint32_t)x[k] << 16) * __uint_as_float((uint32_t)y[k] << 16);
        c[i] += sum;
    }
}

/* lane's two elements of an 8 x 8 matrix whose rows begin at corner, corner + ld, ... */
static inline uint32_t matrix_pair(const bf16 *corner, int ld, bool transposed)
{
    int g = (int)(threadIdx.x % 32 / 4), t = (int)(threadIdx.x % 4);
    uint16_t pair[2];
    for (int i = 0; i < 2; i++)
        memcpy(&pair[i], transposed ? corner + (2 * t + i) * ld + g : corner + g * ld + 2 * t + i, 2);
    return pair[0] | (uint32_t)pair[1] << 16;
}

static inline void copy_16(void *to, const void *from, int bytes)
{
    memset(to, 0, 16);
    memcpy(to, from, (size_t)bytes);
}
static inline void copies_commit(void)
{
}
template <int pending> static inline void copies_wait(void)
{
}
#endif

/* a = tile[row .. +16)[col .. +16) */
static __device__ inline struct frag_a load_a(const bf16 *tile, int ld, int row, int col)
{
    struct frag_a a;
#ifdef __CUDACC__
    int lane = (int)(threadIdx.x % 32);
    ldmatrix(a.r, tile + (row + lane % 16) * ld + col + lane / 16 * 8);
#else
    for (int i = 0; i < 4; i++)
        a.r[i] = matrix_pair(tile + (row + i % 2 * 8) * ld + col + i / 2 * 8, ld, false);
#endif
    return a;
}

/* a = the transpose of tile[row .. +16)[col .. +16): its columns are the rows of the product */
static __device__ inline struct frag_a load_a_transposed(const bf16 *tile, int ld, int row, int col)
{
    struct frag_a a;
#ifdef __CUDACC__
    int lane = (int)(threadIdx.x % 32);
    ldmatrix_trans(a.r, tile + (row + lane % 8 + lane / 16 * 8) * ld + col + lane / 8 % 2 * 8);
#else
    for (int i = 0; i < 4; i++)
        a.r[i] = matrix_pair(tile + (row + i / 2 * 8) * ld + col + i % 2 * 8, ld, true);
#endif
    return a;
}

/* b[0], b[1] = the transposes of tile[row .. +8)[col .. +16) and of the 8 rows after: rows are the product's columns */
static __device__ inline void load_b(struct frag_b *b, const bf16 *tile, int ld, int row, int col)
{
#ifdef __CUDACC__
    int lane = (int)(threadIdx.x % 32);
    uint32_t r[4];
    ldmatrix(r, tile + (row + lane % 8 + lane / 16 * 8) * ld + col + lane / 8 % 2 * 8);
    b[0] = {{r[0], r[1]}};
    b[1] = {{r[2], r[3]}};
#else
    for (int i = 0; i < 4; i++)
        b[i / 2].r[i % 2] = matrix_pair(tile + (row + i / 2 * 8) * ld + col + i % 2 * 8, ld, false);
#endif
}

/* b[0], b[1] = tile[row .. +16)[col .. +8) and the 8 columns after: rows are the summed dimension */
static __device__ inline void load_b_transposed(struct frag_b *b, const bf16 *tile, int ld, int row, int col)
{
#ifdef __CUDACC__
    int lane = (int)(threadIdx.x % 32);
    uint32_t r[4];
    ldmatrix_trans(r, tile + (row + lane % 16) * ld + col + lane / 16 * 8);
    b[0] = {{r[0], r[1]}};
    b[1] = {{r[2], r[3]}};
#else
    for (int i = 0; i < 4; i++)
        b[i / 2].r[i % 2] = matrix_pair(tile + (row + i % 2 * 8) * ld + col + i / 2 * 8, ld, true);
#endif
}

#endif
