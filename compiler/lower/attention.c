/* Rotary positions and causal attention on the fused projection's columns [q | k | v]; heads are split over tp.
 * Where q and k are normalised they lie in a value of their own, [q | k]; latent attention has [q] and [k | v].
 * Backward keeps q, k, v after rotation, the output and the log-sum-exp (Dao 2023, section 3.1). */

#include "compiler/lower/build.h"
#include "compiler/lower/operators.h"
#include "compiler/support/real.h"

#include <math.h>

/* splits attention's two operands, or their gradients */
static struct operands split_qkv(const struct lower *l, const struct opr *o, struct mat first, struct mat second)
{
    const struct attn *t = o->attn;
    uint32_t q = t->heads / l->d->tp * t->head, kv = lower_key_heads(l, t) * t->head;
    if (t->kind == ATTN_MLA)
        return (struct operands){first, mat_columns(second, 0, kv), mat_columns(second, kv, second.cols - kv)};
    return (struct operands){mat_columns(first, 0, q), mat_columns(first, q, kv), mat_columns(second, q + kv, kv)};
}

struct operands lower_attention_values(struct lower *l, uint32_t piece, const struct opr *o)
{
    struct mat second = lower_value(l, piece, o->in[o->in[1] != NONE]);
    return split_qkv(l, o, lower_value(l, piece, o->in[0]), second);
}

struct operands lower_attention_gradients(struct lower *l, uint32_t piece, const struct opr *o)
{
    enum mark mark;
    struct mat first = lower_gradient(l, piece, o->in[0], &mark);
    return split_qkv(l, o, first, o->in[1] == NONE ? first : lower_gradient(l, piece, o->in[1], &mark));
}

/* YaRN's magnitude (Peng et al., arXiv 2309.00071, section 3.4): 0.1 ln(factor) + 1, times or over the file's words */
static double magnitude(const struct rope *r)
{
    double size = 0.1 * real_log(r->factor);
    return r->scaling == ROPE_YARN ? (r->mscale * size + 1) / (r->mscale_all * size + 1) : 0;
}

/* Rotates heads of `head` columns; where only r->dims of them are rotated, these are the last ones in latent
 * attention.  For all rows (run NONE), or for one run of this rank's rows. */
static void rotate(struct lower *l, const struct attn *t, struct mat m, uint32_t head, uint32_t run, bool inverse)
{
    const struct rope *r = &t->rope;
    bool yarn = r->scaling == ROPE_YARN;
    EMIT(l, ROPE, .y = m, .x = m, .head = head, .dims = r->dims, .adjacent = r->adjacent, .inverse = inverse,
         .start = run == NONE ? bind_at(0) : lower_run_start(l, run), .sequence = lower_sequence(l),
         .first = lower_first(l), .shift = lower_shift(l), .theta = r->theta, .scaling = r->scaling,
         .factor = r->factor, .low = yarn ? r->slow : r->low, .high = yarn ? r->fast : r->high, .original = r->original,
         .from = t->kind == ATTN_MLA ? head - r->dims : 0, .magnitude = magnitude(r));
}

/* Rotates q and k of the fused projection; or latent attention's q, or its rotary key, which is a TOKENS value. */
static void rotate_value(struct lower *l, uint32_t piece, const struct opr *o, struct mat m, bool inverse)
{
    const struct attn *t = o->attn;
    bool local = l->pieces[piece].e->values[o->in[0]].class == CLASS_TOKENS;
    for (uint32_t run = 0; local && run < l->runs; run++)
        rotate(l, t, mat_cut(m, run, l->runs), t->rope_dims, run, inverse);
    if (local)
        return;
    if (t->kind == ATTN_MLA) {
        rotate(l, t, m, t->head, NONE, inverse);
        return;
    }
    uint32_t q = t->heads / l->d->tp * t->head, kv = lower_key_heads(l, t) * t->head;
    rotate(l, t, mat_columns(m, 0, q), t->head, NONE, inverse);
    rotate(l, t, mat_columns(m, q, kv), t->head, NONE, inverse);
}

