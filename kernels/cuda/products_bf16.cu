/* Products of matrices of bf16 or 8 bits on tensor cores: for experts, whose counts only the device knows, and where cuBLASLt isn't.
 *
 * A block makes 128 x 128 of c with 8 warps of 64 x 32; the summed dimension comes in steps of 32 through four buffers of
 * shared memory filled by asynchronous copies.  Whichever way an operand is stored, its tile keeps that order in shared
 * memory and ldmatrix transposes on the way to registers.  Numbers of 8 bits come two in place of one of bf16; where an expert's
 * sum is over several groups of rows, each with scales of its own, it is taken group by group. */

#include "kernels/cuda/products.cuh"
#include "kernels/cuda/tensor_core.cuh"

constexpr int STEP_K = 32, STAGES = 4, THREADS = 256, LD_K = STEP_K + 8, LD_M = TILE_M + 8;

/* elements of one operand's tile: [128][32] or, k first, [32][128] */
template <bool K_FIRST> static __device__ __host__ constexpr int tile_elements()
{
    return K_FIRST ? STEP_K * LD_M : TILE_M * LD_K;
}

static __device__ inline int bytes_before(int end, int at)
{
    int n = (end - at) * 2;
    return n < 0 ? 0 : n > 16 ? 16 : n;
}

/* outer [o0, o_end) and k [k0, k_end) of an operand, both in its own numbering; rows: added to its rows */
template <bool K_FIRST>
static __device__ inline void fetch(bf16 *tile, const bf16 *x, size_t row, int ld, int o0, int o_end, int k0, int k_end)
{
    constexpr int ROWS = K_FIRST ? STEP_K : TILE_M, CHUNKS = (K_FIRST ? TILE_M : STEP_K) / 8, LD = K_FIRST ? LD_M : LD_K;
    int r0 = K_FIRST ? k0 : o0, r_end = K_FIRST ? k_end : o_end, c0 = K_FIRST ? o0 : k0, c_end = K_FIRST ? o_end : k_end;
    UNROLL for (int i = (int)threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        int r = i / CHUNKS, c = i % CHUNKS * 8, bytes = r0 + r < r_end ? bytes_before(c_end, c0 + c) : 0;
        copy_16(tile + r * LD + c, bytes ? x + (row + (size_t)(r0 + r)) * (size_t)ld + (size_t)(c0 + c) : x, bytes);
    }
}

/* where the summed dimension is: element `at` of segment s, which ends at `end` */
struct walk {
    int s, at, end;
};
static __device__ inline bool walk_on(const product_job &j, const product_part &p, walk &w)
{
    w.at += STEP_K;
    while (w.at >= w.end) {
        if (++w.s >= p.segments)
            return false;
        row_group g = product_segment(j, p, w.s);
        w.at = g.row;
        w.end = g.row + g.rows;
    }
    return true;
}

enum numbers { BF16, EIGHT, EIGHT_GRADIENT };

template <enum numbers N> static __device__ inline void mma(float *c, const frag_a &a, const frag_b &b)
{
    if constexpr (N == BF16)
        mma_bf16(c, a, b);
    else
        mma_eight<N == EIGHT_GRADIENT>(c, a, b);
}

/* sum += acc unscaled, acc = 0 */
static __device__ inline void fold(const product_job &j, const product_part &p, int s, float (&sum)[4][4][4], float (&acc)[4][4][4])
{
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int t = 0; t < 4; t++)
            UNROLL for (int e = 0; e < 4; e++) {
                sum[i][t][e] += product_unscaled(j, p, s, acc[i][t][e]);
                acc[i][t][e] = 0;
            }
}

