/* Attention of some rows to some keys of a sequence that is split over ranks, the merge of two such parts, and moves
 * between columns and blocks of rows. Merging is exact because "lse" holds the sum of exponentials: L + L', and (o L
 * + o' L') / (L + L'); a row that sees no key has L = 0 and o = 0. */

#include "compiler/execute/kernel.h"

#include <string.h>

struct split {
    uint64_t rows, parts, sequence;
    int64_t first, shift;
};
struct part {
    uint32_t heads, kv, head, u; /* u: dimension of a head's values */
    int64_t window;
    uint64_t scale, softcap;
    int64_t alibi, first_head; /* linear biases: total number of heads, 0 = none; index of the first one on this rank */
    struct split q, k;
};

#define PART(op)                                                                                                       \
    {                                                                                                                  \
        (uint32_t) INTEGER(op, heads), (uint32_t)INTEGER(op, kv), (uint32_t)INTEGER(op, head),                         \
            exact_share(V(op, v)->cols, INTEGER(op, kv)), INTEGER(op, window), field_real(NUMBER(op, scale)),          \
            NUMBER(op, softcap) > 0 ? field_image(NUMBER(op, softcap)) : 0, INTEGER(op, alibi),                        \
            INTEGER(op, first_head),                                                                                   \
            {V(op, q)->rows, (uint64_t)INTEGER(op, parts), (uint64_t)INTEGER(op, sequence), INTEGER(op, first),        \
             INTEGER(op, shift)},                                                                                      \
        {                                                                                                              \
            V(op, k)->rows, (uint64_t)INTEGER(op, kparts), (uint64_t)INTEGER(op, sequence), INTEGER(op, kfirst),       \
                INTEGER(op, kshift)                                                                                    \
        }                                                                                                              \
    }

static bool sensible(const struct part *p)
{
    return p->heads && p->kv && p->heads % p->kv == 0 && p->q.parts && p->k.parts && p->q.sequence &&
           p->q.rows % p->q.parts == 0 && p->k.rows % p->k.parts == 0;
}

/* The place of a row in its sequence; sets the index of that sequence. */
static int64_t place(const struct split *s, uint64_t row, uint64_t *sequence)
{
    uint64_t part = row / (s->rows / s->parts), within = row % (s->rows / s->parts), w = within % s->sequence;
    *sequence = within / s->sequence;
    return exact_place_of(part, w, s->sequence, s->first, s->shift);
}

static uint64_t *at(const struct exact_view *v, uint64_t row, uint32_t head, uint32_t dims)
{
    return v->at + row * v->cols + (uint64_t)head * dims;
}

/* Does row i of the queries see key j? */
static bool sees(const struct part *p, uint64_t i, uint64_t j)
{
    uint64_t si, sj;
    int64_t x = place(&p->q, i, &si), y = place(&p->k, j, &sj);
    return si == sj && y <= x && (!p->window || y > x - p->window);
}

/* What is added to row i's score for key j. */
static uint64_t bias(const struct part *p, uint64_t slope, uint64_t i, uint64_t j)
{
    uint64_t si, sj;
    return slope ? field_mul(slope, field_integer(place(&p->k, j, &sj) - place(&p->q, i, &si))) : 0;
}

static uint64_t raw_score(const struct part *p, const uint64_t *q, const uint64_t *key)
{
    return field_mul(field_dot(q, 1, key, 1, p->head), p->scale);
}

static void add_scaled(uint64_t *to, uint64_t factor, const uint64_t *from, uint32_t n)
{
    for (uint32_t d = 0; d < n; d++)
        to[d] = field_add(to[d], field_mul(factor, from[d]));
}

void exact_ATTENTION_PART(struct exact_args *k)
{
    struct part p = PART(ATTENTION_PART);
    const struct exact_view *q = V(ATTENTION_PART, q), *o = V(ATTENTION_PART, o);
    for (uint64_t i = 0; sensible(&p) && i < q->rows; i++)
        for (uint32_t h = 0; h < p.heads; h++) {
            uint64_t total = 0, *out = at(o, i, h, p.u), slope = exact_slope(p.alibi, p.first_head + h);
            uint32_t g = h / (p.heads / p.kv);
            for (uint64_t j = 0; j < p.k.rows; j++) {
                if (!sees(&p, i, j))
                    continue;
                uint64_t raw = raw_score(&p, at(q, i, h, p.head), at(V(ATTENTION_PART, k), j, g, p.head));
                uint64_t score = p.softcap ? field_hash(SALT_CAP, raw, p.softcap) : raw;
                uint64_t e = exact_exp(field_add(score, bias(&p, slope, i, j)));
                total = field_add(total, e);
                add_scaled(out, e, at(V(ATTENTION_PART, v), j, g, p.u), p.u);
            }
            uint64_t inverse = field_inverse(total);
            for (uint32_t d = 0; d < p.u; d++)
                out[d] = field_mul(out[d], inverse);
            V(ATTENTION_PART, lse)->at[i * p.heads + h] = total;
        }
}

