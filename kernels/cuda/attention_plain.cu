/* Attention and its gradient in fp32 arithmetic, for fp32 operands and for what the tensor cores cannot take: unaligned
 * rows, head sizes that are no multiple of 8.  Any dimensions up to 256.
 *
 * Same tiles and order as attention_forward.cu and attention_backward.cu, 32 by 32: a warp has four rows (or keys), its
 * lanes are the keys (or rows) of the other tile while scores are made, then the dimensions while they are summed.  Tiles
 * that lanes walk down have rows of one element more, against bank conflicts. */

#include "kernels/cuda/attention.cuh"

enum { PLAIN = 32, PLAIN_THREADS = 256, PLAIN_OWN = 4, PLAIN_COLS = 8 /* per lane: 256 dimensions */ };

template <class T> static __device__ inline float element(const attention_matrix &m, size_t row, int col)
{
    return value_of(((const T *)m.data)[row * (size_t)m.ld + (size_t)col]);
}
static __device__ inline void store_one(const attention_matrix &m, size_t row, int col, float x)
{
    if (m.fp32) {
        float *at = fp32_of(m, row, col);
        *at = m.add ? *at + x : x;
        return;
    }
    bf16 *at = bf16_of(m, row, col);
    *at = bf16_nearest(m.add ? bf16_value(*at) + x : x);
}

/* rows [at, at + 32) of a run as fp32, zeros from `end` on */
template <class T>
static __device__ inline void load_plain(float *tile, int ld, const attention_matrix &m, int run_row, int at, int end, int col, int cols)
{
    for (int i = (int)threadIdx.x; i < PLAIN * cols; i += PLAIN_THREADS) {
        int row = i / cols, c = i % cols;
        tile[row * ld + c] = at + row < end ? element<T>(m, (size_t)(run_row + at + row), col + c) : 0;
    }
}

static __device__ inline float dot(const float *a, const float *b, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static __device__ inline float capped(const attention_job &j, float x, float *slope)
{
    *slope = 1;
    if (!(j.softcap > 0))
        return x;
    float ratio = tanhf(x / j.softcap);
    *slope = 1 - ratio * ratio;
    return j.softcap * ratio;
}

/* acc[r][c] += sum over 32 of weight[row r of this warp][i] times tile[i][lane + 32 c] */
static __device__ inline void weigh(float (*acc)[PLAIN_COLS], const float *weight, const float *tile, int ld, int cols)
{
    int lane = (int)threadIdx.x % 32;
    for (int i = 0; i < PLAIN; i++)
        UNROLL for (int c = 0; c < PLAIN_COLS; c++)
            if (lane + 32 * c < cols) {
                float x = tile[i * ld + lane + 32 * c];
                UNROLL for (int r = 0; r < PLAIN_OWN; r++)
                    acc[r][c] += weight[r * PLAIN + i] * x;
            }
}

template <class T> __global__ void __launch_bounds__(PLAIN_THREADS) attention_plain(attention_job j)
{
    DYNAMIC_SHARED(float, shared);
    int d = j.head, u = j.value;
    float *tile_q = shared, *tile_k = tile_q + PLAIN * d, *tile_v = tile_k + PLAIN * (d + 1), *weights = tile_v + PLAIN * u;
    int per_run = (j.q.length + PLAIN - 1) / PLAIN, run = (int)blockIdx.x / per_run, i0 = (int)blockIdx.x % per_run * PLAIN;
    int h = (int)blockIdx.y, g = h / (j.heads / j.kv), sequence = (int)blockIdx.z;
    int row0 = run_row(j.q, sequence, run), place = run_place(j.q, run) + i0;
    int own = (int)threadIdx.x / 32 * PLAIN_OWN, lane = (int)threadIdx.x % 32;
    float *weight = weights + own * PLAIN, out[PLAIN_OWN][PLAIN_COLS] = {}, most[PLAIN_OWN], sum[PLAIN_OWN] = {}, slope;
    float steep = attention_slope(j, h);
    for (int r = 0; r < PLAIN_OWN; r++)
        most[r] = -INFINITY;
    load_plain<T>(tile_q, d, j.mq, row0, i0, j.q.length, h * d, d);
    attention_cursor now = ATTENTION_START;
    while (next_keys(j, place, PLAIN, PLAIN, now)) {
        __syncthreads();
        load_plain<T>(tile_k, d + 1, j.mk, run_row(j.k, sequence, now.run), now.at, now.end, g * d, d);
        load_plain<T>(tile_v, u, j.mv, run_row(j.k, sequence, now.run), now.at, now.end, g * u, u);
        __syncthreads();
        for (int r = 0; r < PLAIN_OWN; r++) {
            int key = now.at + lane, ahead = key - own - r;
            bool seen = ahead <= now.reach && key < now.end && (!j.window || ahead > now.reach - j.window);
            float raw = dot(tile_q + (own + r) * d, tile_k + lane * (d + 1), d) * j.scale;
            float s = seen ? capped(j, raw, &slope) + steep * (float)(ahead - now.reach) : -INFINITY, m = s;
            for (int step = 16; step; step /= 2)
                m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, step));
            m = fmaxf(m, most[r]);
            float base = m == -INFINITY ? 0 : m, shrink = expf(most[r] - base), p = expf(s - base);
            weight[r * PLAIN + lane] = p;
            most[r] = m;
            sum[r] = sum[r] * shrink + p;
            for (int c = 0; c < PLAIN_COLS; c++)
                out[r][c] *= shrink;
        }
        __syncwarp();
        weigh(out, weight, tile_v, u, u);
    }
    for (int r = 0; r < PLAIN_OWN; r++) {
        for (int step = 16; step; step /= 2)
            sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], step);
        if (i0 + own + r >= j.q.length)
            continue;
        size_t row = (size_t)(row0 + i0 + own + r);
        if (lane == 0)
            j.lse[row * (size_t)j.ldl + (size_t)h] = sum[r] > 0 ? most[r] + logf(sum[r]) : -INFINITY;
        for (int c = 0; c < PLAIN_COLS; c++)
            if (lane + 32 * c < u)
                store_one(j.mo, row, h * u + lane + 32 * c, sum[r] > 0 ? out[r][c] / sum[r] : 0);
    }
}

