/* Cross-entropy over a vocabulary that may be split over ranks, and sums over everything: the loss, the gradient's norm.
 *
 * A block per row of logits, which stay in their own format; what is kept of a row is in fp32.  The gradient may take the
 * logits' place.  Sums over everything are fp64: partial sums of blocks, whose number depends on shapes alone, then one
 * block that adds them in order. */

#include "kernels/cuda/fused.cuh"
#include "kernels/cuda/products.h"

namespace {

const unsigned XENT_THREADS = 512, XENT_FUSED_THREADS = 1024; /* most of a row */

template <class T> struct xent_args {
    T *out;
    const T *logits;
    float *max, *sum;
    const int32_t *targets;
    size_t ld_out, ld_logits, ld_max, ld_sum, ld_targets;
    unsigned cols, valid; /* columns, and those of them that are real */
    int64_t start;
    double scale;
    const double *by; /* NULL: 1 */
};
template <class T> __device__ __forceinline__ float slope_scale(const xent_args<T> &a)
{
    return (float)(a.by ? a.scale * *a.by : a.scale);
}

/* f(j, v): all packs of the first n columns of a row, a part of one as single elements */
template <int N, class T, class F> __device__ __forceinline__ void each_column(const T *row, unsigned n, F f)
{
    for (unsigned j = threadIdx.x * N; j < n; j += blockDim.x * N) {
        float v[N];
        if (j + N <= n) {
            load<N>(v, row + j);
            UNROLL for (int e = 0; e < N; e++) f(j + (unsigned)e, v[e]);
        } else {
            for (unsigned k = j; k < n; k++)
                f(k, widen(row[k]));
        }
    }
}

template <int N, class T> __global__ void __launch_bounds__(XENT_THREADS) xent_max_kernel(const xent_args<T> a)
{
    SHARED(float, part, 32);
    float most = -INFINITY;
    each_column<N>(a.logits + blockIdx.x * a.ld_logits, a.valid, [&](unsigned, float x) { most = fmaxf(most, x); });
    most = block_max(most, part);
    if (threadIdx.x == 0)
        a.max[blockIdx.x * a.ld_max] = most;
}

template <int N, class T> __global__ void __launch_bounds__(XENT_THREADS) xent_sum_kernel(const xent_args<T> a)
{
    SHARED(float, part, 32);
    const T *row = a.logits + blockIdx.x * a.ld_logits;
    float most = a.max[blockIdx.x * a.ld_max], sum[1] = {0};
    each_column<N>(row, a.valid, [&](unsigned, float x) { sum[0] += expf(x - most); });
    row_sums<1>(sum, part);
    if (threadIdx.x)
        return;
    int32_t id = a.targets[blockIdx.x * a.ld_targets];
    int64_t target = id - a.start;
    float *out = a.sum + blockIdx.x * a.ld_sum;
    out[0] = id == -1 ? (a.start == 0 ? 1.0f : 0.0f) : sum[0];
    out[1] = target >= 0 && target < a.valid ? widen(row[target]) - most : 0;
}

/* exp(x - most): of what has 8 bits, by the fast unit, off by some 2^-20 */
template <class T> __device__ __forceinline__ float power(float x, float most)
{
    return expf(x - most);
}
template <> __device__ __forceinline__ float power<bf16>(float x, float most)
{
    return __expf(x - most);
}

/* scale (softmax - one-hot); the first `held` packs of the row lie in shared memory, by the threads that now want them */
template <int N, class T>
__device__ __forceinline__ void xent_row_slope(const xent_args<T> &a, const T *row, const T *hold, unsigned held, int64_t target,
                                               int32_t id, float most, float sum)
{
    T *out = a.out + blockIdx.x * a.ld_out;
    float scale = slope_scale(a), factor = scale / sum;
    for (unsigned j = threadIdx.x * N; j < a.cols; j += blockDim.x * N) {
        float v[N];
        load<N>(v, j < held * N ? hold + j : row + j);
        bool plain = j + N <= a.valid && id != -1 && (target < j || target >= j + N);
        UNROLL for (int e = 0; e < N; e++) v[e] = power<T>(v[e], most) * factor;
        if (!plain)
            UNROLL for (int e = 0; e < N; e++)
            {
                unsigned k = j + (unsigned)e;
                v[e] = k < a.valid && id != -1 ? v[e] - (k == target ? scale : 0) : 0;
            }
        store<N>(out + j, v);
    }
}

template <int N, class T> __global__ void __launch_bounds__(XENT_THREADS) xent_slope_kernel(const xent_args<T> a)
{
    int32_t id = a.targets[blockIdx.x * a.ld_targets];
    xent_row_slope<N, T>(a, a.logits + blockIdx.x * a.ld_logits, nullptr, 0, id - a.start, id,
                         a.max[blockIdx.x * a.ld_max], a.sum[blockIdx.x * a.ld_sum]);
}

/* Maximum and sum in one pass: a thread's sum is of exp(x - its own maximum), brought to the row's at the end.  The gradient
 * takes a second one.  Rows of as many columns as vocabularies have are not in the cache any more by then, of all the blocks
 * that run at once, so a block holds its row in shared memory as far as that goes: held packs, the rest is read again.  A
 * thread has DEEP packs on the way. */
template <int N, bool SLOPE, class T>
__global__ void __launch_bounds__(XENT_FUSED_THREADS) xent_fused_kernel(const __grid_constant__ xent_args<T> a, unsigned held)
{
    const int DEEP = 2;
    SHARED(float, part1, 32);
    SHARED(float, part2, 32);
    DYNAMIC_SHARED(T, hold);
    const T *row = a.logits + blockIdx.x * a.ld_logits;
    int32_t id = a.targets[blockIdx.x * a.ld_targets];
    int64_t target = id - a.start;
    float own = -INFINITY, sum[1] = {0}, logit = 0;
    if (threadIdx.x == 0 && target >= 0 && target < a.valid) /* before a gradient takes its place */
        logit = widen(row[target]);
    for (unsigned first = threadIdx.x * N; first < a.valid; first += blockDim.x * (N * DEEP)) {
        float v[DEEP][N], most = own;
        UNROLL for (int d = 0; d < DEEP; d++)
        {
            unsigned j = first + (unsigned)d * blockDim.x * N;
            if (j + N <= a.valid)
                load<N>(v[d], row + j);
            else
                UNROLL for (int e = 0; e < N; e++) v[d][e] = j + (unsigned)e < a.valid ? widen(row[j + (unsigned)e]) : -INFINITY;
        }
        UNROLL for (int d = 0; d < DEEP; d++)
        {
            unsigned j = first + (unsigned)d * blockDim.x * N;
            if (SLOPE && j < held * N && j < a.valid)
                store<N>(hold + j, v[d]); /* what is not valid does not matter */
            UNROLL for (int e = 0; e < N; e++) most = fmaxf(most, v[d][e]);
        }
        if (most == -INFINITY)
            continue;
        sum[0] *= power<T>(own, most);
        UNROLL for (int d = 0; d < DEEP; d++) UNROLL for (int e = 0; e < N; e++) sum[0] += power<T>(v[d][e], most);
        own = most;
    }
    float most = block_max(own, part1);
    sum[0] = own == -INFINITY ? 0 : sum[0] * expf(own - most);
    row_sums<1>(sum, part2);
    if (id == -1)
        sum[0] = a.start == 0 ? 1.0f : 0.0f;
    if (threadIdx.x == 0) {
        a.max[blockIdx.x * a.ld_max] = most;
        a.sum[blockIdx.x * a.ld_sum] = sum[0];
        a.sum[blockIdx.x * a.ld_sum + 1] = target >= 0 && target < a.valid ? logit - most : 0;
    }
    if (SLOPE)
        xent_row_slope<N, T>(a, row, hold, held, target, id, most, sum[0]);
}

template <class T> xent_args<T> xent_operands(const struct view *logits, int64_t start, int64_t vocab, const struct view *max,
                                              const struct view *sum, const struct view *targets)
{
    xent_args<T> a = {};
    a.logits = static_cast<const T *>(logits->data);
    a.ld_logits = logits->ld;
    a.max = static_cast<float *>(max->data);
    a.ld_max = max->ld;
    if (sum) {
        a.sum = static_cast<float *>(sum->data);
        a.ld_sum = sum->ld;
        a.targets = static_cast<const int32_t *>(targets->data);
        a.ld_targets = targets->ld;
    }
    a.cols = logits->cols;
    a.start = start;
    a.valid = vocab <= start ? 0 : vocab - start < a.cols ? (unsigned)(vocab - start) : a.cols;
    return a;
}

/* threads for a row */
unsigned xent_threads(unsigned cols, bool packed)
{
    unsigned n = blocks_for(packed ? cols / PACK : cols, 32) * 32;
    return n < XENT_THREADS ? n : XENT_THREADS;
}

#define XENT_LAUNCH(kernel, packed)                                                                          \
    do {                                                                                                     \
        unsigned threads = xent_threads(a.cols, packed);                                                     \
        if (packed)                                                                                          \
            LAUNCH((kernel<PACK, T>), rows, threads, 0, c->stream, a);                                       \
        else                                                                                                 \
            LAUNCH((kernel<1, T>), rows, threads, 0, c->stream, a);                                          \
    } while (0)

template <class T> const char *xent_max(const struct cuda_call *c)
{
    const struct view *logits = &OPERAND(XENT_MAX, logits);
    unsigned rows = logits->rows;
    xent_args<T> a = xent_operands<T>(logits, INTEGER(XENT_MAX, start), INTEGER(XENT_MAX, vocab), &OPERAND(XENT_MAX, max), nullptr,
                                      nullptr);
    XENT_LAUNCH(xent_max_kernel, view_packed(logits));
    return cuda_launched();
}

template <class T> const char *xent_sum(const struct cuda_call *c)
{
    const struct view *logits = &OPERAND(XENT_SUM, logits);
    unsigned rows = logits->rows;
    xent_args<T> a = xent_operands<T>(logits, INTEGER(XENT_SUM, start), INTEGER(XENT_SUM, vocab), &OPERAND(XENT_SUM, max),
                                      &OPERAND(XENT_SUM, sum), &OPERAND(XENT_SUM, targets));
    XENT_LAUNCH(xent_sum_kernel, view_packed(logits));
    return cuda_launched();
}

template <class T> const char *xent_slope(const struct cuda_call *c)
{
    const struct view *logits = &OPERAND(XENT_I, logits), *out = &OPERAND(XENT_I, dlogits);
    unsigned rows = logits->rows;
    xent_args<T> a = xent_operands<T>(logits, INTEGER(XENT_I, start), INTEGER(XENT_I, vocab), &OPERAND(XENT_I, max),
                                      &OPERAND(XENT_I, sum), &OPERAND(XENT_I, targets));
    a.out = static_cast<T *>(out->data);
    a.ld_out = out->ld;
    a.scale = NUMBER(XENT_I, scale);
    a.by = static_cast<const double *>(OPERAND(XENT_I, by).data);
    XENT_LAUNCH(xent_slope_kernel, view_packed(logits) && view_packed(out));
    return cuda_launched();
}

#define AT(k, op, name) (&(k)->operand[OPND(op, name)])
#define ATTRIBUTE(k, op, name) ((k)->attr[ATTR(op, name)])

/* Bytes of a row that a block holds.  Two blocks of XENT_THREADS share a multiprocessor where that is all of it, else one of
 * twice as many threads has it. */
size_t xent_room(int sm, size_t row, unsigned *threads)
{
    size_t whole = sm == 80 || sm == 87 ? 160 << 10 : sm / 10 == 8 || sm / 10 == 12 ? 96 << 10 : 224 << 10, half = whole / 2 - 2048;
    *threads = row <= half ? XENT_THREADS : XENT_FUSED_THREADS;
    return row < whole - 2048 ? row : whole - 2048;
}

/* args: XENT_MAX, XENT_SUM, and with a gradient XENT_LOSS and XENT_I */
template <class T> const char *xent_fused(const struct kernel_args *const *args, bool slope, const struct cuda_call *c)
{
    const struct view *logits = AT(args[1], XENT_SUM, logits);
    unsigned rows = logits->rows;
    xent_args<T> a = xent_operands<T>(logits, ATTRIBUTE(args[1], XENT_SUM, start).i, ATTRIBUTE(args[1], XENT_SUM, vocab).i,
                                      AT(args[0], XENT_MAX, max), AT(args[1], XENT_SUM, sum), AT(args[1], XENT_SUM, targets));
    unsigned threads, wanted = blocks_for(a.cols / PACK, 32) * 32;
    size_t pack = PACK * sizeof(T), shared = xent_room(product_sm(c), a.cols * sizeof(T), &threads) / pack * pack;
    threads = wanted < threads ? wanted : threads;
    if (!slope) {
        LAUNCH((xent_fused_kernel<PACK, false, T>), rows, threads, 0, c->stream, a, 0);
        return cuda_launched();
    }
    const struct view *out = AT(args[3], XENT_I, dlogits);
    a.out = static_cast<T *>(out->data);
    a.ld_out = out->ld;
    a.scale = ATTRIBUTE(args[3], XENT_I, scale).f;
    a.by = static_cast<const double *>(AT(args[3], XENT_I, by)->data);
    const char *why = cuda_allow_shared(reinterpret_cast<const void *>(xent_fused_kernel<PACK, true, T>), shared);
    if (why)
        return why;
    LAUNCH((xent_fused_kernel<PACK, true, T>), rows, threads, shared, c->stream, a, (unsigned)(shared / pack));
    return cuda_launched();
}

bool same_memory(const struct view *a, const struct view *b)
{
    return a->data == b->data && a->dtype == b->dtype && a->rows == b->rows && (a->rows == 1 || a->ld == b->ld);
}

__global__ void __launch_bounds__(BLOCK) loss_kernel(double *part, const float *sum, size_t ld, unsigned rows)
{
    SHARED(double, meet, 32);
    double total = 0;
    for (size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x; i < rows; i += (size_t)gridDim.x * BLOCK)
        total += log((double)sum[i * ld]) - (double)sum[i * ld + 1];
    total = block_sum(total, meet);
    if (threadIdx.x == 0)
        part[blockIdx.x] = total;
}

/* sum of squares, eight in fp32 before they are added in fp64 */
template <int N, class T>
__global__ void __launch_bounds__(BLOCK) square_kernel(double *part, const T *g, size_t ld, size_t rows, size_t packs)
{
    SHARED(double, meet, 32);
    double total = 0;
    for (size_t p = (size_t)blockIdx.x * BLOCK + threadIdx.x; p < rows * packs; p += (size_t)gridDim.x * BLOCK) {
        size_t i = rows == 1 ? 0 : p / packs;
        float v[N], sum = 0;
        load<N>(v, g + i * ld + (p - i * packs) * N);
        UNROLL for (int e = 0; e < N; e++) sum += v[e] * v[e];
        total += (double)sum;
    }
    total = block_sum(total, meet);
    if (threadIdx.x == 0)
        part[blockIdx.x] = total;
}

__global__ void __launch_bounds__(BLOCK) sum_kernel(double *out, const double *part, unsigned n, double factor, bool add)
{
    SHARED(double, meet, 32);
    double total = 0;
    for (unsigned i = threadIdx.x; i < n; i += BLOCK)
        total += part[i];
    total = block_sum(total, meet) * factor;
    if (threadIdx.x == 0)
        *out = add ? *out + total : total;
}

template <class T> const char *square_norm(const struct cuda_call *c)
{
    const struct view *g = &OPERAND(SQNORM, g);
    bool flat = g->ld == g->cols, packed = view_packed(g);
    size_t rows = flat ? 1 : g->rows, cols = flat ? (size_t)g->rows * g->cols : g->cols, packs = packed ? cols / PACK : cols;
    unsigned blocks = blocks_for(rows * packs, BLOCK * 4);
    blocks = blocks < MOST_PARTS ? blocks : MOST_PARTS;
    double *part = static_cast<double *>(c->workspace);
    const T *from = static_cast<const T *>(g->data);
    if (packed)
        LAUNCH((square_kernel<PACK, T>), blocks, BLOCK, 0, c->stream, part, from, g->ld, rows, packs);
    else
        LAUNCH((square_kernel<1, T>), blocks, BLOCK, 0, c->stream, part, from, g->ld, rows, packs);
    return cuda_sum_parts(&OPERAND(SQNORM, sum), part, blocks, (double)INTEGER(SQNORM, count), c->stream);
}

} // namespace

