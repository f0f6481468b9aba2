/* See fused.h: norms with what surrounds them, and which instructions belong together.
 *
 * All fused kernels need whole packs.  The gradients of a norm by input and by weight share a pass: a block takes rows
 * one after the other, keeps its sums for the weights in registers, and leaves them in the workspace for columns.cu. */

#include "kernels/cuda/fused.cuh"
#include "kernels/cuda/products.h"

namespace {

template <class T> struct add_norm_args {
    T *sum, *y;
    const T *a, *b, *shared, *gain, *bias; /* b, shared, bias: NULL = none */
    float *mean, *rstd;
    size_t ld_sum, ld_y, ld_a, ld_b, ld_mean, ld_rstd;
    unsigned rows, h;
    float eps;
};

template <int KEEP, bool CENTER, class T> __global__ void ROW_BOUNDS(KEEP) add_norm_kernel(const add_norm_args<T> a)
{
    SHARED(float, part1, 32);
    SHARED(float, part2, 32);
    size_t i = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    unsigned packs = i < a.rows ? a.h / PACK : 0;
    float v[KEEP][PACK] = {}, sum[1] = {0}, mean = 0;
    UNROLL for (int c = 0; c < KEEP; c++)
    {
        size_t p = threadIdx.x + (size_t)c * blockDim.x, j = p * PACK;
        float other[PACK];
        if (p >= packs)
            continue;
        load<PACK>(v[c], a.a + i * a.ld_a + j);
        if (a.b) {
            load<PACK>(other, a.b + i * a.ld_b + j);
            UNROLL for (int e = 0; e < PACK; e++) v[c][e] += other[e];
        }
        if (a.shared) {
            load<PACK>(other, a.shared + j);
            UNROLL for (int e = 0; e < PACK; e++) v[c][e] += other[e];
        }
        store<PACK>(a.sum + i * a.ld_sum + j, v[c]);
        UNROLL for (int e = 0; e < PACK; e++)
        {
            v[c][e] = widen(narrow<T>(v[c][e])); /* as it would have been read back */
            sum[0] += CENTER ? v[c][e] : 0;
        }
    }
    if (CENTER) {
        row_sums<1>(sum, part1);
        mean = sum[0] / (float)a.h;
        sum[0] = 0;
    }
    UNROLL for (int c = 0; c < KEEP; c++)
        if (threadIdx.x + (unsigned)c * blockDim.x < packs)
            UNROLL for (int e = 0; e < PACK; e++) sum[0] += (v[c][e] - mean) * (v[c][e] - mean);
    row_sums<1>(sum, part2);
    float rstd = rsqrtf(sum[0] / (float)a.h + a.eps);
    UNROLL for (int c = 0; c < KEEP; c++)
    {
        size_t p = threadIdx.x + (size_t)c * blockDim.x, j = p * PACK;
        float gain[PACK], bias[PACK] = {};
        if (p >= packs)
            continue;
        load<PACK>(gain, a.gain + j);
        if (CENTER && a.bias)
            load<PACK>(bias, a.bias + j);
        UNROLL for (int e = 0; e < PACK; e++) v[c][e] = (v[c][e] - mean) * rstd * gain[e] + (CENTER && a.bias ? bias[e] : 0);
        store<PACK>(a.y + i * a.ld_y + j, v[c]);
    }
    if (packs && threadIdx.x == 0) {
        a.rstd[i * a.ld_rstd] = rstd;
        if (CENTER)
            a.mean[i * a.ld_mean] = mean;
    }
}

template <class T> struct slopes_args {
    T *dx;
    const T *dy, *x, *gain;
    const float *mean, *rstd;
    float *part; /* [gain, bias if centred, dx if wanted][blocks][h] */
    size_t ld_dx, ld_dy, ld_x, ld_mean, ld_rstd;
    unsigned rows, h;
    bool add;
};

/* sums over threadIdx.y of what a thread has for its columns, to the workspace; meet: BLOCK2 packs */
template <class T> __device__ __forceinline__ void leave_sums(const slopes_args<T> &a, float *sum, unsigned kind, size_t p, float *meet)
{
    unsigned threads = blockDim.x * blockDim.y, t = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();
    UNROLL for (int e = 0; e < PACK; e++) meet[(unsigned)e * threads + t] = sum[e];
    __syncthreads();
    if (threadIdx.y || p >= a.h / PACK)
        return;
    for (unsigned y = 1; y < blockDim.y; y++)
        UNROLL for (int e = 0; e < PACK; e++) sum[e] += meet[(unsigned)e * threads + y * blockDim.x + threadIdx.x];
    store<PACK>(a.part + ((size_t)kind * gridDim.x + blockIdx.x) * a.h + p * PACK, sum);
}

/* all sums of a thread's packs: of gains, of biases if centred, of dx if wanted */
template <int KEEP, bool CENTER, bool TAIL, class T>
__device__ __forceinline__ void leave_all(const slopes_args<T> &a, float (*gains)[PACK], float (*biases)[PACK], float (*tails)[PACK], float *meet)
{
    UNROLL for (int c = 0; c < KEEP; c++)
    {
        size_t p = threadIdx.x + (size_t)c * blockDim.x;
        leave_sums(a, gains[c], 0, p, meet);
        if (CENTER)
            leave_sums(a, biases[CENTER ? c : 0], 1, p, meet);
        if (TAIL)
            leave_sums(a, tails[TAIL ? c : 0], CENTER ? 2 : 1, p, meet);
    }
}

/* what a thread has of a row, on its way or as it came; KEEP 0: the packs are read where they are wanted */
template <int KEEP, class T> struct slopes_row {
    bool here;
    size_t i;
    float mean, rstd;
    raw_pack<T> x[KEEP ? KEEP : 1], dy[KEEP ? KEEP : 1];
};
template <int KEEP, bool CENTER, class T>
__device__ __forceinline__ void fetch_row(const slopes_args<T> &a, unsigned first, slopes_row<KEEP, T> *row)
{
    row->i = (size_t)first + threadIdx.y;
    row->here = row->i < a.rows;
    row->mean = CENTER && row->here ? a.mean[row->i * a.ld_mean] : 0;
    row->rstd = row->here ? a.rstd[row->i * a.ld_rstd] : 0;
    UNROLL for (int c = 0; c < KEEP; c++)
    {
        size_t p = threadIdx.x + (size_t)c * blockDim.x;
        if (!row->here || p >= a.h / PACK)
            continue;
        row->x[c].load(a.x + row->i * a.ld_x + p * PACK);
        row->dy[c].load(a.dy + row->i * a.ld_dy + p * PACK);
    }
}

/* TAIL: sums of dx as well, as it is stored.  While a row's sums meet, the next row is on its way,
 * where there are registers for it: with two sums it would spill, and take twice as long on an H100. */
template <int KEEP, bool CENTER, bool TAIL, class T>
__global__ void __launch_bounds__(SLOPE_THREADS, KEEP == 1 ? 2 : 1) slopes_kernel(const slopes_args<T> a)
{
    const int AHEAD = sizeof(T) == 2 && KEEP <= 2 && !CENTER ? KEEP : 0;
    SHARED(float, part, 64 * SLOPE_GROUPS);
    SHARED(float, meet, SLOPE_THREADS *PACK);
    unsigned step = gridDim.x * blockDim.y, packs = a.h / PACK;
    float gains[KEEP][PACK], biases[CENTER ? KEEP : 1][PACK], tails[TAIL ? KEEP : 1][PACK];
    UNROLL for (int c = 0; c < KEEP; c++) UNROLL for (int e = 0; e < PACK; e++)
    {
        gains[c][e] = 0;
        biases[CENTER ? c : 0][e] = 0;
        tails[TAIL ? c : 0][e] = 0;
    }
    slopes_row<AHEAD, T> next;
    if (AHEAD)
        fetch_row<AHEAD, CENTER, T>(a, blockIdx.x * blockDim.y, &next);
    for (unsigned first = blockIdx.x * blockDim.y; first < a.rows; first += step) { /* the same for the whole block */
        if (!AHEAD)
            fetch_row<AHEAD, CENTER, T>(a, first, &next);
        slopes_row<AHEAD, T> row = next;
        raw_pack<T> added[AHEAD ? AHEAD : 1] = {}; /* what dx is added to */
        UNROLL for (int c = 0; c < AHEAD; c++)
        {
            size_t p = threadIdx.x + (size_t)c * blockDim.x;
            if (a.add && row.here && p < packs)
                added[c].load(a.dx + row.i * a.ld_dx + p * PACK);
        }
        if (AHEAD && first + step < a.rows)
            fetch_row<AHEAD, CENTER, T>(a, first + step, &next);
        float n[KEEP][PACK] = {}, u[KEEP][PACK] = {}, sum[2] = {0, 0};
        UNROLL for (int c = 0; c < KEEP; c++)
        {
            size_t p = threadIdx.x + (size_t)c * blockDim.x;
            float gain[PACK];
            if (!row.here || p >= packs)
                continue;
            if (!AHEAD) {
                row.x[0].load(a.x + row.i * a.ld_x + p * PACK);
                row.dy[0].load(a.dy + row.i * a.ld_dy + p * PACK);
            }
            row.x[AHEAD ? c : 0].widen(n[c]);
            row.dy[AHEAD ? c : 0].widen(u[c]);
            load<PACK>(gain, a.gain + p * PACK);
            UNROLL for (int e = 0; e < PACK; e++)
            {
                n[c][e] = (n[c][e] - row.mean) * row.rstd;
                gains[c][e] += u[c][e] * n[c][e];
                biases[CENTER ? c : 0][e] += u[c][e];
                u[c][e] *= gain[e];
                sum[0] += u[c][e] * n[c][e];
                sum[1] += CENTER ? u[c][e] : 0;
            }
        }
        row_sums<2>(sum, part + 64 * threadIdx.y);
        float pull = sum[0] / (float)a.h, shift = sum[1] / (float)a.h;
        UNROLL for (int c = 0; c < KEEP; c++)
        {
            size_t p = threadIdx.x + (size_t)c * blockDim.x;
            float old[PACK];
            if (!row.here || p >= packs)
                continue;
            UNROLL for (int e = 0; e < PACK; e++) u[c][e] = row.rstd * (u[c][e] - shift - n[c][e] * pull);
            if (a.add) {
                if (!AHEAD)
                    added[0].load(a.dx + row.i * a.ld_dx + p * PACK);
                added[AHEAD ? c : 0].widen(old);
                UNROLL for (int e = 0; e < PACK; e++) u[c][e] += old[e];
            }
            store<PACK>(a.dx + row.i * a.ld_dx + p * PACK, u[c]);
            if (TAIL)
                UNROLL for (int e = 0; e < PACK; e++) tails[TAIL ? c : 0][e] += widen(narrow<T>(u[c][e]));
        }
        __syncthreads(); /* before the next row's sums take the shared memory */
    }
    leave_all<KEEP, CENTER, TAIL, T>(a, gains, biases, tails, meet);
}

bool same(const struct view *a, const struct view *b)
{
    return a->data == b->data && a->dtype == b->dtype && a->rows == b->rows && a->cols == b->cols && (a->rows == 1 || a->ld == b->ld);
}

/* threads for a row and rows at a time; how many blocks there are depends on shapes alone */
struct row_shape slopes_shape(unsigned rows, unsigned packs)
{
    int keep = packs <= SLOPE_THREADS ? 1 : packs <= 2 * SLOPE_THREADS ? 2 : 4;
    unsigned x = packs <= 32 ? power_of_two(packs, 32) : blocks_for(packs, 32 * (size_t)keep) * 32;
    unsigned y = SLOPE_THREADS / x < SLOPE_GROUPS ? SLOPE_THREADS / x : SLOPE_GROUPS, blocks = blocks_for(rows, y);
    struct row_shape s = {dim3(blocks < SLOPE_BLOCKS ? blocks : SLOPE_BLOCKS), dim3(x, y), keep};
    return s;
}

#define FUSED_BY_KEEP(kernel)                                                                                \
    do {                                                                                                     \
        if (s.keep == 1)                                                                                     \
            LAUNCH((kernel<1, CENTER, T>), s.grid, s.block, 0, c->stream, a);                                \
        else if (s.keep == 2)                                                                                \
            LAUNCH((kernel<2, CENTER, T>), s.grid, s.block, 0, c->stream, a);                                \
        else                                                                                                 \
            LAUNCH((kernel<4, CENTER, T>), s.grid, s.block, 0, c->stream, a);                                \
    } while (0)

#define AT(k, op, name) (&(k)->operand[OPND(op, name)])

template <class T, bool CENTER> const char *add_norm(const struct kernel_args *add, const struct kernel_args *k, const struct cuda_call *c)
{
    const struct view *sum = AT(add, ADD, y), *b = AT(add, ADD, b), *y = CENTER ? AT(k, LAYERNORM, y) : AT(k, RMSNORM, y),
                      *rstd = CENTER ? AT(k, LAYERNORM, rstd) : AT(k, RMSNORM, rstd);
    add_norm_args<T> a = {};
    a.sum = static_cast<T *>(sum->data);
    a.y = static_cast<T *>(y->data);
    a.a = static_cast<const T *>(AT(add, ADD, a)->data);
    a.b = static_cast<const T *>(b->data);
    a.shared = static_cast<const T *>(AT(add, ADD, bias)->data);
    a.gain = static_cast<const T *>((CENTER ? AT(k, LAYERNORM, g) : AT(k, RMSNORM, g))->data);
    a.rstd = static_cast<float *>(rstd->data);
    if (CENTER) {
        a.bias = static_cast<const T *>(AT(k, LAYERNORM, b)->data);
        a.mean = static_cast<float *>(AT(k, LAYERNORM, mean)->data);
        a.ld_mean = AT(k, LAYERNORM, mean)->ld;
    }
    a.ld_sum = sum->ld, a.ld_y = y->ld, a.ld_a = AT(add, ADD, a)->ld, a.ld_b = b->ld, a.ld_rstd = rstd->ld;
    a.rows = sum->rows;
    a.h = sum->cols;
    a.eps = (float)(CENTER ? k->attr[ATTR(LAYERNORM, eps)].f : k->attr[ATTR(RMSNORM, eps)].f);
    struct row_shape s = row_shape(a.rows, a.h / PACK, PACK);
    FUSED_BY_KEEP(add_norm_kernel);
    return cuda_launched();
}

#define SLOPES_BY_KEEP(TAIL)                                                                                 \
    do {                                                                                                     \
        if (s.keep == 1)                                                                                     \
            LAUNCH((slopes_kernel<1, CENTER, TAIL, T>), s.grid, s.block, 0, c->stream, a);                   \
        else if (s.keep == 2)                                                                                \
            LAUNCH((slopes_kernel<2, CENTER, TAIL, T>), s.grid, s.block, 0, c->stream, a);                   \
        else                                                                                                 \
            LAUNCH((slopes_kernel<4, CENTER, TAIL, T>), s.grid, s.block, 0, c->stream, a);                   \
    } while (0)

/* db: of BIAS_W, or NULL */
template <class T, bool CENTER>
const char *slopes(const struct kernel_args *k, const struct kernel_args *w, const struct view *db, const struct cuda_call *c)
{
    const struct view *dx = CENTER ? AT(k, LAYERNORM_I, dx) : AT(k, RMSNORM_I, dx), *dy = CENTER ? AT(k, LAYERNORM_I, dy) : AT(k, RMSNORM_I, dy),
                      *x = CENTER ? AT(k, LAYERNORM_I, x) : AT(k, RMSNORM_I, x), *rstd = CENTER ? AT(k, LAYERNORM_I, rstd) : AT(k, RMSNORM_I, rstd);
    slopes_args<T> a = {};
    a.dx = static_cast<T *>(dx->data);
    a.dy = static_cast<const T *>(dy->data);
    a.x = static_cast<const T *>(x->data);
    a.gain = static_cast<const T *>((CENTER ? AT(k, LAYERNORM_I, g) : AT(k, RMSNORM_I, g))->data);
    a.rstd = static_cast<const float *>(rstd->data);
    if (CENTER) {
        a.mean = static_cast<const float *>(AT(k, LAYERNORM_I, mean)->data);
        a.ld_mean = AT(k, LAYERNORM_I, mean)->ld;
    }
    a.part = static_cast<float *>(c->workspace);
    a.ld_dx = dx->ld, a.ld_dy = dy->ld, a.ld_x = x->ld, a.ld_rstd = rstd->ld;
    a.rows = x->rows;
    a.h = x->cols;
    a.add = dx->add;
    struct row_shape s = slopes_shape(a.rows, a.h / PACK);
    if (db)
        SLOPES_BY_KEEP(true);
    else
        SLOPES_BY_KEEP(false);
    cuda_finish_columns(CENTER ? AT(w, LAYERNORM_W, dg) : AT(w, RMSNORM_W, dg), a.part, s.grid.x, c->stream);
    if (CENTER && AT(w, LAYERNORM_W, db)->data)
        cuda_finish_columns(AT(w, LAYERNORM_W, db), a.part + (size_t)s.grid.x * a.h, s.grid.x, c->stream);
    if (db)
        cuda_finish_columns(db, a.part + (CENTER ? 2 : 1) * (size_t)s.grid.x * a.h, s.grid.x, c->stream);
    return cuda_launched();
}

/* Which instructions belong together. */

bool all_packed(const struct kernel_args *k, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!view_packed(&k->operand[i]))
            return false;
    return true;
}

