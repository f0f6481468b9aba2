/* RMS and layer normalisation and their gradients by the input; HEADNORM is RMSNORM of rows * heads short rows.
 *
 * A row belongs to a group of threads that keep it in registers: some lanes of a warp, a warp, or a block, by its width
 * (row_shape()).  One pass over memory; rows too wide for registers, or without whole packs, are read again.  Means and
 * variances take two passes over the registers, so nothing cancels. */

#include "kernels/cuda/pack.cuh"

namespace {

/* T operands of one launch; a head's row r is columns (r mod heads) h and following of row r / heads */
template <class T> struct norm_args {
    T *y;             /* y, or dx */
    const T *x, *dy;  /* dy: gradients only */
    const T *gain, *bias;
    float *mean, *rstd; /* read by gradients */
    size_t ld_y, ld_x, ld_dy, ld_mean, ld_rstd;
    unsigned rows, heads, h;
    float eps;
    bool add;
};

/* f(p, c): the thread's packs of a row, c the register's index */
template <int KEEP, class F> __device__ __forceinline__ void each_pack(unsigned packs, F f)
{
    if constexpr (KEEP > 0) {
        UNROLL for (int c = 0; c < KEEP; c++)
        {
            unsigned p = threadIdx.x + (unsigned)c * blockDim.x;
            if (p < packs)
                f(p, c);
        }
    } else {
        for (unsigned p = threadIdx.x; p < packs; p += blockDim.x)
            f(p, 0);
    }
}

template <int N, int KEEP, bool CENTER, class T> __global__ void ROW_BOUNDS(KEEP) norm_kernel(const norm_args<T> a)
{
    SHARED(float, part1, 32);
    SHARED(float, part2, 32);
    size_t r = (size_t)blockIdx.x * blockDim.y + threadIdx.y, i = r / a.heads, head = r % a.heads;
    unsigned packs = r < (size_t)a.rows * a.heads ? a.h / N : 0; /* none: take part in the sums only */
    const T *x = a.x + i * a.ld_x + head * a.h;
    float v[KEEP ? KEEP : 1][N], sum[1] = {0}, mean = 0;
    if (KEEP)
        each_pack<KEEP>(packs, [&](unsigned p, int c) { load<N>(v[c], x + (size_t)p * N); });
    if (CENTER) {
        each_pack<KEEP>(packs, [&](unsigned p, int c) {
            if (!KEEP)
                load<N>(v[c], x + (size_t)p * N);
            UNROLL for (int e = 0; e < N; e++) sum[0] += v[c][e];
        });
        row_sums<1>(sum, part1);
        mean = sum[0] / (float)a.h;
        sum[0] = 0;
    }
    each_pack<KEEP>(packs, [&](unsigned p, int c) {
        if (!KEEP)
            load<N>(v[c], x + (size_t)p * N);
        UNROLL for (int e = 0; e < N; e++) sum[0] += (v[c][e] - mean) * (v[c][e] - mean);
    });
    row_sums<1>(sum, part2);
    float rstd = rsqrtf(sum[0] / (float)a.h + a.eps);
    each_pack<KEEP>(packs, [&](unsigned p, int c) {
        float gain[N], bias[N], out[N];
        if (!KEEP)
            load<N>(v[c], x + (size_t)p * N);
        load<N>(gain, a.gain + (size_t)p * N);
        if (CENTER && a.bias)
            load<N>(bias, a.bias + (size_t)p * N);
        UNROLL for (int e = 0; e < N; e++) out[e] = (v[c][e] - mean) * rstd * gain[e] + (CENTER && a.bias ? bias[e] : 0);
        store<N>(a.y + i * a.ld_y + head * a.h + (size_t)p * N, out);
    });
    if (packs && threadIdx.x == 0) {
        a.rstd[i * a.ld_rstd + head] = rstd;
        if (CENTER)
            a.mean[i * a.ld_mean] = mean;
    }
}

/* n = (x - mean) rstd, u = g dy: dx = rstd (u - mean(u) - n mean(u n)), without mean(u) where nothing is centred */
template <int N, int KEEP, bool CENTER, class T> __global__ void ROW_BOUNDS(KEEP) norm_slope_kernel(const norm_args<T> a)
{
    SHARED(float, part, 64);
    size_t r = (size_t)blockIdx.x * blockDim.y + threadIdx.y, i = r / a.heads, head = r % a.heads;
    unsigned packs = r < (size_t)a.rows * a.heads ? a.h / N : 0;
    const T *x = a.x + i * a.ld_x + head * a.h, *dy = a.dy + i * a.ld_dy + head * a.h;
    float mean = CENTER && packs ? a.mean[i * a.ld_mean] : 0, rstd = packs ? a.rstd[i * a.ld_rstd + head] : 0;
    float n[KEEP ? KEEP : 1][N], u[KEEP ? KEEP : 1][N], sum[2] = {0, 0};
    auto fetch = [&](unsigned p, int c) {
        float gain[N];
        load<N>(n[c], x + (size_t)p * N);
        load<N>(u[c], dy + (size_t)p * N);
        load<N>(gain, a.gain + (size_t)p * N);
        UNROLL for (int e = 0; e < N; e++)
        {
            n[c][e] = (n[c][e] - mean) * rstd;
            u[c][e] *= gain[e];
        }
    };
    each_pack<KEEP>(packs, [&](unsigned p, int c) {
        fetch(p, c);
        UNROLL for (int e = 0; e < N; e++)
        {
            sum[0] += u[c][e] * n[c][e];
            sum[1] += CENTER ? u[c][e] : 0;
        }
    });
    row_sums<2>(sum, part);
    float pull = sum[0] / (float)a.h, shift = sum[1] / (float)a.h;
    each_pack<KEEP>(packs, [&](unsigned p, int c) {
        float out[N];
        if (!KEEP)
            fetch(p, c);
        UNROLL for (int e = 0; e < N; e++) out[e] = rstd * (u[c][e] - shift - n[c][e] * pull);
        put<N>(a.y + i * a.ld_y + head * a.h + (size_t)p * N, out, a.add);
    });
}

#define BY_KEEP(kernel, N)                                                                                   \
    do {                                                                                                     \
        if (s.keep == 1)                                                                                    \
            LAUNCH((kernel<N, 1, CENTER, T>), s.grid, s.block, 0, c->stream, a);                             \
        else if (s.keep == 2)                                                                               \
            LAUNCH((kernel<N, 2, CENTER, T>), s.grid, s.block, 0, c->stream, a);                             \
        else if (s.keep == 4)                                                                               \
            LAUNCH((kernel<N, 4, CENTER, T>), s.grid, s.block, 0, c->stream, a);                             \
        else                                                                                                 \
            LAUNCH((kernel<N, 0, CENTER, T>), s.grid, s.block, 0, c->stream, a);                             \
    } while (0)

/* heads of h columns begin at whole packs too, if h has whole packs */
template <class T, bool CENTER>
const char *launch_norm(const struct cuda_call *c, const norm_args<T> &a, bool slope, bool packed)
{
    packed = packed && a.h % PACK == 0;
    struct row_shape s = row_shape((size_t)a.rows * a.heads, packed ? a.h / PACK : a.h, packed ? PACK : 1);
    if (packed && slope)
        BY_KEEP(norm_slope_kernel, PACK);
    else if (packed)
        BY_KEEP(norm_kernel, PACK);
    else if (slope)
        LAUNCH((norm_slope_kernel<1, 0, CENTER, T>), s.grid, s.block, 0, c->stream, a);
    else
        LAUNCH((norm_kernel<1, 0, CENTER, T>), s.grid, s.block, 0, c->stream, a);
    return cuda_launched();
}

template <class T> norm_args<T> norm_operands(const struct view *y, const struct view *x, const struct view *gain, const struct view *rstd)
{
    norm_args<T> a = {};
    a.y = static_cast<T *>(y->data);
    a.x = static_cast<const T *>(x->data);
    a.gain = static_cast<const T *>(gain->data);
    a.rstd = static_cast<float *>(rstd->data);
    a.ld_y = y->ld;
    a.ld_x = x->ld;
    a.ld_rstd = rstd->ld;
    a.rows = x->rows;
    a.h = gain->cols;
    a.heads = x->cols / gain->cols;
    a.add = y->add;
    return a;
}

template <class T> void norm_gradient(norm_args<T> *a, const struct view *dy)
{
    a->dy = static_cast<const T *>(dy->data);
    a->ld_dy = dy->ld;
}

template <class T> const char *rms_norm(const struct cuda_call *c, const struct view *y, const struct view *x, const struct view *gain,
                                        const struct view *rstd, double eps)
{
    norm_args<T> a = norm_operands<T>(y, x, gain, rstd);
    a.eps = (float)eps;
    return launch_norm<T, false>(c, a, false, view_packed(y) && view_packed(x) && view_packed(gain));
}

template <class T> const char *rms_slope(const struct cuda_call *c, const struct view *dx, const struct view *dy, const struct view *x,
                                         const struct view *gain, const struct view *rstd)
{
    norm_args<T> a = norm_operands<T>(dx, x, gain, rstd);
    norm_gradient(&a, dy);
    return launch_norm<T, false>(c, a, true, view_packed(dx) && view_packed(dy) && view_packed(x) && view_packed(gain));
}

template <class T> const char *layer_norm(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(LAYERNORM, y), *x = &OPERAND(LAYERNORM, x), *g = &OPERAND(LAYERNORM, g),
                      *b = &OPERAND(LAYERNORM, b), *mean = &OPERAND(LAYERNORM, mean);
    norm_args<T> a = norm_operands<T>(y, x, g, &OPERAND(LAYERNORM, rstd));
    a.bias = static_cast<const T *>(b->data);
    a.mean = static_cast<float *>(mean->data);
    a.ld_mean = mean->ld;
    a.eps = (float)NUMBER(LAYERNORM, eps);
    return launch_norm<T, true>(c, a, false, view_packed(y) && view_packed(x) && view_packed(g) && view_packed(b));
}

template <class T> const char *layer_slope(const struct cuda_call *c)
{
    const struct view *dx = &OPERAND(LAYERNORM_I, dx), *dy = &OPERAND(LAYERNORM_I, dy), *x = &OPERAND(LAYERNORM_I, x),
                      *g = &OPERAND(LAYERNORM_I, g), *mean = &OPERAND(LAYERNORM_I, mean);
    norm_args<T> a = norm_operands<T>(dx, x, g, &OPERAND(LAYERNORM_I, rstd));
    norm_gradient(&a, dy);
    a.mean = static_cast<float *>(mean->data);
    a.ld_mean = mean->ld;
    return launch_norm<T, true>(c, a, true, view_packed(dx) && view_packed(dy) && view_packed(x) && view_packed(g));
}

} // namespace