/* a warp per row and head */
template <class T> __global__ void __launch_bounds__(PLAIN_THREADS) attention_sums(attention_job j, int rows)
{
    long long at = (long long)blockIdx.x * (PLAIN_THREADS / 32) + (int)threadIdx.x / 32;
    if (at >= (long long)rows * j.heads)
        return;
    int row = (int)(at / j.heads), h = (int)(at % j.heads), lane = (int)threadIdx.x % 32;
    float sum = 0;
    for (int c = lane; c < j.value; c += 32)
        sum += element<T>(j.mo, (size_t)row, h * j.value + c) * element<T>(j.dout, (size_t)row, h * j.value + c);
    for (int step = 16; step; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0)
        j.delta[at] = sum;
}

/* probability and gradient by the raw score over scale; nothing where the row's log-sum-exp is -inf */
static __device__ inline void plain_gradient(const attention_job &j, bool seen, float bias, float lse, float delta, float raw, float dp, float *p,
                                             float *ds)
{
    float slope, x = capped(j, raw * j.scale, &slope);
    *p = seen && lse > -INFINITY ? expf(x + bias - lse) : 0;
    *ds = *p * (dp - delta) * slope;
}

template <class T> __global__ void __launch_bounds__(PLAIN_THREADS) attention_plain_dq(attention_job j)
{
    DYNAMIC_SHARED(float, shared);
    int d = j.head, u = j.value;
    float *tile_q = shared, *tile_do = tile_q + PLAIN * d, *tile_k = tile_do + PLAIN * u, *tile_v = tile_k + PLAIN * (d + 1),
          *weights = tile_v + PLAIN * (u + 1);
    int per_run = (j.q.length + PLAIN - 1) / PLAIN, run = (int)blockIdx.x / per_run, i0 = (int)blockIdx.x % per_run * PLAIN;
    int h = (int)blockIdx.y, g = h / (j.heads / j.kv), sequence = (int)blockIdx.z;
    int row0 = run_row(j.q, sequence, run), place = run_place(j.q, run) + i0;
    int own = (int)threadIdx.x / 32 * PLAIN_OWN, lane = (int)threadIdx.x % 32;
    float *weight = weights + own * PLAIN, dq[PLAIN_OWN][PLAIN_COLS] = {}, lse[PLAIN_OWN], delta[PLAIN_OWN], p;
    for (int r = 0; r < PLAIN_OWN; r++) {
        int i = i0 + own + r;
        size_t row = (size_t)(row0 + i);
        lse[r] = i < j.q.length ? j.lse[row * (size_t)j.ldl + (size_t)h] : -INFINITY;
        delta[r] = i < j.q.length ? j.delta[row * (size_t)j.heads + (size_t)h] : 0;
    }
    float steep = attention_slope(j, h);
    load_plain<T>(tile_q, d, j.mq, row0, i0, j.q.length, h * d, d);
    load_plain<T>(tile_do, u, j.dout, row0, i0, j.q.length, h * u, u);
    attention_cursor now = ATTENTION_START;
    while (next_keys(j, place, PLAIN, PLAIN, now)) {
        __syncthreads();
        load_plain<T>(tile_k, d + 1, j.mk, run_row(j.k, sequence, now.run), now.at, now.end, g * d, d);
        load_plain<T>(tile_v, u + 1, j.mv, run_row(j.k, sequence, now.run), now.at, now.end, g * u, u);
        __syncthreads();
        for (int r = 0; r < PLAIN_OWN; r++) {
            int key = now.at + lane, ahead = key - own - r;
            bool seen = ahead <= now.reach && key < now.end && (!j.window || ahead > now.reach - j.window);
            float raw = dot(tile_q + (own + r) * d, tile_k + lane * (d + 1), d);
            float dp = dot(tile_do + (own + r) * u, tile_v + lane * (u + 1), u);
            float bias = steep * (float)(ahead - now.reach);
            plain_gradient(j, seen, bias, lse[r], delta[r], raw, dp, &p, &weight[r * PLAIN + lane]);
        }
        __syncwarp();
        weigh(dq, weight, tile_k, d + 1, d);
    }
    for (int r = 0; r < PLAIN_OWN; r++)
        for (int c = 0; c < PLAIN_COLS; c++)
            if (i0 + own + r < j.q.length && lane + 32 * c < d)
                store_one(j.dq, (size_t)(row0 + i0 + own + r), h * d + lane + 32 * c, dq[r][c] * j.scale);
}

