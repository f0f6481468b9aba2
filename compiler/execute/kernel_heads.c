/* Kernels that work on each head separately, latent keys, and the remaining element-wise functions. */

#include "compiler/execute/kernel.h"

#include <string.h>

static uint64_t *head_of(const struct exact_view *v, uint64_t row, uint64_t h, uint64_t dims)
{
    return v->at + row * v->cols + h * dims;
}

void exact_SCALE(struct exact_args *k)
{
    const struct exact_view *y = V(SCALE, y);
    uint64_t factor = field_real(NUMBER(SCALE, factor));
    for (uint64_t i = 0; i < (uint64_t)y->rows * y->cols; i++)
        y->at[i] = field_mul(V(SCALE, x)->at[i], factor);
}

void exact_SOFTCAP(struct exact_args *k)
{
    const struct exact_view *y = V(SOFTCAP, y);
    for (uint64_t i = 0; i < (uint64_t)y->rows * y->cols; i++)
        y->at[i] = field_hash(SALT_CAP, V(SOFTCAP, x)->at[i], field_image(NUMBER(SOFTCAP, cap)));
}

void exact_SOFTCAP_I(struct exact_args *k)
{
    const struct exact_view *dx = V(SOFTCAP_I, dx);
    for (uint64_t i = 0; i < (uint64_t)dx->rows * dx->cols; i++) {
        uint64_t slope = field_hash(SALT_CAP_SLOPE, V(SOFTCAP_I, x)->at[i], field_image(NUMBER(SOFTCAP_I, cap)));
        dx->at[i] = field_mul(V(SOFTCAP_I, dy)->at[i], slope);
    }
}

void exact_HEADNORM(struct exact_args *k)
{
    const struct exact_view *y = V(HEADNORM, y), *x = V(HEADNORM, x), *rstd = V(HEADNORM, rstd);
    uint32_t d = exact_share(x->cols, rstd->cols);
    uint64_t share = field_inverse(d);
    for (uint64_t i = 0; i < x->rows; i++)
        for (uint64_t h = 0; h < rstd->cols; h++) {
            const uint64_t *a = head_of(x, i, h, d);
            uint64_t r = field_hash(SALT_RSTD, field_mul(field_dot(a, 1, a, 1, d), share),
                                    field_image(NUMBER(HEADNORM, eps)));
            for (uint32_t j = 0; j < d; j++)
                head_of(y, i, h, d)[j] = field_mul(field_mul(a[j], r), V(HEADNORM, g)->at[j]);
            rstd->at[i * rstd->cols + h] = r;
        }
}

void exact_HEADNORM_I(struct exact_args *k)
{
    const struct exact_view *dx = V(HEADNORM_I, dx), *x = V(HEADNORM_I, x), *rstd = V(HEADNORM_I, rstd);
    uint32_t d = exact_share(x->cols, rstd->cols);
    uint64_t share = field_inverse(d);
    for (uint64_t i = 0; i < x->rows; i++)
        for (uint64_t h = 0; h < rstd->cols; h++) {
            uint64_t r = rstd->at[i * rstd->cols + h], *out = head_of(dx, i, h, d);
            const uint64_t *a = head_of(x, i, h, d), *up = head_of(V(HEADNORM_I, dy), i, h, d);
            for (uint32_t j = 0; j < d; j++)
                out[j] = field_mul(up[j], V(HEADNORM_I, g)->at[j]);
            uint64_t pull = field_mul(field_mul(field_dot(out, 1, a, 1, d), share), field_mul(r, r));
            for (uint32_t j = 0; j < d; j++)
                out[j] = field_mul(r, field_sub(out[j], field_mul(a[j], pull)));
        }
}

void exact_HEADNORM_W(struct exact_args *k)
{
    const struct exact_view *dg = V(HEADNORM_W, dg), *x = V(HEADNORM_W, x), *rstd = V(HEADNORM_W, rstd);
    for (uint64_t i = 0; i < x->rows; i++)
        for (uint64_t h = 0; h < rstd->cols; h++)
            for (uint32_t j = 0; j < dg->cols; j++) {
                uint64_t product = field_mul(head_of(V(HEADNORM_W, dy), i, h, dg->cols)[j],
                                             head_of(x, i, h, dg->cols)[j]);
                dg->at[j] = field_add(dg->at[j], field_mul(product, rstd->at[i * rstd->cols + h]));
            }
}