bool fits_add_norm(enum op op, const struct kernel_args *add, const struct kernel_args *k)
{
    const struct view *sum = AT(add, ADD, y);
    const struct view *x = op == OP_RMSNORM ? AT(k, RMSNORM, x) : AT(k, LAYERNORM, x);
    unsigned own = op == OP_RMSNORM ? 3 : 4; /* y, x, gain, bias */
    return !sum->add && same(sum, x) && all_packed(add, 4) && all_packed(k, own) && row_shape(1, sum->cols / PACK, PACK).keep > 0;
}

/* dy, x and statistics the same; the first must not change what the second reads */
bool fits_slopes(enum op op, const struct kernel_args *k, const struct kernel_args *w)
{
    const struct view *dx = &k->operand[0];
    if (dx->data == AT(k, RMSNORM_I, dy)->data || dx->data == AT(k, RMSNORM_I, x)->data || !all_packed(k, 4) ||
        dx->cols / PACK > 4 * SLOPE_THREADS)
        return false;
    if (op == OP_RMSNORM_I)
        return same(AT(k, RMSNORM_I, dy), AT(w, RMSNORM_W, dy)) && same(AT(k, RMSNORM_I, x), AT(w, RMSNORM_W, x)) &&
               same(AT(k, RMSNORM_I, rstd), AT(w, RMSNORM_W, rstd));
    return same(AT(k, LAYERNORM_I, dy), AT(w, LAYERNORM_W, dy)) && same(AT(k, LAYERNORM_I, x), AT(w, LAYERNORM_W, x)) &&
           same(AT(k, LAYERNORM_I, rstd), AT(w, LAYERNORM_W, rstd)) && same(AT(k, LAYERNORM_I, mean), AT(w, LAYERNORM_W, mean));
}