template <class T> __global__ void __launch_bounds__(PLAIN_THREADS) attention_plain_dkv(attention_job j)
{
    DYNAMIC_SHARED(float, shared);
    int d = j.head, u = j.value;
    float *tile_k = shared, *tile_v = tile_k + PLAIN * d, *tile_q = tile_v + PLAIN * u, *tile_do = tile_q + PLAIN * (d + 1),
          *weights = tile_do + PLAIN * (u + 1), *grads = weights + PLAIN * PLAIN;
    int per_run = (j.k.length + PLAIN - 1) / PLAIN, run = (int)blockIdx.x / per_run, j0 = (int)blockIdx.x % per_run * PLAIN;
    int g = (int)blockIdx.y, sequence = (int)blockIdx.z, group = j.heads / j.kv;
    int row0 = run_row(j.k, sequence, run), place = run_place(j.k, run) + j0;
    int here = j.k.length - j0 < PLAIN ? j.k.length - j0 : PLAIN;
    int own = (int)threadIdx.x / 32 * PLAIN_OWN, lane = (int)threadIdx.x % 32;
    float dk[PLAIN_OWN][PLAIN_COLS] = {}, dv[PLAIN_OWN][PLAIN_COLS] = {};
    load_plain<T>(tile_k, d, j.mk, row0, j0, j.k.length, g * d, d);
    load_plain<T>(tile_v, u, j.mv, row0, j0, j.k.length, g * u, u);
    for (int h = g * group; h < (g + 1) * group; h++) {
        float steep = attention_slope(j, h);
        attention_cursor now = ATTENTION_START;
        while (next_queries(j, place, here, PLAIN, now)) {
            int qr = run_row(j.q, sequence, now.run), i = now.at + lane;
            __syncthreads();
            load_plain<T>(tile_q, d + 1, j.mq, qr, now.at, now.end, h * d, d);
            load_plain<T>(tile_do, u + 1, j.dout, qr, now.at, now.end, h * u, u);
            float lse = i < now.end ? j.lse[(size_t)(qr + i) * (size_t)j.ldl + (size_t)h] : -INFINITY;
            float delta = i < now.end ? j.delta[(size_t)(qr + i) * (size_t)j.heads + (size_t)h] : 0;
            __syncthreads();
            for (int r = 0; r < PLAIN_OWN; r++) {
                int behind = i - own - r;
                bool seen = behind >= now.reach && (!j.window || behind < now.reach + j.window);
                float raw = dot(tile_k + (own + r) * d, tile_q + lane * (d + 1), d);
                float dp = dot(tile_v + (own + r) * u, tile_do + lane * (u + 1), u);
                float bias = steep * (float)(now.reach - behind);
                plain_gradient(j, seen, bias, lse, delta, raw, dp, &weights[(own + r) * PLAIN + lane],
                               &grads[(own + r) * PLAIN + lane]);
            }
            __syncwarp();
            weigh(dk, grads + own * PLAIN, tile_q, d + 1, d);
            weigh(dv, weights + own * PLAIN, tile_do, u + 1, u);
        }
    }
    UNROLL for (int r = 0; r < PLAIN_OWN; r++)
        UNROLL for (int c = 0; c < PLAIN_COLS; c++) {
            size_t row = (size_t)(row0 + j0 + own + r);
            bool there = j0 + own + r < j.k.length;
            if (there && lane + 32 * c < d)
                store_one(j.dk, row, g * d + lane + 32 * c, dk[r][c] * j.scale);
            if (there && lane + 32 * c < u)
                store_one(j.dv, row, g * u + lane + 32 * c, dv[r][c]);
        }
}