/* "lse" is the sum of exponentials: a sink adds one more of them, whose value is 0 */
void exact_SINK(struct exact_args *k)
{
    const struct exact_view *y = V(SINK, y), *x = V(SINK, x), *lse = V(SINK, lse);
    uint32_t d = exact_share(x->cols, lse->cols);
    for (uint64_t i = 0; i < (uint64_t)lse->rows * lse->cols; i++) {
        uint64_t own = lse->at[i], sum = field_add(own, exact_exp(V(SINK, sink)->at[i % lse->cols]));
        uint64_t factor = field_mul(own, field_inverse(sum));
        for (uint64_t j = 0; j < d; j++)
            y->at[i * d + j] = field_mul(x->at[i * d + j], factor);
        V(SINK, total)->at[i] = sum;
    }
}

void exact_SINK_W(struct exact_args *k)
{
    const struct exact_view *dsink = V(SINK_W, dsink), *y = V(SINK_W, y), *total = V(SINK_W, total);
    uint32_t d = exact_share(y->cols, total->cols);
    for (uint64_t i = 0; i < (uint64_t)total->rows * total->cols; i++) {
        uint64_t *sum = &dsink->at[i % total->cols], e = exact_exp(V(SINK_W, sink)->at[i % total->cols]);
        uint64_t dot = field_dot(V(SINK_W, dy)->at + i * d, 1, y->at + i * d, 1, d);
        *sum = field_sub(*sum, field_mul(field_mul(e, field_inverse(total->at[i])), dot));
    }
}

void exact_MLA_KEYS(struct exact_args *k)
{
    const struct exact_view *key = V(MLA_KEYS, k), *value = V(MLA_KEYS, v), *kv = V(MLA_KEYS, kv),
                            *rope = V(MLA_KEYS, rope);
    uint32_t heads = (uint32_t)INTEGER(MLA_KEYS, heads), u = exact_share(value->cols, heads), r = rope->cols;
    uint32_t head = exact_share(key->cols, heads), nope = head - r;
    for (uint64_t i = 0; i < kv->rows && r <= head && (uint64_t)heads * (nope + u) == kv->cols; i++)
        for (uint64_t h = 0; h < heads; h++) {
            const uint64_t *from = head_of(kv, i, h, nope + u);
            memcpy(head_of(key, i, h, head), from, nope * sizeof *from);
            memcpy(head_of(key, i, h, head) + nope, head_of(rope, i, 0, 0), r * sizeof *from);
            memcpy(head_of(value, i, h, u), from + nope, u * sizeof *from);
        }
}

void exact_MLA_KEYS_I(struct exact_args *k)
{
    const struct exact_view *dkv = V(MLA_KEYS_I, dkv), *drope = V(MLA_KEYS_I, drope);
    const struct exact_view *dk = V(MLA_KEYS_I, dk), *dv = V(MLA_KEYS_I, dv);
    uint32_t heads = (uint32_t)INTEGER(MLA_KEYS_I, heads), u = exact_share(dv->cols, heads), r = drope->cols;
    uint32_t head = exact_share(dk->cols, heads), nope = head - r;
    for (uint64_t i = 0; i < dk->rows && r <= head && (uint64_t)heads * (nope + u) == dkv->cols; i++)
        for (uint64_t h = 0; h < heads; h++) {
            uint64_t *to = head_of(dkv, i, h, nope + u), *shared = head_of(drope, i, 0, 0);
            memcpy(to, head_of(dk, i, h, head), nope * sizeof *to);
            memcpy(to + nope, head_of(dv, i, h, u), u * sizeof *to);
            for (uint32_t j = 0; j < r; j++)
                shared[j] = field_add(shared[j], head_of(dk, i, h, head)[nope + j]);
        }
}

void exact_CONCAT(struct exact_args *k)
{
    const struct exact_view *y = V(CONCAT, y), *a = V(CONCAT, a), *b = V(CONCAT, b);
    for (uint64_t i = 0; i < y->rows; i++)
        for (uint64_t j = 0; j < y->cols; j++)
            y->at[i * y->cols + j] = j < a->cols ? a->at[i * a->cols + j] : b->at[i * b->cols + j - a->cols];
}

void exact_CONCAT_I(struct exact_args *k)
{
    const struct exact_view *da = V(CONCAT_I, da), *db = V(CONCAT_I, db), *dy = V(CONCAT_I, dy);
    for (uint64_t i = 0; i < dy->rows; i++)
        for (uint64_t j = 0; j < dy->cols; j++)
            *(j < da->cols ? &da->at[i * da->cols + j]
                           : &db->at[i * db->cols + j - da->cols]) = dy->at[i * dy->cols + j];
}