/* the bias of the layer that made what the norm's input is the sum of: its gradient is the sum of dx's rows */
bool fits_tail(const struct kernel_args *k, const struct kernel_args *bias)
{
    const struct view *dx = AT(k, RMSNORM_I, dx);
    return same(dx, AT(bias, BIAS_W, dy)) && AT(bias, BIAS_W, db)->cols == dx->cols && dx->cols / PACK <= 2 * SLOPE_THREADS;
}

/* columns of one matrix side by side, turned alike */
bool fits_rope(const struct kernel_args *first, const struct kernel_args *k)
{
    for (unsigned i = 0; i < 2; i++) {
        const struct view *a = &first->operand[i], *b = &k->operand[i];
        if (b->data != static_cast<char *>(a->data) + (size_t)a->cols * isa_dtype_bytes(a->dtype) || b->dtype != a->dtype ||
            b->rows != a->rows || b->ld != a->ld || a->ld < a->cols + b->cols)
            return false;
    }
    return memcmp(first->attr, k->attr, (ATTR(ROPE, magnitude) + 1) * sizeof *k->attr) == 0;
}

const char *rope_both(const struct kernel_args *const *args, const struct cuda_call *c)
{
    struct kernel_args both = *args[0];
    struct cuda_call one = *c;
    both.operand[0].cols += args[1]->operand[0].cols;
    both.operand[1].cols += args[1]->operand[1].cols;
    one.args = &both;
    return cuda_ROPE(&one);
}

