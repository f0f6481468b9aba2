/* Clipping and the update rules: one pass over parameter, moments, gradient and the copy that the model computes with.
 *
 * Learning rate, bias corrections and the clipping scale are read from device memory.  Formats are told apart while running: the branch is the same for all threads. */

#include "kernels/cuda/fused.cuh"

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
    struct any p, copy, m, v, g;
    size_t rows, cols;
    const double *scale, *step; /* scale: NULL = 1 */
    bool ahead;                 /* only the copy is written */
    float beta1, beta2, keep1, keep2, eps, momentum;
    double decay;
};

/* what the update rule takes from the step block */
struct rates {
    float scale, shrink, rate, root2;
};
__device__ __forceinline__ struct rates rates_of(const double *scale, const double *step, double decay)
{
    struct rates r = {scale ? (float)*scale : 1, (float)(1 - step[STEP_LR] * decay), (float)step[STEP_LR] / (float)step[STEP_CORRECTION1],
                      1 / sqrtf((float)step[STEP_CORRECTION2])};
    return r;
}
__device__ __forceinline__ void adamw(const update_args &a, const struct rates &r, float g, float *p, float *m, float *v)
{
    float d = g * r.scale;
    *m = a.beta1 * *m + a.keep1 * d;
    *v = a.beta2 * *v + a.keep2 * d * d;
    *p = r.shrink * *p - r.rate * *m / (sqrtf(*v) * r.root2 + a.eps);
}

