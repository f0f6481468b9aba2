/* Products in fp32 arithmetic, of any dtypes and any alignment: experts' in fp32, and what nobody else takes.
 *
 * A block makes 64 x 64 of c, a thread 4 x 4 of that, with steps of 16 through shared memory.  Row tiles of 128 are done
 * as two halves. */

#include "kernels/cuda/products.cuh"

constexpr int SIDE = 64, STEP_PLAIN = 16, THREADS_PLAIN = 256, OWN = 4;

/* tile[k][outer], so that both operands are read along the outer dimension */
template <class T, bool K_FIRST>
static __device__ inline void fetch_plain(float *tile, const T *x, size_t row, int ld, int o0, int o_end, int k0, int k_end)
{
    for (int i = (int)threadIdx.x; i < SIDE * STEP_PLAIN; i += THREADS_PLAIN) {
        int o = K_FIRST ? i % SIDE : i / STEP_PLAIN, k = K_FIRST ? i / SIDE : i % STEP_PLAIN;
        float v = 0;
        if (o0 + o < o_end && k0 + k < k_end)
            v = K_FIRST ? value_of(x[(row + (size_t)(k0 + k)) * (size_t)ld + (size_t)(o0 + o)])
                        : value_of(x[(row + (size_t)(o0 + o)) * (size_t)ld + (size_t)(k0 + k)]);
        tile[k * (SIDE + 1) + o] = v;
    }
}

template <class T, bool TA, bool TB> __global__ void __launch_bounds__(THREADS_PLAIN) product_simple(product_job j)
{
    SHARED(float, tile_a, STEP_PLAIN *(SIDE + 1));
    SHARED(float, tile_b, STEP_PLAIN *(SIDE + 1));
    product_part p;
    if (!product_part_get(j, p, SIDE, SIDE))
        return;
    int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16, corner = p.m0;
    for (int half = 0; half < (j.form == FORM_ROWS ? TILE_M / SIDE : 1); half++) {
        p.m0 = corner + half * SIDE;
        if (p.m0 >= p.m_end)
            return;
        float acc[OWN][OWN] = {};
        bool any = false;
        for (int s = 0; s < p.segments; s++) {
            row_group g = product_segment(j, p, s);
            for (int k = g.row; k < g.row + g.rows; k += STEP_PLAIN) {
                any = true;
                fetch_plain<T, TA>(tile_a, (const T *)j.a, 0, j.lda, p.m0, p.m_end, k, g.row + g.rows);
                fetch_plain<T, !TB>(tile_b, (const T *)j.b, p.b_row, j.ldb, p.n0, j.n, k, g.row + g.rows);
                __syncthreads();
                for (int i = 0; i < STEP_PLAIN; i++)
                    UNROLL for (int r = 0; r < OWN; r++)
                        UNROLL for (int c = 0; c < OWN; c++)
                            acc[r][c] += tile_a[i * (SIDE + 1) + y * OWN + r] * tile_b[i * (SIDE + 1) + x + c * 16];
                __syncthreads();
            }
        }
        if (j.form == FORM_EXPERTS && j.add && !any)
            return;
        UNROLL for (int r = 0; r < OWN; r++)
            UNROLL for (int c = 0; c < OWN; c++) {
                int row = p.m0 + y * OWN + r, col = p.n0 + x + c * 16;
                if (row < p.m_end && col < j.n)
                    product_store(j, p, row, col, acc[r][c]);
            }
    }
}

template <class T> static const char *launch_plain(const product_job *j, bool ta, bool tb, cudaStream_t stream)
{
    dim3 grid = product_grid(j, j->form == FORM_ROWS ? TILE_M : SIDE, SIDE);
    auto kernel = ta ? (tb ? product_simple<T, true, true> : product_simple<T, true, false>)
                     : (tb ? product_simple<T, false, true> : product_simple<T, false, false>);
    LAUNCH(kernel, grid, THREADS_PLAIN, 0, stream, *j);
    return cuda_launched();
}

const char *product_plain(const product_job *j, bool ta, bool tb, bool fp32, cudaStream_t stream)
{
    return fp32 ? launch_plain<float>(j, ta, tb, stream) : launch_plain<bf16>(j, ta, tb, stream);
}