bool is_product(enum op op)
{
    return op == OP_MATMUL_NT || op == OP_MATMUL_NN || op == OP_MATMUL_TN;
}

} // namespace

unsigned cuda_fuse(const enum op *ops, const struct kernel_args *const *args, unsigned n)
{
    if (n < 2)
        return n;
    if (ops[0] == OP_ADD && (ops[1] == OP_RMSNORM || ops[1] == OP_LAYERNORM))
        return fits_add_norm(ops[1], args[0], args[1]) ? 2 : 1;
    if ((ops[0] == OP_RMSNORM_I && ops[1] == OP_RMSNORM_W) || (ops[0] == OP_LAYERNORM_I && ops[1] == OP_LAYERNORM_W))
        return !fits_slopes(ops[0], args[0], args[1]) ? 1 : n > 2 && ops[2] == OP_BIAS_W && fits_tail(args[0], args[2]) ? 3 : 2;
    if (ops[0] == OP_ROPE && ops[1] == OP_ROPE)
        return fits_rope(args[0], args[1]) ? 2 : 1;
    if (is_product(ops[0]))
        return product_joined_fuse(ops, args, n);
    if (ops[0] == OP_XENT_MAX)
        return cuda_fuse_xent(ops, args, n);
    if (ops[0] == OP_ADAMW || ops[0] == OP_SQNORM)
        return cuda_fuse_many(ops, args, n < CUDA_FUSE_MOST ? n : (unsigned)CUDA_FUSE_MOST);
    return 1;
}

