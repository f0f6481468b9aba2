/* The gradient of attention in bf16 on tensor cores, without atomics: same bits every time.
 *
 * Three kernels: delta = rows' sums of dout o; then one over tiles of queries for dq, and one over tiles of keys for dk and
 * dv, which adds up over the query heads of its key head, over runs and over tiles of queries in that order.  Both
 * recompute probabilities from the log-sum-exp (Dao, FlashAttention-2, arXiv 2307.08691, algorithm 2): P = e^(S - lse),
 * dS = P (dout V' - delta), dq = scale dS K, dk = scale dS' Q, dv = P' dout.  Seven products instead of the five that one
 * kernel with atomics would do; what is bought is a fixed order and no fp32 copy of dq.  The kernel over keys computes
 * transposed scores, so that its results are the left operands of its second products without a way through shared memory.
 * Where dk and dv do not fit in registers together (heads of more than 320 dimensions, keys and values), two passes. */

#include "kernels/cuda/attention_tile.cuh"

/* log-sum-exps (base 2) and deltas of queries [at, at + ROWS) into shared memory; +inf where there is none: weight 0 */
template <int ROWS, int THREADS>
static __device__ inline void load_rows(float *lse, float *delta, const attention_job &j, int row0, int at, int end, int h)
{
    for (int i = (int)threadIdx.x; i < ROWS; i += THREADS) {
        size_t row = (size_t)(row0 + at + i);
        float l = at + i < end ? j.lse[row * (size_t)j.ldl + (size_t)h] : INFINITY;
        lse[i] = l == -INFINITY ? INFINITY : l * LOG2_E;
        delta[i] = at + i < end ? j.delta[row * (size_t)j.heads + (size_t)h] : 0;
    }
}

/* one score and its product with dout -> probability p and the gradient by the raw score, divided by scale */
static __device__ inline void gradient(const attention_job &j, bool seen, float bias, float lse, float delta, float &s, float &ds)
{
    float slope = 1, x = s * j.scale;
    if (j.softcap > 0) {
        float ratio = tanhf(x / j.softcap);
        slope = 1 - ratio * ratio;
        x = j.softcap * ratio;
    }
    s = seen ? exp_2((x + bias) * LOG2_E - lse) : 0;
    ds = s * (ds - delta) * slope;
}

template <int D, int U, int BM, int BN> __global__ void __launch_bounds__(BM * 2) attention_dq(attention_job j)
{
    constexpr int THREADS = BM * 2, LDK = D + 8, LDV = U + 8, TILES = BN / 8;
    DYNAMIC_SHARED(bf16, shared);
    bf16 *tile_q = shared, *tile_do = tile_q + BM * LDK, *tile_k = tile_do + BM * LDV, *tile_v = tile_k + 2 * BN * LDK;
    float *lse = (float *)(tile_v + 2 * BN * LDV), *delta = lse + BM;
    int tile = (int)(gridDim.x - 1 - blockIdx.x), per_run = (j.q.length + BM - 1) / BM, run = tile / per_run;
    int i0 = tile % per_run * BM, h = (int)blockIdx.y, g = h / (j.heads / j.kv), sequence = (int)blockIdx.z;
    int row0 = run_row(j.q, sequence, run), place = run_place(j.q, run) + i0;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, wrow = warp * 16 + lane / 4;

    load_tile<BM, D, THREADS>(tile_q, j.mq, row0, i0, j.q.length, h * j.head, j.head);
    load_tile<BM, U, THREADS>(tile_do, j.dout, row0, i0, j.q.length, h * j.value, j.value);
    load_rows<BM, THREADS>(lse, delta, j, row0, i0, j.q.length, h);
    attention_cursor now = ATTENTION_START, next;
    bool more = next_keys(j, place, BM, BN, now);
    if (more) {
        int kr = run_row(j.k, sequence, now.run);
        load_tile<BN, D, THREADS>(tile_k, j.mk, kr, now.at, now.end, g * j.head, j.head);
        load_tile<BN, U, THREADS>(tile_v, j.mv, kr, now.at, now.end, g * j.value, j.value);
    }
    copies_commit();
    float dq[D / 8][4] = {}, steep = attention_slope(j, h);
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
        const bf16 *keys = tile_k + stage * BN * LDK, *values = tile_v + stage * BN * LDV;
        float s[TILES][4] = {}, ds[TILES][4] = {};
        add_scores<D, TILES>(s, tile_q, warp * 16, keys);
        add_scores<U, TILES>(ds, tile_do, warp * 16, values);
        const float near = (float)(now.at + lane % 4 * 2 - wrow - now.reach); /* places from row to key of element c0 */
        UNROLL for (int t = 0; t < TILES; t++)
            UNROLL for (int i = 0; i < 4; i++) {
                int row = wrow + i / 2 * 8, key = now.at + t * 8 + lane % 4 * 2 + i % 2, ahead = key - row;
                bool seen = ahead <= now.reach && key < now.end && (!j.window || ahead > now.reach - j.window);
                gradient(j, seen, steep * (near + (float)(t * 8 + i % 2 - i / 2 * 8)), lse[row], delta[row], s[t][i], ds[t][i]);
            }
        UNROLL for (int t = 0; t < TILES; t += 2)
            add_weighted<D>(dq, ds, t, keys);
        __syncthreads();
        now = next;
        more = another;
    }
    UNROLL for (int half = 0; half < 2; half++) {
        int i = i0 + wrow + half * 8;
        UNROLL for (int t = 0; t < D / 8; t++) {
            int col = t * 8 + lane % 4 * 2;
            if (i < j.q.length && col < j.head)
                store_pair(j.dq, (size_t)(row0 + i), h * j.head + col, dq[t][half * 2] * j.scale, dq[t][half * 2 + 1] * j.scale);
        }
    }
}

