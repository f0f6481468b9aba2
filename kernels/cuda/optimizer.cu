/* Clipping and the update rules: one pass over parameter, moments, gradient and the copy that the model computes with.
 *
 * Learning rate, bias corrections and the clipping scale are read from device memory.  Formats other than the parameter's
 * are told apart while running: the branch is the same for all threads. */

#include "kernels/cuda/stream.cuh"

namespace {

/* fp32 or bf16, known when the kernel runs */
struct any {
    void *data; /* NULL = absent */
    size_t ld;
    bool wide;
};
struct any any_of(const struct view *v)
{
    struct any a = {v->data, v->ld, v->dtype == DTYPE_F32};
    return a;
}
template <int N> __device__ __forceinline__ void load_any(float *v, const any &a, size_t i, size_t j)
{
    if (a.wide)
        load<N>(v, static_cast<const float *>(a.data) + i * a.ld + j);
    else
        load<N>(v, static_cast<const bf16 *>(a.data) + i * a.ld + j);
}
template <int N> __device__ __forceinline__ void store_any(const any &a, size_t i, size_t j, const float *v)
{
    if (a.wide)
        store<N>(static_cast<float *>(a.data) + i * a.ld + j, v);
    else
        store<N>(static_cast<bf16 *>(a.data) + i * a.ld + j, v);
}

struct update_args {
    float *p;
    struct any copy, m, v, g;
    size_t ld_p, rows, cols;
    const double *scale, *step;
    float beta1, beta2, keep1, keep2, eps, momentum;
    double decay;
};

template <int N> __global__ void __launch_bounds__(BLOCK) adamw_kernel(const __grid_constant__ update_args a)
{
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    float scale = (float)*a.scale, lr = (float)a.step[STEP_LR], shrink = (float)(1 - a.step[STEP_LR] * a.decay);
    float rate = lr / (float)a.step[STEP_CORRECTION1], root2 = 1 / sqrtf((float)a.step[STEP_CORRECTION2]);
    for (size_t i = (size_t)blockIdx.y * blockDim.y + threadIdx.y; j < a.cols && i < a.rows && scale >= 0;
         i += (size_t)gridDim.y * blockDim.y) {
        float p[N], m[N], v[N], g[N];
        load<N>(p, a.p + i * a.ld_p + j);
        load_any<N>(m, a.m, i, j);
        load_any<N>(v, a.v, i, j);
        load_any<N>(g, a.g, i, j);
        UNROLL for (int e = 0; e < N; e++)
        {
            float d = g[e] * scale;
            m[e] = a.beta1 * m[e] + a.keep1 * d;
            v[e] = a.beta2 * v[e] + a.keep2 * d * d;
            p[e] = shrink * p[e] - rate * m[e] / (sqrtf(v[e]) * root2 + a.eps);
        }
        store<N>(a.p + i * a.ld_p + j, p);
        store_any<N>(a.m, i, j, m);
        store_any<N>(a.v, i, j, v);
        if (a.copy.data)
            store_any<N>(a.copy, i, j, p);
    }
}

template <int N> __global__ void __launch_bounds__(BLOCK) sgd_kernel(const __grid_constant__ update_args a)
{
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    float scale = (float)*a.scale, lr = (float)a.step[STEP_LR], decay = (float)a.decay;
    for (size_t i = (size_t)blockIdx.y * blockDim.y + threadIdx.y; j < a.cols && i < a.rows && scale >= 0;
         i += (size_t)gridDim.y * blockDim.y) {
        float p[N], m[N], g[N];
        load<N>(p, a.p + i * a.ld_p + j);
        load_any<N>(g, a.g, i, j);
        if (a.m.data)
            load_any<N>(m, a.m, i, j);
        UNROLL for (int e = 0; e < N; e++)
        {
            float d = g[e] * scale + decay * p[e];
            m[e] = a.m.data ? a.momentum * m[e] + d : d;
            p[e] -= lr * m[e];
        }
        store<N>(a.p + i * a.ld_p + j, p);
        if (a.m.data)
            store_any<N>(a.m, i, j, m);
        if (a.copy.data)
            store_any<N>(a.copy, i, j, p);
    }
}

/* all operands without gaps are taken as one row */
struct update_args update_operands(const struct view *p, const struct view *copy, const struct view *m, const struct view *v,
                                   const struct view *g, const struct view *scale, const struct view *step, bool *packed)
{
    const struct view *all[] = {p, copy, m, v, g};
    struct update_args a = {};
    bool flat = true;
    *packed = true;
    for (const struct view *one : all) {
        flat = flat && (!one || !one->data || one->ld == p->cols);
        *packed = *packed && (!one || view_packed(one));
    }
    a.p = static_cast<float *>(p->data);
    a.copy = any_of(copy);
    a.m = any_of(m);
    if (v)
        a.v = any_of(v);
    a.g = any_of(g);
    a.ld_p = p->ld;
    a.rows = flat ? 1 : p->rows;
    a.cols = flat ? (size_t)p->rows * p->cols : p->cols;
    a.scale = static_cast<const double *>(scale->data);
    a.step = static_cast<const double *>(step->data);
    return a;
}

__global__ void clip_kernel(double *scale, const double *sum, const double *need, double limit)
{
    double s = limit > 0 ? limit / (sqrt(*sum) + 1e-6) : 1;
    *scale = need && need[0] > 0 ? -1 : s < 1 ? s : 1;
}

} // namespace

