/* Work on every head by itself: normalisation of queries and keys (Dehghani et al. 2023, arXiv 2302.05442;
 * one gain for all heads), and the keys and values of latent attention (DeepSeek-V2, arXiv 2405.04434,
 * section 2.1), whose rotary part all heads share.  Statistics and sums over rows in fp64. */

#include "kernels/cpu/rows.h"

VARIANTS void cpu_HEADNORM(struct kernel_args *k)
{
    const struct view *y = V(HEADNORM, y), *x = V(HEADNORM, x), *stat = V(HEADNORM, rstd);
    uint32_t heads = (uint32_t)INTEGER(HEADNORM, heads), d = (uint32_t)INTEGER(HEADNORM, head);
    float *tmp = k->scratch, *out = tmp + x->cols, *rstd = out + x->cols;
    const float *g = row_load(V(HEADNORM, g), 0, rstd + heads);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp);
        for (uint32_t h = 0; h < heads; h++) {
            const float *a = in + (size_t)h * d;
            rstd[h] = (float)(1 / sqrt(row_dot(a, a, d) / d + NUMBER(HEADNORM, eps)));
            for (uint32_t j = 0; j < d; j++)
                out[(size_t)h * d + j] = a[j] * rstd[h] * g[j];
        }
        row_store(y, i, out);
        row_store(stat, i, rstd);
    }
}

/* as RMSNORM_I, head by head */
VARIANTS void cpu_HEADNORM_I(struct kernel_args *k)
{
    const struct view *dx = V(HEADNORM_I, dx), *dy = V(HEADNORM_I, dy), *x = V(HEADNORM_I, x);
    uint32_t heads = (uint32_t)INTEGER(HEADNORM_I, heads), d = (uint32_t)INTEGER(HEADNORM_I, head);
    float *tmp_x = k->scratch, *tmp_dy = tmp_x + x->cols, *out = tmp_dy + x->cols;
    const float *g = row_load(V(HEADNORM_I, g), 0, out + x->cols);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp_x), *up = row_load(dy, i, tmp_dy);
        const float *rstd = row_load(V(HEADNORM_I, rstd), i, NULL);
        for (uint32_t h = 0; h < heads; h++) {
            const float *a = in + (size_t)h * d, *b = up + (size_t)h * d;
            float *o = out + (size_t)h * d;
            for (uint32_t j = 0; j < d; j++)
                o[j] = b[j] * g[j];
            float pull = (float)(row_dot(o, a, d) / d * (double)rstd[h] * (double)rstd[h]);
            for (uint32_t j = 0; j < d; j++)
                o[j] = rstd[h] * (o[j] - a[j] * pull);
        }
        row_store(dx, i, out);
    }
}

VARIANTS void cpu_HEADNORM_W(struct kernel_args *k)
{
    const struct view *dy = V(HEADNORM_W, dy), *x = V(HEADNORM_W, x);
    uint32_t heads = (uint32_t)INTEGER(HEADNORM_W, heads), d = (uint32_t)INTEGER(HEADNORM_W, head);
    double *sum = (double *)(void *)k->scratch;
    float *tmp_x = k->scratch + 2 * (size_t)d, *tmp_dy = tmp_x + x->cols;
    memset(sum, 0, d * sizeof *sum);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp_x), *up = row_load(dy, i, tmp_dy);
        const float *rstd = row_load(V(HEADNORM_W, rstd), i, NULL);
        for (uint32_t h = 0; h < heads; h++)
            for (uint32_t j = 0; j < d; j++)
                sum[j] += (double)(up[(size_t)h * d + j] * in[(size_t)h * d + j] * rstd[h]);
    }
    columns_store(V(HEADNORM_W, dg), sum);
}

/* Scores that have no value (openai/gpt-oss, torch/model.py, sdpa()), after attention and not in it: one more
 * term of the softmax's denominator makes every weight smaller by the same factor. */
void cpu_SINK(struct kernel_args *k)
{
    const struct view *y = V(SINK, y), *total = V(SINK, total), *x = V(SINK, x), *lse = V(SINK, lse);
    uint32_t heads = (uint32_t)INTEGER(SINK, heads), d = (uint32_t)INTEGER(SINK, head);
    float *tmp = k->scratch, *out = tmp + x->cols, *sums = out + x->cols;
    const float *sink = row_load(V(SINK, sink), 0, sums + heads);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp), *own = row_load(lse, i, NULL);
        for (uint32_t h = 0; h < heads; h++) {
            double most = own[h] > sink[h] ? own[h] : sink[h];
            double e = exp(own[h] - most), sum = e + exp(sink[h] - most);
            float factor = (float)(e / sum);
            for (size_t j = (size_t)h * d; j < (h + (size_t)1) * d; j++)
                out[j] = factor * in[j];
            sums[h] = (float)(most + log(sum));
        }
        row_store(y, i, out);
        row_store(total, i, sums);
    }
}