template <int N> __global__ void __launch_bounds__(BLOCK) adamw_kernel(const __grid_constant__ update_args a)
{
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    struct rates r = rates_of(a.scale, a.step, a.decay);
    for (size_t i = (size_t)blockIdx.y * blockDim.y + threadIdx.y; j < a.cols && i < a.rows && r.scale >= 0;
         i += (size_t)gridDim.y * blockDim.y) {
        float p[N], m[N], v[N], g[N];
        load_any<N>(p, a.p, i, j);
        load_any<N>(m, a.m, i, j);
        load_any<N>(v, a.v, i, j);
        load_any<N>(g, a.g, i, j);
        UNROLL for (int e = 0; e < N; e++) adamw(a, r, g[e], &p[e], &m[e], &v[e]);
        if (!a.ahead) {
            store_any<N>(a.p, i, j, p);
            store_any<N>(a.m, i, j, m);
            store_any<N>(a.v, i, j, v);
        }
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
        load_any<N>(p, a.p, i, j);
        load_any<N>(g, a.g, i, j);
        if (a.m.data)
            load_any<N>(m, a.m, i, j);
        UNROLL for (int e = 0; e < N; e++)
        {
            float d = g[e] * scale + decay * p[e];
            m[e] = a.m.data ? a.momentum * m[e] + d : d;
            p[e] -= lr * m[e];
        }
        store_any<N>(a.p, i, j, p);
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
    a.p = any_of(p);
    a.copy = any_of(copy);
    a.m = any_of(m);
    if (v)
        a.v = any_of(v);
    a.g = any_of(g);
    a.rows = flat ? 1 : p->rows;
    a.cols = flat ? (size_t)p->rows * p->cols : p->cols;
    a.scale = scale ? static_cast<const double *>(scale->data) : nullptr;
    a.step = static_cast<const double *>(step->data);
    return a;
}

/* the attributes of ADAMW, or of ADAMW_AHEAD, which are the same */
void set_rule(struct update_args *a, const union value *attr)
{
    double beta1 = attr[ATTR(ADAMW, beta1)].f, beta2 = attr[ATTR(ADAMW, beta2)].f;
    a->beta1 = (float)beta1;
    a->beta2 = (float)beta2;
    a->keep1 = (float)(1 - beta1);
    a->keep2 = (float)(1 - beta2);
    a->eps = (float)attr[ATTR(ADAMW, eps)].f;
    a->decay = attr[ATTR(ADAMW, decay)].f;
}

struct update_args adamw_operands(const struct kernel_args *k, bool *packed)
{
    bool any_packed;
    const struct view *v = k->operand;
    struct update_args a = update_operands(&v[OPND(ADAMW, p)], &v[OPND(ADAMW, copy)], &v[OPND(ADAMW, m)], &v[OPND(ADAMW, v)],
                                           &v[OPND(ADAMW, g)], &v[OPND(ADAMW, scale)], &v[OPND(ADAMW, step)], packed ? packed : &any_packed);
    set_rule(&a, k->attr);
    return a;
}

/* Many tensors in one launch: a block takes MANY_PACKS packs of one of them.  The list is part of the kernel's arguments. */
const unsigned MANY_PACKS = 4 * BLOCK;
struct tensor {
    void *p, *copy, *m, *v;
    const void *g;
    unsigned first, packs; /* first block */
    bool wide_p, wide_copy, wide_m, wide_v, wide_g;
    int64_t count; /* of SQNORM */
};
struct tensors {
    struct tensor tensor[CUDA_FUSE_MOST];
    unsigned n;
};

/* the block's tensor, and its pack k of this thread; false: there is none */
__device__ __forceinline__ const struct tensor &own_tensor(const struct tensors &all)
{
    unsigned low = 0, high = all.n;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (all.tensor[middle].first <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return all.tensor[low];
}

__global__ void __launch_bounds__(BLOCK) adamw_many_kernel(const __grid_constant__ update_args a, const __grid_constant__ tensors all)
{
    const struct tensor &t = own_tensor(all);
    struct rates r = rates_of(a.scale, a.step, a.decay);
    struct any param = {t.p, 0, t.wide_p}, copy = {t.copy, 0, t.wide_copy}, mean = {t.m, 0, t.wide_m}, square = {t.v, 0, t.wide_v},
               gradient = {const_cast<void *>(t.g), 0, t.wide_g};
    unsigned first = (blockIdx.x - t.first) * MANY_PACKS + threadIdx.x;
    for (unsigned k = first; k < t.packs && k < first + MANY_PACKS && r.scale >= 0; k += BLOCK) {
        size_t j = (size_t)k * PACK;
        float p[PACK], m[PACK], v[PACK], g[PACK];
        load_any<PACK>(p, param, 0, j);
        load_any<PACK>(m, mean, 0, j);
        load_any<PACK>(v, square, 0, j);
        load_any<PACK>(g, gradient, 0, j);
        UNROLL for (int e = 0; e < PACK; e++) adamw(a, r, g[e], &p[e], &m[e], &v[e]);
        store_any<PACK>(param, 0, j, p);
        store_any<PACK>(mean, 0, j, m);
        store_any<PACK>(square, 0, j, v);
        if (t.copy)
            store_any<PACK>(copy, 0, j, p);
    }
}

/* part of a block: its tensor's count times the sum of squares; tensors too large for one block per piece are walked over */
__global__ void __launch_bounds__(BLOCK) square_many_kernel(double *part, const __grid_constant__ tensors all)
{
    SHARED(double, meet, 32);
    const struct tensor &t = own_tensor(all);
    struct any gradient = {const_cast<void *>(t.g), 0, t.wide_g};
    unsigned next = &t - all.tensor + 1 < (long)all.n ? (&t)[1].first : gridDim.x, blocks = next - t.first;
    double total = 0;
    for (unsigned k = (blockIdx.x - t.first) * BLOCK + threadIdx.x; k < t.packs; k += blocks * BLOCK) {
        float g[PACK], sum = 0;
        load_any<PACK>(g, gradient, 0, (size_t)k * PACK);
        UNROLL for (int e = 0; e < PACK; e++) sum += g[e] * g[e];
        total += (double)sum;
    }
    total = block_sum(total, meet);
    if (threadIdx.x == 0)
        part[blockIdx.x] = total * (double)t.count;
}

#define AT(k, op, name) (&(k)->operand[OPND(op, name)])

/* whole packs without gaps, few enough to be counted in 32 bits */
bool flat_packs(const struct view *v)
{
    size_t n = (size_t)v->rows * v->cols;
    return !v->data || ((v->ld == v->cols || v->rows == 1) && n % PACK == 0 && n / PACK < UINT32_MAX / 2 && (uintptr_t)v->data % 16 == 0);
}

bool fits_adamw(const struct kernel_args *first, const struct kernel_args *k)
{
    for (unsigned i = 0; i <= OPND(ADAMW, g); i++)
        if (!flat_packs(&k->operand[i]))
            return false;
    return AT(k, ADAMW, scale)->data == AT(first, ADAMW, scale)->data && AT(k, ADAMW, step)->data == AT(first, ADAMW, step)->data &&
           memcmp(k->attr, first->attr, (ATTR(ADAMW, decay) + 1) * sizeof *k->attr) == 0;
}

bool fits_square(const struct kernel_args *first, const struct kernel_args *k)
{
    return flat_packs(AT(k, SQNORM, g)) && AT(k, SQNORM, sum)->data == AT(first, SQNORM, sum)->data &&
           (k == first || AT(k, SQNORM, sum)->add);
}

struct tensor tensor_of_adamw(const struct kernel_args *k)
{
    const struct view *p = AT(k, ADAMW, p), *copy = AT(k, ADAMW, copy), *m = AT(k, ADAMW, m), *v = AT(k, ADAMW, v), *g = AT(k, ADAMW, g);
    struct tensor t = {p->data, copy->data, m->data, v->data, g->data, 0, (unsigned)((size_t)p->rows * p->cols / PACK),
                       p->dtype == DTYPE_F32, copy->dtype == DTYPE_F32, m->dtype == DTYPE_F32, v->dtype == DTYPE_F32,
                       g->dtype == DTYPE_F32, 1};
    return t;
}

__device__ double clip_factor(double limit, double sum)
{
    double s = limit > 0 ? limit / (sqrt(sum) + 1e-6) : 1;
    return s < 1 ? s : 1;
}

__global__ void clip_kernel(double *scale, const double *sum, const double *need, double limit)
{
    bool finite = *sum <= 1.7976931348623157e308;
    *scale = !finite || (need && need[0] > 0) ? -1 : clip_factor(limit, *sum);
}

__global__ void clip_scaled_kernel(double *scale, double *sum, double *state, const double *need, double limit, double window,
                                   double hysteresis)
{
    double by = state[SCALE_FACTOR], whole = *sum;
    bool overflow = !(whole <= 1.7976931348623157e308), lacks = need && need[0] > 0;
    *sum = whole / by / by;
    *scale = overflow || lacks ? -1 : clip_factor(limit, *sum) / by;
    if (overflow) {
        state[SCALE_GOOD_STEPS] = 0;
        state[SCALE_PATIENCE] -= 1;
        state[SCALE_SKIPPED] += 1;
        if (state[SCALE_PATIENCE] <= 0)
            state[SCALE_FACTOR] = by > 2 ? by / 2 : 1;
    } else if (!lacks) {
        state[SCALE_GOOD_STEPS] += 1;
        if (state[SCALE_GOOD_STEPS] >= window) {
            state[SCALE_FACTOR] = 2 * by;
            state[SCALE_GOOD_STEPS] = 0;
            state[SCALE_PATIENCE] = hysteresis;
        }
    }
}

} // namespace

const char *cuda_CLIP(const struct cuda_call *c)
{
    LAUNCH(clip_kernel, 1, 1, 0, c->stream, static_cast<double *>(OPERAND(CLIP, scale).data),
           static_cast<const double *>(OPERAND(CLIP, sum).data), static_cast<const double *>(OPERAND(CLIP, need).data),
           NUMBER(CLIP, limit));
    return cuda_launched();
}

const char *cuda_CLIP_SCALED(const struct cuda_call *c)
{
    LAUNCH(clip_scaled_kernel, 1, 1, 0, c->stream, static_cast<double *>(OPERAND(CLIP_SCALED, scale).data),
           static_cast<double *>(OPERAND(CLIP_SCALED, sum).data), static_cast<double *>(OPERAND(CLIP_SCALED, state).data),
           static_cast<const double *>(OPERAND(CLIP_SCALED, need).data), NUMBER(CLIP_SCALED, limit),
           (double)INTEGER(CLIP_SCALED, window), (double)INTEGER(CLIP_SCALED, hysteresis));
    return cuda_launched();
}

unsigned cuda_fuse_many(const enum op *ops, const struct kernel_args *const *args, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (ops[i] != ops[0] || !(ops[0] == OP_ADAMW ? fits_adamw(args[0], args[i]) : fits_square(args[0], args[i])))
            return i ? i : 1;
    return n;
}

static const char *square_many(const struct kernel_args *const *args, unsigned n, const struct cuda_call *c)
{
    struct tensors all = {};
    unsigned blocks = 0;
    size_t total = 0;
    for (unsigned i = 0; i < n; i++)
        total += (size_t)AT(args[i], SQNORM, g)->rows * AT(args[i], SQNORM, g)->cols / PACK;
    for (all.n = 0; all.n < n; all.n++) { /* blocks by size, so that all end together */
        const struct view *g = AT(args[all.n], SQNORM, g);
        struct tensor *t = &all.tensor[all.n];
        t->g = g->data;
        t->packs = (unsigned)((size_t)g->rows * g->cols / PACK);
        t->wide_g = g->dtype == DTYPE_F32;
        t->count = args[all.n]->attr[ATTR(SQNORM, count)].i;
        t->first = blocks;
        unsigned own = blocks_for(t->packs, MANY_PACKS), most = (unsigned)((2 * MOST_PARTS - n) * (size_t)t->packs / total) + 1;
        blocks += own < most ? own : most;
    }
    double *part = static_cast<double *>(c->workspace);
    LAUNCH(square_many_kernel, blocks, BLOCK, 0, c->stream, part, all);
    return cuda_sum_parts(AT(args[0], SQNORM, sum), part, blocks, 1, c->stream);
}

const char *cuda_fused_many(const enum op *ops, const struct kernel_args *const *args, unsigned n, const struct cuda_call *c)
{
    if (ops[0] == OP_SQNORM)
        return square_many(args, n, c);
    struct tensors all = {};
    struct update_args a = adamw_operands(args[0], nullptr);
    unsigned blocks = 0;
    for (all.n = 0; all.n < n; all.n++) {
        struct tensor *t = &all.tensor[all.n];
        *t = tensor_of_adamw(args[all.n]);
        t->first = blocks;
        blocks += blocks_for(t->packs, MANY_PACKS);
    }
    LAUNCH(adamw_many_kernel, blocks, BLOCK, 0, c->stream, a, all);
    return cuda_launched();
}

static const char *launch_adamw(const struct cuda_call *c, const struct update_args &a, bool packed)
{
    struct shape s = map_shape(a.rows, packed ? a.cols / PACK : a.cols);
    if (packed)
        LAUNCH(adamw_kernel<PACK>, s.grid, s.block, 0, c->stream, a);
    else
        LAUNCH(adamw_kernel<1>, s.grid, s.block, 0, c->stream, a);
    return cuda_launched();
}

const char *cuda_ADAMW(const struct cuda_call *c)
{
    bool packed;
    struct update_args a = adamw_operands(c->args, &packed);
    return launch_adamw(c, a, packed);
}

const char *cuda_ADAMW_AHEAD(const struct cuda_call *c)
{
    bool packed;
    struct update_args a = update_operands(&OPERAND(ADAMW_AHEAD, p), &OPERAND(ADAMW_AHEAD, copy), &OPERAND(ADAMW_AHEAD, m),
                                           &OPERAND(ADAMW_AHEAD, v), &OPERAND(ADAMW_AHEAD, g), nullptr,
                                           &OPERAND(ADAMW_AHEAD, step), &packed);
    static_assert(ATTR(ADAMW_AHEAD, decay) == ATTR(ADAMW, decay), "one rule, the same attributes");
    set_rule(&a, c->args->attr);
    a.ahead = true;
    return launch_adamw(c, a, packed);
}

const char *cuda_SEAM(const struct cuda_call *c)
{
    (void)c;
    return nullptr;
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