/* a warp's 16 keys: results of two passes of the same shape */
template <int COLS>
static __device__ inline void store_keys(const attention_matrix &m, float (*c)[4], size_t row0, int at, int length, int col0,
                                         int cols, float factor)
{
    int lane = (int)threadIdx.x % 32;
    UNROLL for (int half = 0; half < 2; half++) {
        int key = at + lane / 4 + half * 8;
        UNROLL for (int t = 0; t < COLS / 8; t++) {
            int col = t * 8 + lane % 4 * 2;
            if (key < length && col < cols)
                store_pair(m, row0 + (size_t)key, col0 + col, c[t][half * 2] * factor, c[t][half * 2 + 1] * factor);
        }
    }
}

/* WITH_K: dk; WITH_V: dv; BN keys a block, BM queries at a time */
template <int D, int U, int BM, int BN, bool WITH_K, bool WITH_V>
__global__ void __launch_bounds__(BN * 2) attention_dkv(attention_job j)
{
    constexpr int THREADS = BN * 2, LDK = D + 8, LDV = U + 8, TILES = BM / 8;
    DYNAMIC_SHARED(bf16, shared);
    bf16 *tile_k = shared, *tile_v = tile_k + BN * LDK, *tile_q = tile_v + BN * LDV, *tile_do = tile_q + 2 * BM * LDK;
    float *rows = (float *)(tile_do + 2 * BM * LDV); /* two stages of lse, then delta */
    int per_run = (j.k.length + BN - 1) / BN, run = (int)blockIdx.x / per_run, j0 = (int)blockIdx.x % per_run * BN;
    int g = (int)blockIdx.y, sequence = (int)blockIdx.z, group = j.heads / j.kv;
    int row0 = run_row(j.k, sequence, run), place = run_place(j.k, run) + j0;
    int keys_here = j.k.length - j0 < BN ? j.k.length - j0 : BN;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, wkey = warp * 16 + lane / 4;

    load_tile<BN, D, THREADS>(tile_k, j.mk, row0, j0, j.k.length, g * j.head, j.head);
    load_tile<BN, U, THREADS>(tile_v, j.mv, row0, j0, j.k.length, g * j.value, j.value);
    auto fetch = [&](const attention_cursor &c, int h, int stage) {
        int qr = run_row(j.q, sequence, c.run);
        load_tile<BM, D, THREADS>(tile_q + stage * BM * LDK, j.mq, qr, c.at, c.end, h * j.head, j.head);
        load_tile<BM, U, THREADS>(tile_do + stage * BM * LDV, j.dout, qr, c.at, c.end, h * j.value, j.value);
        load_rows<BM, THREADS>(rows + stage * 2 * BM, rows + stage * 2 * BM + BM, j, qr, c.at, c.end, h);
    };
    const attention_cursor start = ATTENTION_START;
    attention_cursor now = start, next;
    bool more = next_queries(j, place, keys_here, BM, now);
    int h = g * group, next_h;
    if (more)
        fetch(now, h, 0);
    copies_commit();
    float steep = attention_slope(j, h);
    float dk[WITH_K ? D / 8 : 1][4] = {}, dv[WITH_V ? U / 8 : 1][4] = {};
    for (int step = 0; more; step++) {
        const int stage = step & 1;
        next = now;
        next_h = h;
        bool another = next_queries(j, place, keys_here, BM, next);
        if (!another && h + 1 < (g + 1) * group) {
            next = start;
            next_h = h + 1;
            another = next_queries(j, place, keys_here, BM, next);
        }
        if (another)
            fetch(next, next_h, stage ^ 1);
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        const bf16 *query = tile_q + stage * BM * LDK, *dout = tile_do + stage * BM * LDV;
        const float *lse = rows + stage * 2 * BM, *delta = lse + BM;
        float s[TILES][4] = {}, ds[TILES][4] = {};
        add_scores<D, TILES>(s, tile_k, warp * 16, query);
        if constexpr (WITH_K)
            add_scores<U, TILES>(ds, tile_v, warp * 16, dout);
        const float near = (float)(now.reach + wkey - now.at - lane % 4 * 2); /* the same; rows are columns here */
        UNROLL for (int t = 0; t < TILES; t++)
            UNROLL for (int i = 0; i < 4; i++) {
                int key = wkey + i / 2 * 8, column = t * 8 + lane % 4 * 2 + i % 2, behind = now.at + column - key;
                bool seen = behind >= now.reach && (!j.window || behind < now.reach + j.window);
                gradient(j, seen, steep * (near + (float)(i / 2 * 8 - t * 8 - i % 2)), lse[column], delta[column], s[t][i], ds[t][i]);
            }
        UNROLL for (int t = 0; t < TILES; t += 2) {
            if constexpr (WITH_V)
                add_weighted<U>(dv, s, t, dout);
            if constexpr (WITH_K)
                add_weighted<D>(dk, ds, t, query);
        }
        __syncthreads();
        now = next;
        if (next_h != h)
            steep = attention_slope(j, next_h);
        h = next_h;
        more = another;
    }
    if constexpr (WITH_K)
        store_keys<D>(j.dk, dk, (size_t)row0, j0 + warp * 16, j.k.length, g * j.head, j.head, j.scale);
    if constexpr (WITH_V)
        store_keys<U>(j.dv, dv, (size_t)row0, j0 + warp * 16, j.k.length, g * j.value, j.value, 1);
}

