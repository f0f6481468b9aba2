/* Attention forward in bf16 on tensor cores.
 *
 * One block per tile of queries, head and sequence; 16 queries a warp.  Tiles of keys and values come by asynchronous copies,
 * the next one while this one is used; the softmax is taken on the way with a running maximum and sum (Dao,
 * FlashAttention-2, arXiv 2307.08691, algorithm 1), in base 2.  Probabilities are rounded to bf16 for the second product,
 * sums and outputs are fp32.  Queries that see most keys are started first.  Heads of other sizes use the next larger
 * instance, with zeros in shared memory behind the last dimension. */

#include "kernels/cuda/attention_tile.cuh"

/* running softmax of 16 rows: new scores -> weights, and the factor by which what was summed before shrinks */
template <int TILES> static __device__ inline void softmax_step(float (*s)[4], float c, float *most, float *sum, float *shrink)
{
    UNROLL for (int half = 0; half < 2; half++) {
        float m = most[half];
        UNROLL for (int t = 0; t < TILES; t++)
            m = fmaxf(m, fmaxf(s[t][half * 2], s[t][half * 2 + 1]));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
        float base = m == -INFINITY ? 0 : m * c, total = 0;
        shrink[half] = exp_2(most[half] * c - base);
        most[half] = m;
        UNROLL for (int t = 0; t < TILES; t++)
            for (int i = half * 2; i < half * 2 + 2; i++) {
                s[t][i] = exp_2(s[t][i] * c - base);
                total += s[t][i];
            }
        sum[half] = sum[half] * shrink[half] + total; /* this lane's columns only; lanes are added at the end */
    }
}

/* scores that the mask hides -> -inf; row, col: of element c0 of tile 0, relative to the tiles' corners */
template <int TILES>
static __device__ inline void hide(float (*s)[4], int row, int col, int end, int reach, int window)
{
    UNROLL for (int t = 0; t < TILES; t++)
        UNROLL for (int i = 0; i < 4; i++) {
            int key = col + t * 8 + i % 2, ahead = key - row - i / 2 * 8;
            if (ahead > reach || key >= end || (window && ahead <= reach - window))
                s[t][i] = -INFINITY;
        }
}

/* linear biases, by the slope in the scores' own unit; ahead: places from the row to the key of element c0 of tile 0 */
template <int TILES> static __device__ inline void bias(float (*s)[4], float ahead, float slope)
{
    UNROLL for (int t = 0; t < TILES; t++)
        UNROLL for (int i = 0; i < 4; i++)
            s[t][i] += slope * (ahead + (float)(t * 8 + i % 2 - i / 2 * 8));
}

/* a warp's rows i and i + 8 of a run, divided by their sums, and their log-sum-exps; c: of the scores' unit in that of base 2 */
template <int U>
static __device__ inline void store_rows(const attention_job &j, int h, int row0, int i, float c, const float *most, float *sum,
                                         float (*out)[4])
{
    int lane = (int)threadIdx.x % 32;
    UNROLL for (int half = 0; half < 2; half++, i += 8) {
        sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
        sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
        if (i >= j.q.length)
            continue;
        size_t row = (size_t)row0 + (size_t)i;
        float inverse = sum[half] > 0 ? 1 / sum[half] : 0;
        if (lane % 4 == 0)
            j.lse[row * (size_t)j.ldl + (size_t)h] = sum[half] > 0 ? (most[half] * c + log2f(sum[half])) * LN_2 : -INFINITY;
        UNROLL for (int t = 0; t < U / 8; t++) {
            int col = t * 8 + lane % 4 * 2;
            if (col < j.value)
                store_pair(j.mo, row, h * j.value + col, out[t][half * 2] * inverse, out[t][half * 2 + 1] * inverse);
        }
    }
}

