#ifndef LLMC_KERNELS_CUDA_ATTENTION_TILE_CUH
#define LLMC_KERNELS_CUDA_ATTENTION_TILE_CUH

/* Tiles of attention's operands in shared memory, for the kernels on tensor cores. */

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

#endif