const char *cuda_sum_parts(const struct view *out, const double *part, unsigned n, double factor, struct CUstream_st *stream)
{
    LAUNCH(sum_kernel, 1, BLOCK, 0, stream, static_cast<double *>(out->data), part, n, factor, out->add);
    return cuda_launched();
}

unsigned cuda_fuse_xent(const enum op *ops, const struct kernel_args *const *args, unsigned n)
{
    const struct view *logits = AT(args[0], XENT_MAX, logits), *max = AT(args[0], XENT_MAX, max);
    int64_t start = ATTRIBUTE(args[0], XENT_MAX, start).i, vocab = ATTRIBUTE(args[0], XENT_MAX, vocab).i;
    if (n < 2 || ops[1] != OP_XENT_SUM || !view_packed(logits) || !same_memory(AT(args[1], XENT_SUM, logits), logits) ||
        !same_memory(AT(args[1], XENT_SUM, max), max) || ATTRIBUTE(args[1], XENT_SUM, start).i != start ||
        ATTRIBUTE(args[1], XENT_SUM, vocab).i != vocab)
        return 1;
    const struct view *sum = AT(args[1], XENT_SUM, sum), *targets = AT(args[1], XENT_SUM, targets);
    bool more = n >= 4 && ops[2] == OP_XENT_LOSS && ops[3] == OP_XENT_I && same_memory(AT(args[2], XENT_LOSS, sum), sum) &&
                same_memory(AT(args[3], XENT_I, logits), logits) && same_memory(AT(args[3], XENT_I, max), max) &&
                same_memory(AT(args[3], XENT_I, sum), sum) && same_memory(AT(args[3], XENT_I, targets), targets) &&
                view_packed(AT(args[3], XENT_I, dlogits)) && ATTRIBUTE(args[3], XENT_I, start).i == start &&
                ATTRIBUTE(args[3], XENT_I, vocab).i == vocab;
    return more ? 4 : 2;
}

