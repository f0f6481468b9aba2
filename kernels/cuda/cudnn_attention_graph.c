/* Scaled dot-product attention as an operation graph of cuDNN, forward and backward, in the order of operations that
 * its engines know (the operations are those of Dao, FlashAttention-2, arXiv 2307.08691; which composition an engine
 * accepts was found by building plans, tests/kernels/test_cudnn_plans.c).
 *
 *   forward    S = scale Q K', capped, hidden; lse = max + log sum e^(S - max); O = (e^(S - max) / sum) V
 *   backward   D = rows' sums of dO O; P = e^(S - lse); dV = P' dO; dS = P (dO V' - D) (cap's slope) scale; dK = dS' Q;
 *              dQ = dS K, summed in fp32 by atomics
 * Every matrix is [batch, heads, rows, columns] by strides over our row-major views, keys are described transposed.
 * Intermediates are virtual and fp32; what enters a product is bf16.  Of shared key heads the gradients come per query
 * head and are summed. */

#include "kernels/cuda/cudnn_attention.h"

struct build {
    struct cudnn_graph *g;
    const struct cudnn_job *j;
    struct cudnn_shape scores, row; /* [b, heads, s, s], [b, heads, s, 1] */
    void *scale, *low, *cap, *uncap, *window;
};

/* rows of a view: sequences below each other, heads side by side */
static struct cudnn_shape rows_of(const struct cudnn_job *j, int64_t heads, int64_t dims, int64_t ld)
{
    return (struct cudnn_shape){{j->batch, heads, j->sequence, dims}, {j->sequence * ld, dims, ld, 1}};
}
static struct cudnn_shape transposed(struct cudnn_shape s)
{
    return (struct cudnn_shape){{s.dim[0], s.dim[1], s.dim[3], s.dim[2]},
                                {s.stride[0], s.stride[1], s.stride[3], s.stride[2]}};
}

static void values(struct build *b)
{
    b->scale = cudnn_value(b->g, UID_SCALE, CUDNN_F32);
    b->low = cudnn_value(b->g, UID_LOW, CUDNN_F32);
    if (b->j->softcap > 0) {
        b->cap = cudnn_value(b->g, UID_CAP, CUDNN_F32);
        b->uncap = cudnn_value(b->g, UID_UNCAP, CUDNN_F32);
    }
    if (b->j->window)
        b->window = cudnn_value(b->g, UID_WINDOW, CUDNN_I32);
}

static void *scores(struct build *b)
{
    return cudnn_virtual(b->g, CUDNN_F32, &b->scores);
}
static void *map(struct build *b, enum cudnn_pointwise mode, void *x, void *y)
{
    void *out = scores(b);
    cudnn_map(b->g, mode, CUDNN_F32, x, y, out);
    return out;
}

/* s, or low where not row `mode` column */
static void *hide(struct build *b, void *s, void *row, void *column, enum cudnn_pointwise mode)
{
    void *seen = cudnn_virtual(b->g, CUDNN_BOOL, &b->scores), *out = scores(b);
    cudnn_map(b->g, mode, CUDNN_BOOL, row, column, seen);
    cudnn_select(b->g, s, b->low, seen, out);
    return out;
}

/* keys up to the row's own place, and with a window after place - window */
static void *mask(struct build *b, void *s)
{
    void *row = cudnn_virtual(b->g, CUDNN_I32, &b->scores), *column = cudnn_virtual(b->g, CUDNN_I32, &b->scores);
    cudnn_index(b->g, 2, s, row);
    cudnn_index(b->g, 3, s, column);
    s = hide(b, s, row, column, CUDNN_GE);
    if (!b->j->window)
        return s;
    void *above = cudnn_virtual(b->g, CUDNN_I32, &b->scores), *row2 = cudnn_virtual(b->g, CUDNN_I32, &b->scores),
         *column2 = cudnn_virtual(b->g, CUDNN_I32, &b->scores);
    cudnn_index(b->g, 2, s, row2);
    cudnn_index(b->g, 3, s, column2);
    cudnn_map(b->g, CUDNN_ADD, CUDNN_I32, column2, b->window, above);
    return hide(b, s, above, row2, CUDNN_GT);
}

/* raw scores -> scaled and capped; *ratio: what the cap's slope is taken at, NULL without a cap */
static void *scaled(struct build *b, void *raw, void **ratio)
{
    *ratio = NULL;
    void *s = map(b, CUDNN_MUL, raw, b->scale);
    if (!b->cap)
        return s;
    *ratio = map(b, CUDNN_MUL, s, b->uncap);
    return map(b, CUDNN_MUL, map(b, CUDNN_TANH, *ratio, NULL), b->cap);
}

static void forward(struct build *b)
{
    struct cudnn_graph *g = b->g;
    const struct cudnn_job *j = b->j;
    struct cudnn_shape q = rows_of(j, j->heads, j->head, j->ldq), k = transposed(rows_of(j, j->kv, j->head, j->ldk)),
                       v = rows_of(j, j->kv, j->value, j->ldv), o = rows_of(j, j->heads, j->value, j->ldo);
    void *tq = cudnn_tensor(g, UID_Q, CUDNN_BF16, &q), *tk = cudnn_tensor(g, UID_K, CUDNN_BF16, &k),
         *tv = cudnn_tensor(g, UID_V, CUDNN_BF16, &v), *to = cudnn_tensor(g, UID_O, CUDNN_BF16, &o),
         *stats = cudnn_tensor(g, UID_STATS, CUDNN_F32, &b->row), *raw = scores(b), *ratio;
    values(b);
    cudnn_matmul(g, tq, tk, raw);
    void *s = mask(b, scaled(b, raw, &ratio));
    void *most = cudnn_virtual(g, CUDNN_F32, &b->row), *sum = cudnn_virtual(g, CUDNN_F32, &b->row),
         *logs = cudnn_virtual(g, CUDNN_F32, &b->row), *p = cudnn_virtual(g, CUDNN_BF16, &b->scores);
    cudnn_reduction(g, CUDNN_MAX, s, most);
    void *e = map(b, CUDNN_EXP, map(b, CUDNN_SUB, s, most), NULL);
    cudnn_reduction(g, CUDNN_SUM, e, sum);
    cudnn_map(g, CUDNN_LOG, CUDNN_F32, sum, NULL, logs);
    cudnn_map(g, CUDNN_ADD, CUDNN_F32, most, logs, stats);
    cudnn_map(g, CUDNN_DIV, CUDNN_F32, e, sum, p);
    cudnn_matmul(g, p, tv, to);
}