template <int D, int U, int BM, int BN>
__global__ void __launch_bounds__(BM * 2) attention_forward(attention_job j)
{
    constexpr int THREADS = BM * 2, LDK = D + 8, LDV = U + 8, TILES = BN / 8, DEPTH = D / 16;
    constexpr bool KEEP = D <= 128; /* queries stay in registers */
    DYNAMIC_SHARED(bf16, shared);
    bf16 *tile_q = shared, *tile_k = tile_q + BM * LDK, *tile_v = tile_k + 2 * BN * LDK;
    int tile = (int)(gridDim.x - 1 - blockIdx.x), per_run = (j.q.length + BM - 1) / BM, run = tile / per_run;
    int i0 = tile % per_run * BM, h = (int)blockIdx.y, g = h / (j.heads / j.kv), sequence = (int)blockIdx.z;
    int row0 = run_row(j.q, sequence, run), place = run_place(j.q, run) + i0;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, wrow = warp * 16 + lane / 4;

    load_tile<BM, D, THREADS>(tile_q, j.mq, row0, i0, j.q.length, h * j.head, j.head);
    attention_cursor now = ATTENTION_START, next;
    bool more = next_keys(j, place, BM, BN, now);
    if (more) {
        int kr = run_row(j.k, sequence, now.run);
        load_tile<BN, D, THREADS>(tile_k, j.mk, kr, now.at, now.end, g * j.head, j.head);
        load_tile<BN, U, THREADS>(tile_v, j.mv, kr, now.at, now.end, g * j.value, j.value);
    }
    copies_commit();
    float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, out[U / 8][4] = {};
    float slope = attention_slope(j, h), c = j.softcap > 0 ? LOG2_E : j.scale * LOG2_E;
    frag_a query[KEEP ? DEPTH : 1];
    for (int step = 0; more; step++) {
        const int stage = step & 1;
        next = now;
        bool another = next_keys(j, place, BM, BN, next);
        if (another) {
            int kr = run_row(j.k, sequence, next.run);
            load_tile<BN, D, THREADS>(tile_k + (stage ^ 1) * BN * LDK, j.mk, kr, next.at, next.end, g * j.head, j.head);
            load_tile<BN, U, THREADS>(tile_v + (stage ^ 1) * BN * LDV, j.mv, kr, next.at, next.end, g * j.value, j.value);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        if constexpr (KEEP) {
            if (step == 0) {
                UNROLL for (int d = 0; d < DEPTH; d++)
                    query[d] = load_a(tile_q, LDK, warp * 16, d * 16);
            }
        }
        const bf16 *keys = tile_k + stage * BN * LDK, *values = tile_v + stage * BN * LDV;
        float s[TILES][4] = {};
        UNROLL for (int d = 0; d < DEPTH; d++) {
            frag_a a;
            if constexpr (KEEP)
                a = query[d];
            else
                a = load_a(tile_q, LDK, warp * 16, d * 16);
            UNROLL for (int t = 0; t < TILES; t += 2) {
                frag_b b[2];
                load_b(b, keys, LDK, t * 8, d * 16);
                mma_bf16(s[t], a, b[0]);
                mma_bf16(s[t + 1], a, b[1]);
            }
        }
        if (j.softcap > 0) {
            UNROLL for (int t = 0; t < TILES; t++)
                UNROLL for (int i = 0; i < 4; i++)
                    s[t][i] = j.softcap * tanhf(s[t][i] * j.scale / j.softcap);
        }
        if (slope > 0)
            bias<TILES>(s, (float)(now.at + lane % 4 * 2 - wrow - now.reach), slope * LOG2_E / c);
        if (now.at + BN - 1 > now.reach || now.at + BN > now.end ||
            (j.window && now.at - (BM - 1) <= now.reach - j.window))
            hide<TILES>(s, wrow, now.at + lane % 4 * 2, now.end, now.reach, j.window);
        float shrink[2];
        softmax_step<TILES>(s, c, most, sum, shrink);
        UNROLL for (int t = 0; t < U / 8; t++)
            for (int i = 0; i < 4; i++)
                out[t][i] *= shrink[i / 2];
        UNROLL for (int t = 0; t < TILES; t += 2)
            add_weighted<U>(out, s, t, values);
        __syncthreads();
        now = next;
        more = another;
    }
    store_rows<U>(j, h, row0, i0 + wrow, c, most, sum, out);
}

template <int D, int U, int BM, int BN> static const char *launch(const attention_job *j, cudaStream_t stream)
{
    constexpr int SHARED = (BM * (D + 8) + 2 * BN * (D + 8 + U + 8)) * 2;
    dim3 grid((unsigned)(j->q.runs * ((j->q.length + BM - 1) / BM)), (unsigned)j->heads, (unsigned)j->sequences);
    auto kernel = attention_forward<D, U, BM, BN>;
    const char *why = allow_shared((const void *)kernel, SHARED);
    if (why)
        return why;
    LAUNCH(kernel, grid, BM * 2, SHARED, stream, *j);
    return cuda_launched();
}

const char *attention_forward_bf16(const attention_job *j, cudaStream_t stream)
{
    if (j->head <= 64 && j->value <= 64)
        return launch<64, 64, 128, 64>(j, stream);
    if (j->head <= 96 && j->value <= 96)
        return launch<96, 96, 128, 64>(j, stream);
    if (j->head <= 128 && j->value <= 128)
        return launch<128, 128, 128, 64>(j, stream);
    if (j->head <= 192 && j->value <= 128)
        return launch<192, 128, 128, 64>(j, stream);
    return launch<256, 256, 64, 32>(j, stream);
}