const char *cuda_CLIP(const struct cuda_call *c)
{
    LAUNCH(clip_kernel, 1, 1, 0, c->stream, static_cast<double *>(OPERAND(CLIP, scale).data),
           static_cast<const double *>(OPERAND(CLIP, sum).data), static_cast<const double *>(OPERAND(CLIP, need).data),
           NUMBER(CLIP, limit));
    return cuda_launched();
}

const char *cuda_ADAMW(const struct cuda_call *c)
{
    bool packed;
    struct update_args a = update_operands(&OPERAND(ADAMW, p), &OPERAND(ADAMW, copy), &OPERAND(ADAMW, m), &OPERAND(ADAMW, v),
                                           &OPERAND(ADAMW, g), &OPERAND(ADAMW, scale), &OPERAND(ADAMW, step), &packed);
    a.beta1 = (float)NUMBER(ADAMW, beta1);
    a.beta2 = (float)NUMBER(ADAMW, beta2);
    a.keep1 = (float)(1 - NUMBER(ADAMW, beta1));
    a.keep2 = (float)(1 - NUMBER(ADAMW, beta2));
    a.eps = (float)NUMBER(ADAMW, eps);
    a.decay = NUMBER(ADAMW, decay);
    struct shape s = map_shape(a.rows, packed ? a.cols / PACK : a.cols);
    if (packed)
        LAUNCH(adamw_kernel<PACK>, s.grid, s.block, 0, c->stream, a);
    else
        LAUNCH(adamw_kernel<1>, s.grid, s.block, 0, c->stream, a);
    return cuda_launched();
}

const char *cuda_SGD(const struct cuda_call *c)
{
    bool packed;
    struct update_args a = update_operands(&OPERAND(SGD, p), &OPERAND(SGD, copy), &OPERAND(SGD, m), nullptr, &OPERAND(SGD, g),
                                           &OPERAND(SGD, scale), &OPERAND(SGD, step), &packed);
    a.momentum = (float)NUMBER(SGD, momentum);
    a.decay = NUMBER(SGD, decay);
    struct shape s = map_shape(a.rows, packed ? a.cols / PACK : a.cols);
    if (packed)
        LAUNCH(sgd_kernel<PACK>, s.grid, s.block, 0, c->stream, a);
    else
        LAUNCH(sgd_kernel<1>, s.grid, s.block, 0, c->stream, a);
    return cuda_launched();
}