void lower_rope(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    rotate_value(l, piece, o, lower_value(l, piece, o->in[0]), false);
}

void lower_rope_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    rotate_value(l, piece, o, l->pieces[piece].gradient[o->out], true);
}

/* Sinks: attention has computed its output and log-sum-exps as if there were none; both are corrected in place,
 * after which the formula of attention's gradient holds unchanged (dS = P (dP - D), D = dout . o). */
static void sinks(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct mat out = lower_value(l, piece, o->out), lse = lower_aux(l, piece, opr, 0);
    EMIT(l, SINK, .y = out, .total = lse, .x = out, .lse = lse, .sink = lower_vector(l, piece, o, 0, false),
         .heads = lse.cols, .head = o->attn->head);
}

static void sinks_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    struct mat lse = lower_aux(l, piece, opr, 0);
    enum mark mark = lower_contribution(l, piece, o->bias);
    EMIT(l, SINK_W, .dsink = mat_by(lower_vector(l, piece, o, 0, true), mark), .dy = pc->gradient[o->out],
         .y = lower_value(l, piece, o->out), .total = lse, .sink = lower_vector(l, piece, o, 0, false),
         .heads = lse.cols, .head = o->attn->head);
}

int64_t lower_alibi(const struct attn *t)
{
    return t->alibi ? t->heads : 0;
}

struct bind lower_first_head(struct lower *l, const struct attn *t)
{
    if (!t->alibi || l->d->tp == 1)
        return bind_at(0);
    return bind_to(0, lower_slot(l, SLOT_COORD, l->mesh.dim[MESH_TP]), t->heads / l->d->tp);
}

static void attend(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    const struct attn *t = o->attn;
    struct operands m = lower_attention_values(l, piece, o);
    uint32_t heads = t->heads / l->d->tp;
    EMIT(l, ATTENTION, .o = lower_value(l, piece, o->out), .lse = lower_aux(l, piece, opr, 0), .q = m.q, .k = m.k,
         .v = m.v, .heads = heads, .kv = lower_key_heads(l, t), .head = t->head,
         .sequence = (int64_t)attn_reach(t, l->job->train.sequence), .scale = 1 / sqrt(t->scale), .window = t->window,
         .softcap = t->softcap, .alibi = lower_alibi(t), .first_head = lower_first_head(l, t));
}

/* Does this rank attend to keys on the other ranks of its sequence? */
static bool has_context(const struct lower *l, const struct attn *t)
{
    return l->d->cp > 1 && !attn_local(t, l->job->train.sequence, l->d->cp);
}

void lower_attention(struct lower *l, uint32_t piece, uint32_t opr)
{
    if (has_context(l, l->pieces[piece].e->oprs[opr].attn))
        lower_context(l, piece, opr);
    else
        attend(l, piece, opr);
    if (l->pieces[piece].e->oprs[opr].attn->sinks)
        sinks(l, piece, opr);
}

void lower_attention_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    if (l->pieces[piece].e->oprs[opr].attn->sinks)
        sinks_back(l, piece, opr);
    if (has_context(l, l->pieces[piece].e->oprs[opr].attn)) {
        lower_context_back(l, piece, opr);
        return;
    }
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    const struct attn *t = o->attn;
    struct operands m = lower_attention_values(l, piece, o), d = lower_attention_gradients(l, piece, o);
    uint32_t heads = t->heads / l->d->tp;
    EMIT(l, ATTENTION_I, .dq = d.q, .dk = d.k, .dv = d.v, .q = m.q, .k = m.k, .v = m.v,
         .o = lower_value(l, piece, o->out), .dout = pc->gradient[o->out], .lse = lower_aux(l, piece, opr, 0),
         .heads = heads, .kv = lower_key_heads(l, t), .head = t->head,
         .sequence = (int64_t)attn_reach(t, l->job->train.sequence), .scale = 1 / sqrt(t->scale), .window = t->window,
         .softcap = t->softcap, .alibi = lower_alibi(t), .first_head = lower_first_head(l, t));
}
