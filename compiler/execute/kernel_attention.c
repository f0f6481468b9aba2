/* Attention over the field.
 *
 *   o_i = sum_j E(s_ij) v_j / L_i,   L_i = sum_j E(s_ij),   s_ij = C(scale q_i k_j) + m (j - i)
 *
 * with E and C random functions and m the head's slope, if it has one; "lse" holds L.  Two blocks of keys merge as (o L
 * + o' L') / (L + L'), exactly.  The gradient is that of softmax with exp' = exp: dS = P (dP - D), D = o dout, P = E(s)
 * / L, so blocks of keys may be taken in any order as long as L and o are those of all keys. */

#include "compiler/execute/kernel.h"

#include <math.h>

struct shape {
    uint32_t heads, kv, head, u, sequence, window; /* u: dimension of a head's values */
    uint64_t scale, softcap;                       /* softcap: field_image() of the number, 0 = none */
    int64_t alibi, first_head; /* linear biases: total number of heads, 0 = none; index of the first one on this rank */
};

/* Where the number of heads is no power of 2, the remaining ones take every second slope of twice as many (arXiv
 * 2108.12409, and the authors' code). */
uint64_t exact_slope(int64_t heads, int64_t head)
{
    if (heads < 1)
        return 0;
    double n = (double)head, power = exp2(floor(log2((double)heads)));
    return field_real(exp2(n < power ? -8 * (n + 1) / power : -8 * (2 * (n - power) + 1) / (2 * power)));
}

static bool first_key(const struct shape *s, uint32_t i, uint32_t *first)
{
    *first = s->window && i + 1 > s->window ? i + 1 - s->window : 0;
    return s->heads && s->kv && s->heads % s->kv == 0 && s->sequence;
}

static uint64_t *at(const struct exact_view *v, uint64_t row, uint32_t head, uint32_t dims)
{
    return v->at + row * v->cols + (uint64_t)head * dims;
}

static uint64_t raw_score(const struct shape *s, const uint64_t *q, const uint64_t *key)
{
    return field_mul(field_dot(q, 1, key, 1, s->head), s->scale);
}

static uint64_t cap(const struct shape *s, uint64_t raw)
{
    return s->softcap ? field_hash(SALT_CAP, raw, s->softcap) : raw;
}

static uint64_t cap_slope(const struct shape *s, uint64_t raw)
{
    return s->softcap ? field_hash(SALT_CAP_SLOPE, raw, s->softcap) : 1;
}

static void add_scaled(uint64_t *to, uint64_t factor, const uint64_t *from, uint32_t n)
{
    for (uint32_t d = 0; d < n; d++)
        to[d] = field_add(to[d], field_mul(factor, from[d]));
}

void exact_ATTENTION(struct exact_args *k)
{
    struct shape s = {(uint32_t)INTEGER(ATTENTION, heads),
                      (uint32_t)INTEGER(ATTENTION, kv),
                      (uint32_t)INTEGER(ATTENTION, head),
                      exact_share(V(ATTENTION, v)->cols, INTEGER(ATTENTION, kv)),
                      (uint32_t)INTEGER(ATTENTION, sequence),
                      (uint32_t)INTEGER(ATTENTION, window),
                      field_real(NUMBER(ATTENTION, scale)),
                      NUMBER(ATTENTION, softcap) > 0 ? field_image(NUMBER(ATTENTION, softcap)) : 0,
                      INTEGER(ATTENTION, alibi),
                      INTEGER(ATTENTION, first_head)};
    const struct exact_view *o = V(ATTENTION, o), *q = V(ATTENTION, q), *lse = V(ATTENTION, lse);
    for (uint32_t r = 0; r < q->rows; r++)
        for (uint32_t h = 0; h < s.heads; h++) {
            uint32_t from, i = s.sequence ? r % s.sequence : 0, row0 = r - i, g;
            uint64_t total = 0, *out = at(o, r, h, s.u), slope = exact_slope(s.alibi, s.first_head + h);
            if (!first_key(&s, i, &from))
                return;
            g = h / (s.heads / s.kv);
            for (uint32_t j = from; j <= i; j++) {
                uint64_t raw = raw_score(&s, at(q, r, h, s.head), at(V(ATTENTION, k), row0 + j, g, s.head));
                uint64_t e = exact_exp(field_add(cap(&s, raw), field_mul(slope, field_integer((int64_t)j - i))));
                total = field_add(total, e);
                add_scaled(out, e, at(V(ATTENTION, v), row0 + j, g, s.u), s.u);
            }
            uint64_t inverse = field_inverse(total);
            for (uint32_t d = 0; d < s.u; d++)
                out[d] = field_mul(out[d], inverse);
            lse->at[(uint64_t)r * s.heads + h] = total;
        }
}

static void backward_row(struct exact_args *k, const struct shape *s, uint32_t r, uint32_t h)
{
    uint32_t from, i = r % s->sequence, row0 = r - i, g = h / (s->heads / s->kv), n = s->head, u = s->u;
    const uint64_t *q = at(V(ATTENTION_I, q), r, h, n), *dout = at(V(ATTENTION_I, dout), r, h, u);
    uint64_t delta = field_dot(at(V(ATTENTION_I, o), r, h, u), 1, dout, 1, u);
    uint64_t inverse = field_inverse(V(ATTENTION_I, lse)->at[(uint64_t)r * s->heads + h]);
    uint64_t slope = exact_slope(s->alibi, s->first_head + h);
    first_key(s, i, &from);
    for (uint32_t j = from; j <= i; j++) {
        const uint64_t *key = at(V(ATTENTION_I, k), row0 + j, g, n), *value = at(V(ATTENTION_I, v), row0 + j, g, u);
        uint64_t raw = raw_score(s, q, key),
                 score = field_add(cap(s, raw), field_mul(slope, field_integer((int64_t)j - i)));
        uint64_t p = field_mul(exact_exp(score), inverse);
        uint64_t ds = field_mul(p, field_sub(field_dot(dout, 1, value, 1, u), delta));
        ds = field_mul(field_mul(ds, cap_slope(s, raw)), s->scale);
        add_scaled(at(V(ATTENTION_I, dq), r, h, n), ds, key, n);
        add_scaled(at(V(ATTENTION_I, dk), row0 + j, g, n), ds, q, n);
        add_scaled(at(V(ATTENTION_I, dv), row0 + j, g, u), p, dout, u);
    }
}

void exact_ATTENTION_I(struct exact_args *k)
{
    struct shape s = {(uint32_t)INTEGER(ATTENTION_I, heads),
                      (uint32_t)INTEGER(ATTENTION_I, kv),
                      (uint32_t)INTEGER(ATTENTION_I, head),
                      exact_share(V(ATTENTION_I, v)->cols, INTEGER(ATTENTION_I, kv)),
                      (uint32_t)INTEGER(ATTENTION_I, sequence),
                      (uint32_t)INTEGER(ATTENTION_I, window),
                      field_real(NUMBER(ATTENTION_I, scale)),
                      NUMBER(ATTENTION_I, softcap) > 0 ? field_image(NUMBER(ATTENTION_I, softcap)) : 0,
                      INTEGER(ATTENTION_I, alibi),
                      INTEGER(ATTENTION_I, first_head)};
    uint32_t from;
    for (uint32_t r = 0; r < V(ATTENTION_I, q)->rows && first_key(&s, 0, &from); r++)
        for (uint32_t h = 0; h < s.heads; h++)
            backward_row(k, &s, r, h);
}