template <int D, int U, int BM, int BN> static const char *launch_dq(const attention_job *j, cudaStream_t stream)
{
    constexpr int SHARED = (BM + 2 * BN) * (D + 8 + U + 8) * 2 + 2 * BM * 4;
    dim3 grid((unsigned)(j->q.runs * ((j->q.length + BM - 1) / BM)), (unsigned)j->heads, (unsigned)j->sequences);
    auto kernel = attention_dq<D, U, BM, BN>;
    const char *why = allow_shared((const void *)kernel, SHARED);
    if (why)
        return why;
    LAUNCH(kernel, grid, BM * 2, SHARED, stream, *j);
    return cuda_launched();
}

template <int D, int U, int BM, int BN, bool WITH_K, bool WITH_V>
static const char *launch_dkv(const attention_job *j, cudaStream_t stream)
{
    constexpr int SHARED = (BN + 2 * BM) * (D + 8 + U + 8) * 2 + 4 * BM * 4;
    dim3 grid((unsigned)(j->k.runs * ((j->k.length + BN - 1) / BN)), (unsigned)j->kv, (unsigned)j->sequences);
    auto kernel = attention_dkv<D, U, BM, BN, WITH_K, WITH_V>;
    const char *why = allow_shared((const void *)kernel, SHARED);
    if (why)
        return why;
    LAUNCH(kernel, grid, BN * 2, SHARED, stream, *j);
    return cuda_launched();
}

const char *attention_backward_bf16(const attention_job *j, cudaStream_t stream)
{
    const char *why = attention_delta(j, false, stream);
    if (why)
        return why;
    if (j->head <= 64 && j->value <= 64) {
        why = launch_dq<64, 64, 128, 64>(j, stream);
        return why ? why : launch_dkv<64, 64, 64, 128, true, true>(j, stream);
    }
    if (j->head <= 96 && j->value <= 96) {
        why = launch_dq<96, 96, 128, 64>(j, stream);
        return why ? why : launch_dkv<96, 96, 64, 128, true, true>(j, stream);
    }
    if (j->head <= 128 && j->value <= 128) {
        why = launch_dq<128, 128, 128, 32>(j, stream);
        return why ? why : launch_dkv<128, 128, 32, 128, true, true>(j, stream);
    }
    if (j->head <= 192 && j->value <= 128) {
        why = launch_dq<192, 128, 64, 32>(j, stream);
        return why ? why : launch_dkv<192, 128, 32, 64, true, true>(j, stream);
    }
    why = launch_dq<256, 256, 64, 32>(j, stream);
    why = why ? why : launch_dkv<256, 256, 32, 64, true, false>(j, stream);
    return why ? why : launch_dkv<256, 256, 32, 64, false, true>(j, stream);
}
