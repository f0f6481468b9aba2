#ifndef LLMC_KERNELS_CUDA_PRODUCTS_CUH
#define LLMC_KERNELS_CUDA_PRODUCTS_CUH

/* What our own product kernels share: the job, and which part of it a block does.
 *
 * c (+)= op(a) op(b) + bias.  Three forms:
 *   ONE      one product; blocks are (tile of n, tile of m)
 *   ROWS     each row with its own expert's b: blocks are (entry of the table of row tiles, tile of n)
 *   EXPERTS  one product per expert over its rows in every block of rows: blocks are (tile of n, tile of m, expert)
 * counts live on the device, so grids are made for the most there can be, and what isn't needed ends at once. */

#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/cuda_kernels.h"

enum product_form { FORM_ONE, FORM_ROWS, FORM_EXPERTS };
constexpr int TILE_M = 128, TILE_N = 128;

struct row_tile {
    int row, rows, expert, group;
};
struct row_group {
    int row, rows;
};
struct product_job {
    const void *a, *b, *bias;
    void *c;
    int ld_bias; /* ROWS: a row for each expert */
    int lda, ldb, ldc, m, n, k; /* EXPERTS: k is not used; ROWS: m is that of all rows */
    bool c_fp32, bias_fp32, add;
    enum product_form form;
    int experts, blocks, b_rows; /* b_rows: of one expert's part */
    const struct row_group *group; /* [block][expert] */
    const struct row_tile *tile;
    const int *ntiles;
    /* Operands of 8 bits, NULL = they aren't: what a's and b's numbers were divided by, of groups in EXPERTS, else of groups and of
     * experts.  Two are one element, as ld and k count; a is as it lies, b [n][k], in EXPERTS turned, eight_column(). */
    const float *scale_a, *scale_b;
};

/* one block's share: corner of its tile of c, what of it exists, and the operands' origins */
struct product_part {
    const void *a, *b;
    int m0, n0, m_end;     /* rows of a and c: [m0, m_end) exist */
    size_t c_row, b_row;   /* added to c's and b's rows */
    int expert, segments;  /* EXPERTS: blocks of rows; else one of k */
    int group;             /* ROWS: of its rows */
};

static __device__ inline bool product_part_get(const product_job &j, product_part &p, int tile_m, int tile_n)
{
    p.expert = p.group = 0;
    p.segments = 1;
    p.c_row = p.b_row = 0;
    p.m_end = j.m;
    if (j.form == FORM_ROWS) {
        if ((int)blockIdx.x >= *j.ntiles)
            return false;
        row_tile t = j.tile[blockIdx.x];
        p.m0 = t.row;
        p.m_end = t.row + t.rows;
        p.expert = t.expert;
        p.group = t.group;
        p.b_row = (size_t)t.expert * (size_t)j.b_rows;
        p.n0 = (int)blockIdx.y * tile_n;
        return true;
    }
    p.n0 = (int)blockIdx.x * tile_n;
    p.m0 = (int)blockIdx.y * tile_m;
    if (j.form == FORM_EXPERTS) {
        p.expert = (int)blockIdx.z;
        p.segments = j.blocks;
        p.c_row = (size_t)blockIdx.z * (size_t)j.m;
    }
    return true;
}

/* Where a group of a table begins in the rows of its turned copy: at a multiple of 16, behind the groups before it, whose
 * numbers end in zeros to a multiple of 16. */
static __device__ inline int eight_column(row_group r, int g)
{
    return (r.row + 16 * g) / 16 * 16;
}
static __device__ __host__ inline int eight_rounded(int rows)
{
    return (rows + 15) / 16 * 16;
}

/* rows [row, row + rows) of segment s are summed over */
static __device__ inline row_group product_segment(const product_job &j, const product_part &p, int s)
{
    if (j.form != FORM_EXPERTS)
        return row_group{0, j.k};
    int g = s * j.experts + p.expert;
    row_group r = j.group[g];
    return j.scale_a ? row_group{eight_column(r, g) / 2, eight_rounded(r.rows) / 2} : r;
}
/* the product of segment s as it would be of unscaled operands */
static __device__ inline float product_unscaled(const product_job &j, const product_part &p, int s, float x)
{
    int g = s * j.experts + p.expert;
    return j.form == FORM_EXPERTS ? x * j.scale_a[g] * j.scale_b[g] : x * j.scale_a[p.group] * j.scale_b[p.expert];
}

static __device__ inline float product_bias(const product_job &j, const product_part &p, int col)
{
    size_t at = (size_t)p.expert * (size_t)j.ld_bias + (size_t)col;
    return !j.bias ? 0 : j.bias_fp32 ? ((const float *)j.bias)[at] : bf16_value(((const bf16 *)j.bias)[at]);
}

static __device__ inline void product_store(const product_job &j, const product_part &p, int row, int col, float x)
{
    size_t at = (p.c_row + (size_t)row) * (size_t)j.ldc + (size_t)col;
    x += product_bias(j, p, col);
    if (j.c_fp32) {
        float *c = (float *)j.c + at;
        *c = j.add ? *c + x : x;
    } else {
        bf16 *c = (bf16 *)j.c + at;
        *c = bf16_nearest(j.add ? bf16_value(*c) + x : x);
    }
}

/* the same of two neighbours, together where they lie so */
static __device__ inline void product_store_pair(const product_job &j, const product_part &p, int row, int col, float low, float high)
{
    size_t at = (p.c_row + (size_t)row) * (size_t)j.ldc + (size_t)col;
    if (col + 1 >= j.n || ((uintptr_t)j.c + at * (j.c_fp32 ? 4 : 2)) % (j.c_fp32 ? 8 : 4)) {
        product_store(j, p, row, col, low);
        if (col + 1 < j.n)
            product_store(j, p, row, col + 1, high);
        return;
    }
    low += product_bias(j, p, col);
    high += product_bias(j, p, col + 1);
    if (j.c_fp32) {
        float2 *c = (float2 *)((float *)j.c + at), was = j.add ? *c : make_float2(0, 0);
        *c = make_float2(was.x + low, was.y + high);
    } else {
        uint32_t *c = (uint32_t *)((bf16 *)j.c + at), was = j.add ? *c : 0;
        low += __uint_as_float(was << 16);
        high += __uint_as_float(was & 0xffff0000u);
        *c = (uint32_t)bf16_nearest(low).bits | (uint32_t)bf16_nearest(high).bits << 16;
    }
}

/* NULL = launched; ta, tb: a is stored [k][m], b [n][k] */
const char *product_bf16(const product_job *j, bool ta, bool tb, cudaStream_t stream);
/* 8 bits; gradient: a is E5M2 */
const char *product_eight(const product_job *j, bool gradient, cudaStream_t stream);
const char *product_plain(const product_job *j, bool ta, bool tb, bool fp32, cudaStream_t stream);

static inline dim3 product_grid(const product_job *j, int tile_m, int tile_n)
{
    unsigned n = (unsigned)((j->n + tile_n - 1) / tile_n);
    if (j->form == FORM_ROWS)
        return dim3((unsigned)(j->m / tile_m + j->experts * j->blocks), n, 1);
    return dim3(n, (unsigned)((j->m + tile_m - 1) / tile_m), j->form == FORM_EXPERTS ? (unsigned)j->experts : 1);
}

#endif