void cpu_SINK_W(struct kernel_args *k)
{
    const struct view *dy = V(SINK_W, dy), *y = V(SINK_W, y);
    uint32_t heads = (uint32_t)INTEGER(SINK_W, heads), d = (uint32_t)INTEGER(SINK_W, head);
    double *sum = (double *)(void *)k->scratch;
    float *tmp_y = k->scratch + 2 * (size_t)heads, *tmp_dy = tmp_y + y->cols;
    const float *sink = row_load(V(SINK_W, sink), 0, tmp_dy + y->cols);
    memset(sum, 0, heads * sizeof *sum);
    for (uint32_t i = 0; i < y->rows; i++) {
        const float *out = row_load(y, i, tmp_y), *up = row_load(dy, i, tmp_dy);
        const float *total = row_load(V(SINK_W, total), i, NULL);
        for (uint32_t h = 0; h < heads; h++)
            sum[h] -= exp(sink[h] - total[h]) * row_dot(up + (size_t)h * d, out + (size_t)h * d, d);
    }
    columns_store(V(SINK_W, dsink), sum);
}

void cpu_MLA_KEYS(struct kernel_args *k)
{
    const struct view *key = V(MLA_KEYS, k), *value = V(MLA_KEYS, v), *kv = V(MLA_KEYS, kv), *rope = V(MLA_KEYS, rope);
    uint32_t heads = (uint32_t)INTEGER(MLA_KEYS, heads), r = rope->cols, nope = (uint32_t)INTEGER(MLA_KEYS, head) - r;
    uint32_t u = value->cols / heads;
    float *tmp = k->scratch, *tmp_rope = tmp + kv->cols, *out = tmp_rope + r, *out_v = out + key->cols;
    for (uint32_t i = 0; i < kv->rows; i++) {
        const float *in = row_load(kv, i, tmp), *shared = row_load(rope, i, tmp_rope);
        for (uint32_t h = 0; h < heads; h++) {
            const float *from = in + (size_t)h * (nope + u);
            memcpy(out + (size_t)h * (nope + r), from, nope * sizeof *out);
            memcpy(out + (size_t)h * (nope + r) + nope, shared, r * sizeof *out);
            memcpy(out_v + (size_t)h * u, from + nope, u * sizeof *out);
        }
        row_store(key, i, out);
        row_store(value, i, out_v);
    }
}

void cpu_MLA_KEYS_I(struct kernel_args *k)
{
    const struct view *dkv = V(MLA_KEYS_I, dkv), *drope = V(MLA_KEYS_I, drope);
    const struct view *dk = V(MLA_KEYS_I, dk), *dv = V(MLA_KEYS_I, dv);
    uint32_t heads = (uint32_t)INTEGER(MLA_KEYS_I, heads), r = drope->cols;
    uint32_t nope = (uint32_t)INTEGER(MLA_KEYS_I, head) - r, u = dv->cols / heads;
    float *tmp_k = k->scratch, *tmp_v = tmp_k + dk->cols, *out = tmp_v + dv->cols, *shared = out + dkv->cols;
    for (uint32_t i = 0; i < dk->rows; i++) {
        const float *key = row_load(dk, i, tmp_k), *value = row_load(dv, i, tmp_v);
        memset(shared, 0, r * sizeof *shared);
        for (uint32_t h = 0; h < heads; h++) {
            const float *from = key + (size_t)h * (nope + r);
            memcpy(out + (size_t)h * (nope + u), from, nope * sizeof *out);
            memcpy(out + (size_t)h * (nope + u) + nope, value + (size_t)h * u, u * sizeof *out);
            for (uint32_t j = 0; j < r; j++)
                shared[j] += from[nope + j];
        }
        row_store(dkv, i, out);
        row_store(drope, i, shared);
    }
}

void cpu_CONCAT(struct kernel_args *k)
{
    const struct view *y = V(CONCAT, y), *a = V(CONCAT, a), *b = V(CONCAT, b);
    float *out = k->scratch, *tmp = out + y->cols;
    for (uint32_t i = 0; i < y->rows; i++) {
        memcpy(out, row_load(a, i, tmp), a->cols * sizeof *out);
        memcpy(out + a->cols, row_load(b, i, tmp), b->cols * sizeof *out);
        row_store(y, i, out);
    }
}

void cpu_CONCAT_I(struct kernel_args *k)
{
    const struct view *da = V(CONCAT_I, da), *db = V(CONCAT_I, db), *dy = V(CONCAT_I, dy);
    for (uint32_t i = 0; i < dy->rows; i++) {
        const float *in = row_load(dy, i, k->scratch);
        row_store(da, i, in);
        row_store(db, i, in + da->cols);
    }
}