static unsigned tiles(const attention_side *s)
{
    return (unsigned)(s->runs * ((s->length + PLAIN - 1) / PLAIN));
}

template <class T> static const char *delta(const attention_job *j, cudaStream_t stream)
{
    int rows = j->sequences * j->q.runs * j->q.length;
    long long warps = (long long)rows * j->heads;
    auto kernel = attention_sums<T>;
    LAUNCH(kernel, (unsigned)((warps + PLAIN_THREADS / 32 - 1) / (PLAIN_THREADS / 32)), PLAIN_THREADS, 0, stream, *j, rows);
    return cuda_launched();
}

const char *attention_delta(const attention_job *j, bool fp32, cudaStream_t stream)
{
    return fp32 ? delta<float>(j, stream) : delta<bf16>(j, stream);
}

template <class T> static const char *forward(const attention_job *j, cudaStream_t stream)
{
    size_t shared = (size_t)PLAIN * (size_t)(2 * j->head + 1 + j->value + PLAIN) * sizeof(float);
    auto kernel = attention_plain<T>;
    const char *why = allow_shared((const void *)kernel, shared);
    if (why)
        return why;
    LAUNCH(kernel, dim3(tiles(&j->q), (unsigned)j->heads, (unsigned)j->sequences), PLAIN_THREADS, shared, stream, *j);
    return cuda_launched();
}

template <class T> static const char *backward(const attention_job *j, cudaStream_t stream)
{
    size_t shared = (size_t)PLAIN * (size_t)(2 * j->head + 2 * j->value + 2 + 2 * PLAIN) * sizeof(float);
    auto dq = attention_plain_dq<T>;
    auto dkv = attention_plain_dkv<T>;
    const char *why = allow_shared((const void *)dq, shared);
    why = why ? why : allow_shared((const void *)dkv, shared);
    why = why ? why : delta<T>(j, stream);
    if (why)
        return why;
    LAUNCH(dq, dim3(tiles(&j->q), (unsigned)j->heads, (unsigned)j->sequences), PLAIN_THREADS, shared, stream, *j);
    why = cuda_launched();
    if (why)
        return why;
    LAUNCH(dkv, dim3(tiles(&j->k), (unsigned)j->kv, (unsigned)j->sequences), PLAIN_THREADS, shared, stream, *j);
    return cuda_launched();
}

const char *attention_forward_plain(const attention_job *j, bool fp32, cudaStream_t stream)
{
    return fp32 ? forward<float>(j, stream) : forward<bf16>(j, stream);
}

const char *attention_backward_plain(const attention_job *j, bool fp32, cudaStream_t stream)
{
    return fp32 ? backward<float>(j, stream) : backward<bf16>(j, stream);
}