const char *cuda_fused_xent(const struct kernel_args *const *args, unsigned n, const struct cuda_call *c)
{
    const char *why = BY_DTYPE(AT(args[0], XENT_MAX, logits)->dtype, xent_fused, args, n == 4, c);
    if (why || n < 4)
        return why;
    struct cuda_call loss = *c;
    loss.args = args[2];
    return cuda_XENT_LOSS(&loss);
}

const char *cuda_XENT_MAX(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(XENT_MAX, logits).dtype, xent_max, c);
}

const char *cuda_XENT_SUM(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(XENT_SUM, logits).dtype, xent_sum, c);
}

const char *cuda_XENT_I(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(XENT_I, logits).dtype, xent_slope, c);
}

const char *cuda_XENT_LOSS(const struct cuda_call *c)
{
    const struct view *sum = &OPERAND(XENT_LOSS, sum);
    unsigned blocks = blocks_for(sum->rows, BLOCK);
    blocks = blocks < MOST_PARTS ? blocks : MOST_PARTS;
    double *part = static_cast<double *>(c->workspace);
    LAUNCH(loss_kernel, blocks, BLOCK, 0, c->stream, part, static_cast<const float *>(sum->data), sum->ld, sum->rows);
    return cuda_sum_parts(&OPERAND(XENT_LOSS, loss), part, blocks, NUMBER(XENT_LOSS, scale) * (double)INTEGER(XENT_LOSS, count),
                          c->stream);
}

const char *cuda_SQNORM(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(SQNORM, g).dtype, square_norm, c);
}
