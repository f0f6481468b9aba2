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
    int row, rows, expert, spare;
};
struct row_group {
    int row, rows;
};
struct product_job {
    const void *a, *b, *bias;
    void *c;
    int lda, ldb, ldc, m, n, k; /* EXPERTS: k is not used; ROWS: m is that of all rows */
    bool c_fp32, bias_fp32, add;
    enum product_form form;
    int experts, blocks, b_rows; /* b_rows: of one expert's part */
    const struct row_group *group; /* [block][expert] */
    const struct row_tile *tile;
    const int *ntiles;
};

/* one block's share: corner of its tile of c, what of it exists, and the operands' origins */
struct product_part {
    const void *a, *b;
    int m0, n0, m_end;     /* rows of a and c: [m0, m_end) exist */
    size_t c_row, b_row;   /* added to c's and b's rows */
    int expert, segments;  /* EXPERTS: blocks of rows; else one of k */
};

static __device__ inline bool product_part_get(const product_job &j, product_part &p, int tile_m, int tile_n)
{
    p.expert = 0;
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

/* rows [row, row + rows) of segment s are summed over */
static __device__ inline row_group product_segment(const product_job &j, const product_part &p, int s)
{
    return j.form == FORM_EXPERTS ? j.group[s * j.experts + p.expert] : row_group{0, j.k};
}

static __device__ inline float product_bias(const product_job &j, int col)
{
    return !j.bias ? 0 : j.bias_fp32 ? ((const float *)j.bias)[col] : bf16_value(((const bf16 *)j.bias)[col]);
}

static __device__ inline void product_store(const product_job &j, const product_part &p, int row, int col, float x)
{
    size_t at = (p.c_row + (size_t)row) * (size_t)j.ldc + (size_t)col;
    x += product_bias(j, col);
    if (j.c_fp32) {
        float *c = (float *)j.c + at;
        *c = j.add ? *c + x : x;
    } else {
        bf16 *c = (bf16 *)j.c + at;
        *c = bf16_nearest(j.add ? bf16_value(*c) + x : x);
    }
}

/* NULL = launched; ta, tb: a is stored [k][m], b [n][k] */
const char *product_bf16(const product_job *j, bool ta, bool tb, cudaStream_t stream);
const char *product_plain(const product_job *j, bool ta, bool tb, bool fp32, cudaStream_t stream);

static inline dim3 product_grid(const product_job *j, int tile_m, int tile_n)
{
    unsigned n = (unsigned)((j->n + tile_n - 1) / tile_n);
    if (j->form == FORM_ROWS)
        return dim3((unsigned)(j->m / tile_m + j->experts * j->blocks), n, 1);
    return dim3(n, (unsigned)((j->m + tile_m - 1) / tile_m), j->form == FORM_EXPERTS ? (unsigned)j->experts : 1);
}

#endif
