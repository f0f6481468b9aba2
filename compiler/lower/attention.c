/* Rotary positions and causal attention on the fused projection's columns [q | k | v]; heads are split over tp.
 * Backward keeps q, k, v after rotation, the output and the log-sum-exp (Dao 2023, section 3.1). */

#include "compiler/lower/build.h"

#include <math.h>

struct qkv {
    struct mat q, k, v;
};

static struct qkv split_qkv(const struct lower *l, const struct attn *t, struct mat m)
{
    uint32_t q = t->heads / l->d->tp * t->head, kv = t->kv / l->d->tp * t->head;
    return (struct qkv){mat_columns(m, 0, q), mat_columns(m, q, kv), mat_columns(m, q + kv, kv)};
}

static void rotate(struct lower *l, const struct attn *t, struct mat m, bool inverse)
{
    const struct rope *r = &t->rope;
    uint32_t i = lower_insn(l, OP_ROPE);
    ARG(l, i, ROPE, y, m, MARK_WRITE);
    ARG(l, i, ROPE, x, m, MARK_READ);
    ATTR_INT_SET(l, i, ROPE, head, t->head);
    ATTR_INT_SET(l, i, ROPE, dims, r->dims);
    ATTR_INT_SET(l, i, ROPE, adjacent, r->adjacent);
    ATTR_INT_SET(l, i, ROPE, inverse, inverse);
    ATTR_BIND_SET(l, i, ROPE, start, 0, NONE, 0);
    ATTR_INT_SET(l, i, ROPE, sequence, lower_sequence(l));
    lower_places(l, i, ATTR(ROPE, first), ATTR(ROPE, shift));
    ATTR_REAL_SET(l, i, ROPE, theta, r->theta);
    ATTR_INT_SET(l, i, ROPE, scaling, r->scaling);
    ATTR_REAL_SET(l, i, ROPE, factor, r->factor);
    ATTR_REAL_SET(l, i, ROPE, low, r->low);
    ATTR_REAL_SET(l, i, ROPE, high, r->high);
    ATTR_REAL_SET(l, i, ROPE, original, r->original);
}

void lower_rope(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct qkv m = split_qkv(l, o->attn, lower_value(l, piece, o->in[0]));
    rotate(l, o->attn, m.q, false);
    rotate(l, o->attn, m.k, false);
}

void lower_rope_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct qkv m = split_qkv(l, o->attn, l->pieces[piece].gradient[o->out]);
    rotate(l, o->attn, m.q, true);
    rotate(l, o->attn, m.k, true);
}

void lower_attention(struct lower *l, uint32_t piece, uint32_t opr)
{
    if (l->d->cp > 1) {
        lower_context(l, piece, opr);
        return;
    }
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    const struct attn *t = o->attn;
    struct qkv m = split_qkv(l, t, lower_value(l, piece, o->in[0]));
    uint32_t heads = t->heads / l->d->tp, i = lower_insn(l, OP_ATTENTION);
    ARG(l, i, ATTENTION, o, lower_value(l, piece, o->out), MARK_WRITE);
    ARG(l, i, ATTENTION, lse, lower_aux(l, piece, opr, 0, heads), MARK_WRITE);
    ARG(l, i, ATTENTION, q, m.q, MARK_READ);
    ARG(l, i, ATTENTION, k, m.k, MARK_READ);
    ARG(l, i, ATTENTION, v, m.v, MARK_READ);
    ATTR_INT_SET(l, i, ATTENTION, heads, heads);
    ATTR_INT_SET(l, i, ATTENTION, kv, t->kv / l->d->tp);
    ATTR_INT_SET(l, i, ATTENTION, head, t->head);
    ATTR_INT_SET(l, i, ATTENTION, sequence, l->job->train.sequence);
    ATTR_REAL_SET(l, i, ATTENTION, scale, 1 / sqrt(t->scale));
    ATTR_INT_SET(l, i, ATTENTION, window, t->window);
    ATTR_REAL_SET(l, i, ATTENTION, softcap, t->softcap);
}

void lower_attention_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    if (l->d->cp > 1) {
        lower_context_back(l, piece, opr);
        return;
    }
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    const struct attn *t = o->attn;
    enum mark mark;
    struct qkv m = split_qkv(l, t, lower_value(l, piece, o->in[0]));
    struct qkv d = split_qkv(l, t, lower_gradient(l, piece, o->in[0], &mark));
    uint32_t heads = t->heads / l->d->tp, i = lower_insn(l, OP_ATTENTION_I);
    ARG(l, i, ATTENTION_I, dq, d.q, MARK_WRITE);
    ARG(l, i, ATTENTION_I, dk, d.k, MARK_WRITE);
    ARG(l, i, ATTENTION_I, dv, d.v, MARK_WRITE);
    ARG(l, i, ATTENTION_I, q, m.q, MARK_READ);
    ARG(l, i, ATTENTION_I, k, m.k, MARK_READ);
    ARG(l, i, ATTENTION_I, v, m.v, MARK_READ);
    ARG(l, i, ATTENTION_I, o, lower_value(l, piece, o->out), MARK_READ);
    ARG(l, i, ATTENTION_I, dout, pc->gradient[o->out], MARK_READ);
    ARG(l, i, ATTENTION_I, lse, lower_aux(l, piece, opr, 0, heads), MARK_READ);
    ATTR_INT_SET(l, i, ATTENTION_I, heads, heads);
    ATTR_INT_SET(l, i, ATTENTION_I, kv, t->kv / l->d->tp);
    ATTR_INT_SET(l, i, ATTENTION_I, head, t->head);
    ATTR_INT_SET(l, i, ATTENTION_I, sequence, l->job->train.sequence);
    ATTR_REAL_SET(l, i, ATTENTION_I, scale, 1 / sqrt(t->scale));
    ATTR_INT_SET(l, i, ATTENTION_I, window, t->window);
    ATTR_REAL_SET(l, i, ATTENTION_I, softcap, t->softcap);
}
