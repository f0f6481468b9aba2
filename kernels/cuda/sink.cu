/* Scores that have no value in attention's softmax, as in kernels/cpu/heads.c: weights in fp64, from
 * log-sum-exps.
 *
 * Forward a group of lanes has a row's head.  The gradient is a sum over rows by one block per head, in an order
 * that depends on shapes alone. */

#include "kernels/cuda/pack.cuh"

namespace {

const unsigned SINK_LANES = 32, SINK_ROWS = 16;

template <class T> struct sink_args {
    T *y;
    const T *x, *dy, *sink;
    float *total;
    const float *lse;
    size_t ld_y, ld_x, ld_dy, ld_total, ld_lse, rows;
    unsigned heads, head;
};

template <class T> __global__ void __launch_bounds__(BLOCK) sink_kernel(const sink_args<T> a)
{
    size_t r = (size_t)blockIdx.x * blockDim.y + threadIdx.y, i = r / a.heads, h = r % a.heads;
    bool here = r < a.rows * a.heads;
    float lse = here ? a.lse[i * a.ld_lse + h] : 0, sink = here ? widen(a.sink[h]) : 0;
    double most = lse > sink ? lse : sink, e = exp(lse - most), sum = e + exp(sink - most);
    float factor = (float)(e / sum);
    for (unsigned j = threadIdx.x; here && j < a.head; j += blockDim.x)
        a.y[i * a.ld_y + h * a.head + j] = narrow<T>(factor * widen(a.x[i * a.ld_x + h * a.head + j]));
    __syncthreads(); /* total may be lse: all lanes have read it */
    if (here && threadIdx.x == 0)
        a.total[i * a.ld_total + h] = (float)(most + log(sum));
}

/* x: what SINK has written, lse its total */
template <class T, class U>
__global__ void __launch_bounds__(SINK_LANES *SINK_ROWS)
    sink_slope_kernel(const sink_args<T> a, U *dsink, bool add)
{
    SHARED(double, meet, SINK_ROWS);
    unsigned h = blockIdx.x;
    float sink = widen(a.sink[h]);
    double all = 0;
    for (size_t first = 0; first < a.rows; first += SINK_ROWS) {
        size_t i = first + threadIdx.y;
        float sum[1] = {0};
        const T *dy = a.dy + i * a.ld_dy + (size_t)h * a.head, *x = a.x + i * a.ld_x + (size_t)h * a.head;
        for (unsigned j = threadIdx.x; i < a.rows && j < a.head; j += SINK_LANES)
            sum[0] += widen(dy[j]) * widen(x[j]);
        row_sums<1>(sum, nullptr);
        if (i < a.rows)
            all -= exp((double)sink - (double)a.lse[i * a.ld_lse + h]) * (double)sum[0];
    }
    if (threadIdx.x == 0)
        meet[threadIdx.y] = all;
    __syncthreads();
    if (threadIdx.x || threadIdx.y)
        return;
    for (unsigned y = 1; y < SINK_ROWS; y++)
        all += meet[y];
    dsink[h] = narrow<U>((float)all + (add ? widen(dsink[h]) : 0));
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
    unsigned lanes = power_of_two(a.head, SINK_LANES), rows = BLOCK / lanes;
    LAUNCH(sink_kernel<T>, dim3(blocks_for(a.rows * a.heads, rows)), dim3(lanes, rows), 0, c->stream, a);
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
    dim3 grid(a.heads), block(SINK_LANES, SINK_ROWS);
    if (dsink->dtype == DTYPE_F32)
        LAUNCH((sink_slope_kernel<T, float>), grid, block, 0, c->stream, a, static_cast<float *>(dsink->data),
               dsink->add);
    else
        LAUNCH((sink_slope_kernel<T, bf16>), grid, block, 0, c->stream, a, static_cast<bf16 *>(dsink->data),
               dsink->add);
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