size_t cuda_fused_workspace_bytes(const enum op *ops, const struct kernel_args *const *args, unsigned n)
{
    if (n == 1 || is_product(ops[0]))
        return cuda_workspace_bytes(ops[0], args[0], 90);
    if (ops[0] == OP_RMSNORM_I || ops[0] == OP_LAYERNORM_I) {
        const struct view *x = AT(args[0], RMSNORM_I, x);
        return n * (size_t)slopes_shape(x->rows, x->cols / PACK).grid.x * x->cols * sizeof(float);
    }
    if (ops[0] == OP_XENT_MAX || ops[0] == OP_SQNORM)
        return 2 * MOST_PARTS * sizeof(double);
    return 0;
}

const char *cuda_fused(const enum op *ops, const struct kernel_args *const *args, unsigned n, const struct cuda_call *c)
{
    enum dtype dtype = args[0]->operand[0].dtype;
    if (n > 1 && ops[0] == OP_ADD && ops[1] == OP_RMSNORM)
        return dtype == DTYPE_F32 ? add_norm<float, false>(args[0], args[1], c) : add_norm<bf16, false>(args[0], args[1], c);
    if (n > 1 && ops[0] == OP_ADD)
        return dtype == DTYPE_F32 ? add_norm<float, true>(args[0], args[1], c) : add_norm<bf16, true>(args[0], args[1], c);
    const struct view *db = n > 2 && ops[2] == OP_BIAS_W ? AT(args[2], BIAS_W, db) : NULL;
    if (n > 1 && ops[0] == OP_RMSNORM_I)
        return dtype == DTYPE_F32 ? slopes<float, false>(args[0], args[1], db, c) : slopes<bf16, false>(args[0], args[1], db, c);
    if (n > 1 && ops[0] == OP_LAYERNORM_I)
        return dtype == DTYPE_F32 ? slopes<float, true>(args[0], args[1], db, c) : slopes<bf16, true>(args[0], args[1], db, c);
    if (n > 1 && ops[0] == OP_ROPE)
        return rope_both(args, c);
    if (n > 1 && is_product(ops[0]))
        return product_joined(ops, args, n, c);
    if (n > 1 && ops[0] == OP_XENT_MAX)
        return cuda_fused_xent(args, n, c);
    if (n > 1 && (ops[0] == OP_ADAMW || ops[0] == OP_SQNORM))
        return cuda_fused_many(ops, args, n, c);
    return "these instructions do not belong together";
}