/* d(keys or values) = weights' rows: per query head, summed where heads share */
static void gather(struct build *b, void *weights, void *rows, int64_t dims, void *out)
{
    struct cudnn_graph *g = b->g;
    struct cudnn_shape across = transposed(b->scores),
                       dense = cudnn_dense(b->j->batch, b->j->heads, b->j->sequence, dims);
    void *turned = cudnn_virtual(g, CUDNN_BF16, &across);
    cudnn_reshape(g, weights, turned);
    if (b->j->heads == b->j->kv) {
        cudnn_matmul(g, turned, rows, out);
        return;
    }
    void *each = cudnn_virtual(g, CUDNN_BF16, &dense);
    cudnn_matmul(g, turned, rows, each);
    cudnn_reduction(g, CUDNN_SUM, each, out);
}

static void backward(struct build *b)
{
    struct cudnn_graph *g = b->g;
    const struct cudnn_job *j = b->j;
    struct cudnn_shape q = rows_of(j, j->heads, j->head, j->ldq), k = transposed(rows_of(j, j->kv, j->head, j->ldk)),
                       v = transposed(rows_of(j, j->kv, j->value, j->ldv)), o = rows_of(j, j->heads, j->value, j->ldo),
                       d_o = rows_of(j, j->heads, j->value, j->lddout), dq = rows_of(j, j->heads, j->head, j->lddq),
                       dk = rows_of(j, j->kv, j->head, j->lddk), dv = rows_of(j, j->kv, j->value, j->lddv),
                       product = cudnn_dense(j->batch, j->heads, j->sequence, j->value),
                       sum = cudnn_dense(j->batch, j->heads, j->sequence, j->head);
    void *tq = cudnn_tensor(g, UID_Q, CUDNN_BF16, &q), *tk = cudnn_tensor(g, UID_K, CUDNN_BF16, &k),
         *tv = cudnn_tensor(g, UID_V, CUDNN_BF16, &v), *to = cudnn_tensor(g, UID_O, CUDNN_BF16, &o),
         *tdo = cudnn_tensor(g, UID_DO, CUDNN_BF16, &d_o), *stats = cudnn_tensor(g, UID_STATS, CUDNN_F32, &b->row),
         *tdq = cudnn_tensor(g, UID_DQ, CUDNN_BF16, &dq), *tdk = cudnn_tensor(g, UID_DK, CUDNN_BF16, &dk),
         *tdv = cudnn_tensor(g, UID_DV, CUDNN_BF16, &dv), *sums = cudnn_tensor(g, UID_SUMS, CUDNN_F32, &b->row),
         *dq_sum = cudnn_tensor(g, UID_DQ_SUM, CUDNN_F32, &sum);
    values(b);
    void *both = cudnn_virtual(g, CUDNN_F32, &product), *partial = cudnn_virtual(g, CUDNN_F32, &b->row),
         *raw = scores(b), *ratio;
    cudnn_map(g, CUDNN_MUL, CUDNN_F32, tdo, to, both);
    cudnn_reduction(g, CUDNN_SUM, both, partial);
    cudnn_map(g, CUDNN_MUL, CUDNN_F32, partial, cudnn_value(g, UID_ONE, CUDNN_F32), sums);
    cudnn_matmul(g, tq, tk, raw);
    void *s = scaled(b, raw, &ratio);
    s = mask(b, map(b, CUDNN_SUB, s, stats));
    void *p = map(b, CUDNN_EXP, s, NULL), *dp = scores(b), *ds = cudnn_virtual(g, CUDNN_BF16, &b->scores);
    gather(b, p, tdo, j->value, tdv);
    cudnn_matmul(g, tdo, tv, dp);
    dp = map(b, CUDNN_MUL, map(b, CUDNN_SUB, dp, sums), p);
    if (ratio) {
        void *slope = scores(b);
        cudnn_map_back(g, CUDNN_TANH_BACK, ratio, dp, slope);
        dp = slope;
    }
    cudnn_map(g, CUDNN_MUL, CUDNN_F32, dp, b->scale, ds);
    gather(b, ds, tq, j->head, tdk);
    struct cudnn_shape straight = transposed(k);
    void *keys = cudnn_virtual(g, CUDNN_BF16, &straight);
    cudnn_reshape(g, tk, keys);
    cudnn_matmul(g, ds, keys, dq_sum);
    cudnn_map(g, CUDNN_IDENTITY, CUDNN_F32, dq_sum, NULL, tdq);
}

void cudnn_attention_graph(struct cudnn_graph *g, const struct cudnn_job *j)
{
    struct build b = {.g = g, .j = j};
    b.scores = cudnn_dense(j->batch, j->heads, j->sequence, j->sequence);
    b.row = cudnn_dense(j->batch, j->heads, j->sequence, 1);
    g->next_uid = UID_VIRTUAL;
    if (j->backward)
        backward(&b);
    else
        forward(&b);
}
