/* Scores that have no value in attention's softmax, as in kernels/cpu/heads.c.
 *
 * Some lanes of a warp, or a warp, have a row's head.  The gradient is a sum over rows in two launches, as in
 * columns.cu: a block per head and chunk of rows, then chunks in order; how rows are divided depends on shapes
 * alone. */

#include "kernels/cuda/stream.cuh"

namespace {

template <class T> struct sink_args {
    T *y;
    const T *x, *dy, *sink; /* x: of the gradient what SINK has written, and lse its total */
    float *total, *part;    /* part: [chunks][heads] */
    const float *lse;
    size_t ld_y, ld_x, ld_dy, ld_total, ld_lse, rows, chunk_rows;
    unsigned heads, head;
};

/* block: x packs of a head, y rows' heads */
template <int N, class T> __global__ void __launch_bounds__(BLOCK) sink_kernel(const sink_args<T> a)
{
    size_t r = (size_t)blockIdx.x * blockDim.y + threadIdx.y, i = r / a.heads, h = r % a.heads;
    bool here = r < a.rows * a.heads;
    float lse = here ? a.lse[i * a.ld_lse + h] : 0, sink = here ? widen(a.sink[h]) : 0;
    float above = sink - lse, factor = 1 / (1 + expf(above));
    for (unsigned j = threadIdx.x * N; here && j < a.head; j += blockDim.x * N) {
        float v[N];
        load<N>(v, a.x + i * a.ld_x + h * a.head + j);
        UNROLL for (int e = 0; e < N; e++) v[e] *= factor;
        store<N>(a.y + i * a.ld_y + h * a.head + j, v);
    }
    __syncthreads(); /* total may be lse: all lanes have read it */
    if (here && threadIdx.x == 0)
        a.total[i * a.ld_total + h] = fmaxf(lse, sink) + log1pf(expf(-fabsf(above)));
}

/* block: x packs of a head, y rows; of the grid x heads, y chunks of rows */
template <int N, class T> __global__ void __launch_bounds__(BLOCK) sink_slope_kernel(const sink_args<T> a)
{
    SHARED(double, meet, BLOCK);
    size_t h = blockIdx.x, first = blockIdx.y * a.chunk_rows;
    size_t end = first + a.chunk_rows < a.rows ? first + a.chunk_rows : a.rows;
    float sink = widen(a.sink[h]);
    double all = 0;
    for (; first < end; first += blockDim.y) { /* every thread comes to the sums */
        size_t i = first + threadIdx.y;
        float sum[1] = {0};
        for (unsigned j = threadIdx.x * N; i < end && j < a.head; j += blockDim.x * N) {
            float up[N], out[N];
            load<N>(up, a.dy + i * a.ld_dy + h * a.head + j);
            load<N>(out, a.x + i * a.ld_x + h * a.head + j);
            UNROLL for (int e = 0; e < N; e++) sum[0] += up[e] * out[e];
        }
        row_sums<1>(sum, nullptr);
        if (i < end)
            all -= (double)(expf(sink - a.lse[i * a.ld_lse + h]) * sum[0]);
    }
    if (threadIdx.x == 0)
        meet[threadIdx.y] = all;
    __syncthreads();
    if (threadIdx.x || threadIdx.y)
        return;
    for (unsigned y = 1; y < blockDim.y; y++)
        all += meet[y];
    a.part[blockIdx.y * a.heads + h] = (float)all;
}

template <class T> const char *sink(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(SINK, y), *x = &OPERAND(SINK, x);
    const struct view *total = &OPERAND(SINK, total), *lse = &OPERAND(SINK, lse);
    sink_args<T> a = {};
    a.y = static_cast<T *>(y->data);
    a.x = static_cast<const T *>(x->data);
    a.sink = static_cast<const T *>(OPERAND(SINK, sink).data);
    a.total = static_cast<float *>(total->data);
    a.lse = static_cast<const float *>(lse->data);
    a.ld_y = y->ld;
    a.ld_x = x->ld;
    a.ld_total = total->ld;
    a.ld_lse = lse->ld;
    a.rows = x->rows;
    a.heads = (unsigned)INTEGER(SINK, heads);
    a.head = (unsigned)INTEGER(SINK, head);
    bool packed = view_packed(y) && view_packed(x) && a.head % PACK == 0;
    unsigned lanes = power_of_two(packed ? a.head / PACK : a.head, 32), rows = BLOCK / lanes;
    dim3 grid(blocks_for(a.rows * a.heads, rows)), block(lanes, rows);
    if (packed)
        LAUNCH((sink_kernel<PACK, T>), grid, block, 0, c->stream, a);
    else
        LAUNCH((sink_kernel<1, T>), grid, block, 0, c->stream, a);
    return cuda_launched();
}

template <class T> const char *sink_slope(const struct cuda_call *c)
{
    const struct view *dsink = &OPERAND(SINK_W, dsink), *dy = &OPERAND(SINK_W, dy), *y = &OPERAND(SINK_W, y);
    const struct view *total = &OPERAND(SINK_W, total);
    sink_args<T> a = {};
    a.x = static_cast<const T *>(y->data);
    a.dy = static_cast<const T *>(dy->data);
    a.sink = static_cast<const T *>(OPERAND(SINK_W, sink).data);
    a.lse = static_cast<const float *>(total->data);
    a.ld_x = y->ld;
    a.ld_dy = dy->ld;
    a.ld_lse = total->ld;
    a.rows = y->rows;
    a.heads = (unsigned)INTEGER(SINK_W, heads);
    a.head = (unsigned)INTEGER(SINK_W, head);
    unsigned chunks = workspace_chunks(a.rows);
    bool packed = view_packed(dy) && view_packed(y) && a.head % PACK == 0;
    a.part = static_cast<float *>(c->workspace);
    a.chunk_rows = (a.rows + chunks - 1) / chunks;
    unsigned lanes = power_of_two(packed ? a.head / PACK : a.head, 32);
    dim3 grid(a.heads, chunks), block(lanes, BLOCK / lanes);
    if (packed)
        LAUNCH((sink_slope_kernel<PACK, T>), grid, block, 0, c->stream, a);
    else
        LAUNCH((sink_slope_kernel<1, T>), grid, block, 0, c->stream, a);
    cuda_finish_columns(dsink, a.part, chunks, c->stream);
    return cuda_launched();
}

} // namespace

const char *cuda_SINK(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(SINK, x).dtype, sink, c);
}

const char *cuda_SINK_W(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(SINK_W, dy).dtype, sink_slope, c);
}