/* FOLD: there are several segments, with scales of their own */
template <bool TA, bool TB, enum numbers N, bool FOLD>
__global__ void __launch_bounds__(THREADS, FOLD ? 1 : 2) product_tensor(product_job j)
{
    constexpr int A = tile_elements<TA>(), B = tile_elements<!TB>();
    DYNAMIC_SHARED(bf16, shared);
    product_part p;
    if (!product_part_get(j, p, TILE_M, TILE_N))
        return;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, wm = warp / 4 * 64, wn = warp % 4 * 32;
    float acc[4][4][4] = {}, sum[FOLD ? 4 : 1][4][4] = {};
    walk w = {-1, 0, 0}, now = w;
    int segment = -1;
    bool more = true;
    auto fetch_next = [&](int stage) {
        more = more && walk_on(j, p, w);
        if (more) {
            bf16 *to = shared + stage * (A + B);
            fetch<TA>(to, (const bf16 *)j.a, 0, j.lda, p.m0, p.m_end, w.at, w.end);
            fetch<!TB>(to + A, (const bf16 *)j.b, p.b_row, j.ldb, p.n0, j.n, w.at, w.end);
        }
        copies_commit();
        return more;
    };
    int wanted = 0; /* steps under way or done */
    for (int s = 0; s < STAGES - 1; s++)
        wanted += fetch_next(s);
    for (int step = 0; step < wanted; step++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        wanted += fetch_next((step + STAGES - 1) % STAGES);
        if constexpr (FOLD) {
            walk_on(j, p, now);
            if (segment >= 0 && now.s != segment)
                fold(j, p, segment, sum, acc);
            segment = now.s;
        }
        const bf16 *tile_a = shared + step % STAGES * (A + B), *tile_b = tile_a + A;
        UNROLL for (int k = 0; k < STEP_K; k += 16) {
            frag_b b[4];
            UNROLL for (int t = 0; t < 4; t += 2)
                if constexpr (TB)
                    load_b(b + t, tile_b, LD_K, wn + t * 8, k);
                else
                    load_b_transposed(b + t, tile_b, LD_M, k, wn + t * 8);
            UNROLL for (int i = 0; i < 4; i++) {
                frag_a a;
                if constexpr (TA)
                    a = load_a_transposed(tile_a, LD_M, k, wm + i * 16);
                else
                    a = load_a(tile_a, LD_K, wm + i * 16, k);
                UNROLL for (int t = 0; t < 4; t++)
                    mma<N>(acc[i][t], a, b[t]);
            }
        }
    }
    copies_wait<0>();
    if (j.form == FORM_EXPERTS && j.add && !wanted)
        return; /* an expert without rows */
    if constexpr (FOLD)
        if (segment >= 0)
            fold(j, p, segment, sum, acc);
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int t = 0; t < 4; t++)
            UNROLL for (int e = 0; e < 4; e += 2) {
                int row = p.m0 + wm + i * 16 + lane / 4 + e / 2 * 8, col = p.n0 + wn + t * 8 + lane % 4 * 2;
                float x[2] = {acc[i][t][e], acc[i][t][e + 1]};
                UNROLL for (int k = 0; k < 2; k++)
                    if constexpr (FOLD)
                        x[k] = sum[i][t][e + k];
                    else if constexpr (N != BF16)
                        x[k] = product_unscaled(j, p, 0, x[k]);
                if (row < p.m_end && col < j.n)
                    product_store_pair(j, p, row, col, x[0], x[1]);
            }
}

template <bool TA, bool TB, enum numbers N = BF16, bool FOLD = false> static const char *launch(const product_job *j, cudaStream_t stream)
{
    constexpr int SHARED_BYTES = STAGES * (tile_elements<TA>() + tile_elements<!TB>()) * (int)sizeof(bf16);
    auto kernel = product_tensor<TA, TB, N, FOLD>;
    const char *why = allow_shared((const void *)kernel, SHARED_BYTES);
    if (why)
        return why;
    LAUNCH(kernel, product_grid(j, TILE_M, TILE_N), THREADS, SHARED_BYTES, stream, *j);
    return cuda_launched();
}

const char *product_bf16(const product_job *j, bool ta, bool tb, cudaStream_t stream)
{
    if (ta)
        return tb ? launch<true, true>(j, stream) : launch<true, false>(j, stream);
    return tb ? launch<false, true>(j, stream) : launch<false, false>(j, stream);
}

const char *product_eight(const product_job *j, bool gradient, cudaStream_t stream)
{
    if (j->form == FORM_EXPERTS && j->blocks > 1)
        return launch<false, true, EIGHT_GRADIENT, true>(j, stream);
    return gradient ? launch<false, true, EIGHT_GRADIENT>(j, stream) : launch<false, true, EIGHT>(j, stream);
}