static void backward_row(struct exact_args *k, const struct part *p, uint64_t i, uint32_t h)
{
    uint32_t n = p->head, u = p->u, g = h / (p->heads / p->kv);
    const uint64_t *q = at(V(ATTENTION_PART_I, q), i, h, n), *dout = at(V(ATTENTION_PART_I, dout), i, h, u);
    uint64_t delta = field_dot(at(V(ATTENTION_PART_I, o), i, h, u), 1, dout, 1, u);
    uint64_t inverse = field_inverse(V(ATTENTION_PART_I, lse)->at[i * p->heads + h]);
    uint64_t slope = exact_slope(p->alibi, p->first_head + h);
    for (uint64_t j = 0; j < p->k.rows; j++) {
        if (!sees(p, i, j))
            continue;
        const uint64_t *key = at(V(ATTENTION_PART_I, k), j, g, n), *value = at(V(ATTENTION_PART_I, v), j, g, u);
        uint64_t raw = raw_score(p, q, key), steep = p->softcap ? field_hash(SALT_CAP_SLOPE, raw, p->softcap) : 1;
        uint64_t score = p->softcap ? field_hash(SALT_CAP, raw, p->softcap) : raw;
        uint64_t prob = field_mul(exact_exp(field_add(score, bias(p, slope, i, j))), inverse);
        uint64_t ds = field_mul(prob, field_sub(field_dot(dout, 1, value, 1, u), delta));
        ds = field_mul(field_mul(ds, steep), p->scale);
        add_scaled(at(V(ATTENTION_PART_I, dq), i, h, n), ds, key, n);
        add_scaled(at(V(ATTENTION_PART_I, dk), j, g, n), ds, q, n);
        add_scaled(at(V(ATTENTION_PART_I, dv), j, g, u), prob, dout, u);
    }
}

void exact_ATTENTION_PART_I(struct exact_args *k)
{
    struct part p = PART(ATTENTION_PART_I);
    for (uint64_t i = 0; sensible(&p) && i < p.q.rows; i++)
        for (uint32_t h = 0; h < p.heads; h++)
            backward_row(k, &p, i, h);
}

void exact_ATTENTION_MERGE(struct exact_args *k)
{
    const struct exact_view *o = V(ATTENTION_MERGE, o), *lse = V(ATTENTION_MERGE, lse),
                            *part = V(ATTENTION_MERGE, part);
    uint64_t head = (uint64_t)INTEGER(ATTENTION_MERGE, head);
    for (uint64_t i = 0; i < (uint64_t)lse->rows * lse->cols && head * lse->cols == o->cols; i++) {
        uint64_t a = lse->at[i], b = V(ATTENTION_MERGE, part_lse)->at[i], sum = field_add(a, b),
                 inverse = field_inverse(sum);
        for (uint64_t d = 0; d < head; d++) {
            uint64_t both = field_add(field_mul(o->at[i * head + d], a), field_mul(part->at[i * head + d], b));
            o->at[i * head + d] = field_mul(both, inverse);
        }
        lse->at[i] = sum;
    }
}

void exact_COLUMNS_SPLIT(struct exact_args *k)
{
    const struct exact_view *y = V(COLUMNS_SPLIT, y), *x = V(COLUMNS_SPLIT, x);
    for (uint64_t i = 0; i < x->rows; i++)
        for (uint64_t p = 0; p < y->rows / x->rows; p++)
            memcpy(y->at + (p * x->rows + i) * y->cols, x->at + i * x->cols + p * y->cols, y->cols * sizeof *y->at);
}

void exact_COLUMNS_JOIN(struct exact_args *k)
{
    const struct exact_view *y = V(COLUMNS_JOIN, y), *x = V(COLUMNS_JOIN, x);
    for (uint64_t i = 0; i < y->rows; i++)
        for (uint64_t p = 0; p < x->rows / y->rows; p++)
            memcpy(y->at + i * y->cols + p * x->cols, x->at + (p * y->rows + i) * x->cols, x->cols * sizeof *y->at);
}