const char *cuda_RMSNORM(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(RMSNORM, x).dtype, rms_norm, c, &OPERAND(RMSNORM, y), &OPERAND(RMSNORM, x), &OPERAND(RMSNORM, g),
                    &OPERAND(RMSNORM, rstd), NUMBER(RMSNORM, eps));
}

const char *cuda_RMSNORM_I(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(RMSNORM_I, x).dtype, rms_slope, c, &OPERAND(RMSNORM_I, dx), &OPERAND(RMSNORM_I, dy),
                    &OPERAND(RMSNORM_I, x), &OPERAND(RMSNORM_I, g), &OPERAND(RMSNORM_I, rstd));
}

const char *cuda_HEADNORM(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(HEADNORM, x).dtype, rms_norm, c, &OPERAND(HEADNORM, y), &OPERAND(HEADNORM, x), &OPERAND(HEADNORM, g),
                    &OPERAND(HEADNORM, rstd), NUMBER(HEADNORM, eps));
}

const char *cuda_HEADNORM_I(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(HEADNORM_I, x).dtype, rms_slope, c, &OPERAND(HEADNORM_I, dx), &OPERAND(HEADNORM_I, dy),
                    &OPERAND(HEADNORM_I, x), &OPERAND(HEADNORM_I, g), &OPERAND(HEADNORM_I, rstd));
}

const char *cuda_LAYERNORM(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(LAYERNORM, x).dtype, layer_norm, c);
}

const char *cuda_LAYERNORM_I(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(LAYERNORM_I, x).dtype, layer_slope, c);
}
