#ifndef LLMC_KERNELS_CUDA_ATTENTION_TILE_CUH
#define LLMC_KERNELS_CUDA_ATTENTION_TILE_CUH

/* Tiles of attention's operands in shared memory, for the kernels on tensor cores, and the two products of a warp's 16 rows
 * that all of them are made of. */

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/tensor_core.cuh"

/* rows [at, at + ROWS) of a run into shared memory, zeros behind `end` and from column `cols` on */
template <int ROWS, int COLS, int THREADS>
static __device__ inline void load_tile(bf16 *tile, const attention_matrix &m, int run_row, int at, int end, int col, int cols)
{
    constexpr int CHUNKS = COLS / 8, LD = COLS + 8;
    const bf16 *from = bf16_of(m, (size_t)run_row, col);
    UNROLL for (int c = (int)threadIdx.x; c < ROWS * CHUNKS; c += THREADS) {
        int row = c / CHUNKS, part = c % CHUNKS * 8;
        bool valid = at + row < end && part < cols;
        copy_16(tile + row * LD + part, from + (valid ? (size_t)(at + row) * (size_t)m.ld + (size_t)part : 0), valid ? 16 : 0);
    }
}

/* s += rows [row, row + 16) of a times the rows of b, transposed: TILES * 8 of them, of COLS numbers each */
template <int COLS, int TILES>
static __device__ inline void add_scores(float (*s)[4], const bf16 *a, int row, const bf16 *b)
{
    constexpr int LD = COLS + 8;
    UNROLL for (int k = 0; k < COLS; k += 16) {
        frag_a left = load_a(a, LD, row, k);
        UNROLL for (int t = 0; t < TILES; t += 2) {
            frag_b right[2];
            load_b(right, b, LD, t * 8, k);
            mma_bf16(s[t], left, right[0]);
            mma_bf16(s[t + 1], left, right[1]);
        }
    }
}

/* out += tiles t and t + 1 of s times the 16 rows of b that they belong to, of COLS numbers each */
template <int COLS> static __device__ inline void add_weighted(float (*out)[4], float (*s)[4], int t, const bf16 *b)
{
    constexpr int LD = COLS + 8;
    frag_a left = pack_a(s[t], s[t + 1]);
    UNROLL for (int k = 0; k < COLS / 8; k += 2) {
        frag_b right[2];
        load_b_transposed(right, b, LD, t * 8, k * 8);
        mma_bf16(out[k], left, right[0]);
        mma_bf16(out[k + 1], left, right[1]);
    }
}

#endif
