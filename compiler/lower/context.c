/* Context parallelism: a sequence is cut into 2 cp runs, rank c of cp holds runs c and 2 cp - 1 - c, so that all ranks
 * have equally many scores under a causal mask (zigzag; Brandon et al., Striped Attention, arXiv 2311.09431).  Rows of a
 * microbatch on a rank: for each sequence, the first run, then the second.
 *
 * ring        keys and values go round in cp - 1 shifts, each under the attention to the keys at hand; the parts merge by
 *             their log-sum-exps.  Backward they go round again, and behind them go the sums of their gradients, which come
 *             home with the last of cp shifts (Liu et al., Ring Attention, arXiv 2310.01889).
 * all_gather  every rank gathers keys and values of all; backward gathers again and scatters the sums of their gradients
 *             (Llama 3, arXiv 2407.21783, section 3.3.2).
 * all_to_all  ranks exchange rows for heads, run attention to the whole sequence on heads / cp, and exchange back
 *             (Jacobs et al., DeepSpeed Ulysses, arXiv 2309.14509).  Backward keeps what attention has seen.
 *
 * Which runs see which is in the instructions' starts, integers bound to the rank's number and to that of the keys' owner;
 * kernels skip what the mask hides. */

#include "compiler/lower/build.h"

#include <math.h>

struct context {
    const struct attn *t;
    uint32_t cp, mask, heads, kv, q_cols, kv_cols; /* heads and columns of this tp rank */
    int64_t run;                                   /* tokens */
    enum queue queue;
};
/* whose rows an operand has: parts = 1: those of the rank `behind` places before; parts = cp: all, rank by rank */
struct rows {
    uint32_t parts, behind;
};

static struct context context_new(const struct lower *l, const struct attn *t)
{
    const struct decision *d = l->d;
    struct context c = {.t = t, .cp = d->cp, .mask = l->mesh.dim[MESH_CP], .heads = t->heads / d->tp, .kv = t->kv / d->tp};
    c.q_cols = c.heads * t->head;
    c.kv_cols = c.kv * t->head;
    c.run = (int64_t)l->job->train.sequence / (2 * (int64_t)d->cp);
    c.queue = l->job->wishes.never_overlap & OVERLAP_CP ? QUEUE_COMPUTE : QUEUE_TP;
    return c;
}

static void bind_places(struct lower *l, uint32_t insn, size_t first, size_t shift, struct rows rows)
{
    uint32_t cp = l->d->cp, slot = NONE;
    int64_t run = (int64_t)l->job->train.sequence / (2 * (int64_t)cp), all = (2 * (int64_t)cp - 2) * run;
    if (rows.parts == 1)
        slot = rows.behind ? lower_slot(l, SLOT_BEHIND, SLOT_BEHIND_ARG(l->mesh.dim[MESH_CP], rows.behind))
                           : lower_slot(l, SLOT_COORD, l->mesh.dim[MESH_CP]);
    lower_bind(l, insn, first, 0, slot, run);
    lower_bind(l, insn, shift, all, slot, -2 * run);
}

void lower_places(struct lower *l, uint32_t insn, size_t first, size_t shift)
{
    if (l->d->cp > 1)
        bind_places(l, insn, first, shift, (struct rows){1, 0});
}

uint32_t lower_sequence(const struct lower *l)
{
    return (uint32_t)l->job->train.sequence / l->d->cp;
}

bool lower_exchanges_heads(const struct lower *l)
{
    return l->d->cp > 1 && l->d->context == CONTEXT_ALL_TO_ALL;
}

/* columns of what attention keeps of its own layout: queries, keys, values, output */
uint32_t lower_exchanged_cols(const struct lower *l, const struct attn *t)
{
    return (2 * t->heads + 2 * t->kv) * t->head / l->d->tp / l->d->cp;
}

static void shift(struct lower *l, const struct context *c, struct mat x, struct mat y)
{
    uint32_t i = lower_insn(l, OP_SHIFT);
    l->p->insns[i].queue = (uint8_t)c->queue;
    ARG(l, i, SHIFT, x, x, MARK_READ);
    ARG(l, i, SHIFT, y, y, MARK_WRITE);
    ATTR_BIND_SET(l, i, SHIFT, group, 0, lower_slot(l, SLOT_GROUP, c->mask), 0);
    ATTR_INT_SET(l, i, SHIFT, by, 1);
}

static void exchange(struct lower *l, const struct context *c, struct mat x, struct mat y)
{
    uint32_t i = lower_insn(l, OP_ALL_TO_ALL);
    l->p->insns[i].queue = (uint8_t)c->queue;
    ARG(l, i, ALL_TO_ALL, x, x, MARK_READ);
    ARG(l, i, ALL_TO_ALL, y, y, MARK_WRITE);
    ATTR_BIND_SET(l, i, ALL_TO_ALL, group, 0, lower_slot(l, SLOT_GROUP, c->mask), 0);
}

static void split_columns(struct lower *l, const struct context *c, struct mat x, struct mat y)
{
    uint32_t i = lower_insn(l, OP_COLUMNS_SPLIT);
    ARG(l, i, COLUMNS_SPLIT, y, y, MARK_WRITE);
    ARG(l, i, COLUMNS_SPLIT, x, x, MARK_READ);
    ATTR_INT_SET(l, i, COLUMNS_SPLIT, parts, c->cp);
}

static void join_columns(struct lower *l, const struct context *c, struct mat x, struct mat y)
{
    uint32_t i = lower_insn(l, OP_COLUMNS_JOIN);
    ARG(l, i, COLUMNS_JOIN, y, y, MARK_WRITE);
    ARG(l, i, COLUMNS_JOIN, x, x, MARK_READ);
    ATTR_INT_SET(l, i, COLUMNS_JOIN, parts, c->cp);
}

static void copy(struct lower *l, struct mat x, struct mat y)
{
    uint32_t i = lower_insn(l, OP_COPY);
    ARG(l, i, COPY, y, y, MARK_WRITE);
    ARG(l, i, COPY, x, x, MARK_READ);
}

/* head counts: of the operands, which are a cp-th where heads were exchanged */
#define SET_ATTENTION(l, i, op, c, q, k, keys)                                                                            \
    do {                                                                                                                \
        ATTR_INT_SET(l, i, op, heads, (q).cols / (c)->t->head);                                                         \
        ATTR_INT_SET(l, i, op, kv, (k).cols / (c)->t->head);                                                            \
        ATTR_INT_SET(l, i, op, head, (c)->t->head);                                                                     \
        ATTR_INT_SET(l, i, op, sequence, 2 * (c)->run);                                                                 \
        ATTR_REAL_SET(l, i, op, scale, 1 / sqrt((c)->t->scale));                                                        \
        ATTR_INT_SET(l, i, op, window, (c)->t->window);                                                                 \
        ATTR_REAL_SET(l, i, op, softcap, (c)->t->softcap);                                                              \
        ATTR_INT_SET(l, i, op, parts, (q).rows / l->tokens);                                                            \
        ATTR_INT_SET(l, i, op, kparts, (keys).parts);                                                                   \
        bind_places(l, i, ATTR(op, first), ATTR(op, shift), (struct rows){(q).rows / l->tokens, 0});                    \
        bind_places(l, i, ATTR(op, kfirst), ATTR(op, kshift), keys);                                                    \
    } while (0)

static void attend(struct lower *l, const struct context *c, struct mat o, struct mat lse, struct mat q, struct mat k,
                   struct mat v, struct rows keys)
{
    uint32_t i = lower_insn(l, OP_ATTENTION_PART);
    ARG(l, i, ATTENTION_PART, o, o, MARK_WRITE);
    ARG(l, i, ATTENTION_PART, lse, lse, MARK_WRITE);
    ARG(l, i, ATTENTION_PART, q, q, MARK_READ);
    ARG(l, i, ATTENTION_PART, k, k, MARK_READ);
    ARG(l, i, ATTENTION_PART, v, v, MARK_READ);
    SET_ATTENTION(l, i, ATTENTION_PART, c, q, k, keys);
}

/* what backward reads of the rows: queries, output, its gradient, log-sum-exps */
struct seen {
    struct mat q, o, dout, lse;
};

static void attend_back(struct lower *l, const struct context *c, const struct seen *s, struct mat k, struct mat v,
                        struct rows keys, struct mat dq, enum mark mark, struct mat dk, struct mat dv)
{
    uint32_t i = lower_insn(l, OP_ATTENTION_PART_I);
    ARG(l, i, ATTENTION_PART_I, dq, dq, mark);
    ARG(l, i, ATTENTION_PART_I, dk, dk, MARK_WRITE);
    ARG(l, i, ATTENTION_PART_I, dv, dv, MARK_WRITE);
    ARG(l, i, ATTENTION_PART_I, q, s->q, MARK_READ);
    ARG(l, i, ATTENTION_PART_I, k, k, MARK_READ);
    ARG(l, i, ATTENTION_PART_I, v, v, MARK_READ);
    ARG(l, i, ATTENTION_PART_I, o, s->o, MARK_READ);
    ARG(l, i, ATTENTION_PART_I, dout, s->dout, MARK_READ);
    ARG(l, i, ATTENTION_PART_I, lse, s->lse, MARK_READ);
    SET_ATTENTION(l, i, ATTENTION_PART_I, c, s->q, k, keys);
}

static void merge(struct lower *l, const struct context *c, struct mat o, struct mat lse, struct mat part,
                  struct mat part_lse)
{
    uint32_t i = lower_insn(l, OP_ATTENTION_MERGE);
    ARG(l, i, ATTENTION_MERGE, o, o, MARK_UPDATE);
    ARG(l, i, ATTENTION_MERGE, lse, lse, MARK_UPDATE);
    ARG(l, i, ATTENTION_MERGE, part, part, MARK_READ);
    ARG(l, i, ATTENTION_MERGE, part_lse, part_lse, MARK_READ);
    ATTR_INT_SET(l, i, ATTENTION_MERGE, heads, lse.cols);
    ATTR_INT_SET(l, i, ATTENTION_MERGE, head, c->t->head);
}

/* ---- ring ---- */

static struct mat ring_buffer(struct lower *l, const char *name, uint32_t step, enum dtype dtype, uint32_t cols)
{
    return lower_temp(l, arena_printf(l->arena, "%s%u", name, step % 2), dtype, l->tokens, cols);
}

static void ring(struct lower *l, const struct context *c, struct mat qkv, struct mat out, struct mat lse)
{
    struct mat q = mat_columns(qkv, 0, c->q_cols), kv = mat_columns(qkv, c->q_cols, 2 * c->kv_cols);
    bool wide = out.dtype == DTYPE_F32; /* parts merge in fp32 */
    struct mat o = wide ? out : lower_temp(l, "ring.o", DTYPE_F32, l->tokens, c->q_cols);
    struct mat part = lower_temp(l, "ring.part", DTYPE_F32, l->tokens, c->q_cols);
    struct mat part_lse = lower_temp(l, "ring.lse", DTYPE_F32, l->tokens, c->heads);
    for (uint32_t s = 0; s < c->cp; s++) {
        struct mat next = ring_buffer(l, "ring.kv", s, l->ctype, 2 * c->kv_cols);
        if (s + 1 < c->cp)
            shift(l, c, kv, next);
        attend(l, c, s ? part : o, s ? part_lse : lse, q, mat_columns(kv, 0, c->kv_cols),
               mat_columns(kv, c->kv_cols, c->kv_cols), (struct rows){1, s});
        if (s)
            merge(l, c, o, lse, part, part_lse);
        kv = next;
    }
    if (!wide)
        copy(l, o, out);
}

/* gradients of keys and values follow them one step behind: added to where they have arrived, and sent on */
static void ring_back(struct lower *l, const struct context *c, const struct seen *s, struct mat qkv, struct mat dqkv)
{
    struct mat kv = mat_columns(qkv, c->q_cols, 2 * c->kv_cols), dkv = mat_columns(dqkv, c->q_cols, 2 * c->kv_cols);
    bool wide = dqkv.dtype == DTYPE_F32;
    struct mat dq = wide ? mat_columns(dqkv, 0, c->q_cols) : lower_temp(l, "ring.dq", DTYPE_F32, l->tokens, c->q_cols);
    struct mat part = lower_temp(l, "ring.dpart", DTYPE_F32, l->tokens, 2 * c->kv_cols);
    for (uint32_t k = 0; k < c->cp; k++) {
        struct mat next = ring_buffer(l, "ring.kv", k, l->ctype, 2 * c->kv_cols);
        struct mat sum = ring_buffer(l, "ring.dkv", k, DTYPE_F32, 2 * c->kv_cols);
        struct mat home = k + 1 < c->cp || !wide ? ring_buffer(l, "ring.dkv", k + 1, DTYPE_F32, 2 * c->kv_cols) : dkv;
        struct mat own = k ? part : sum;
        if (k + 1 < c->cp)
            shift(l, c, kv, next);
        attend_back(l, c, s, mat_columns(kv, 0, c->kv_cols), mat_columns(kv, c->kv_cols, c->kv_cols), (struct rows){1, k},
                    dq, k ? MARK_ADD : MARK_WRITE, mat_columns(own, 0, c->kv_cols),
                    mat_columns(own, c->kv_cols, c->kv_cols));
        if (k) {
            uint32_t i = lower_insn(l, OP_ADD);
            ARG(l, i, ADD, y, sum, MARK_ADD);
            ARG(l, i, ADD, a, part, MARK_READ);
        }
        shift(l, c, sum, home);
        kv = next;
        if (k + 1 == c->cp && !wide)
            copy(l, home, dkv);
    }
    if (!wide)
        copy(l, dq, mat_columns(dqkv, 0, c->q_cols));
}

/* ---- all-gather ---- */

static struct mat gather_keys(struct lower *l, const struct context *c, struct mat qkv)
{
    struct mat all = lower_temp(l, "kv.all", l->ctype, c->cp * l->tokens, 2 * c->kv_cols);
    lower_collective(l, OP_ALL_GATHER, c->queue, c->mask, mat_columns(qkv, c->q_cols, 2 * c->kv_cols), all);
    return all;
}

static void gathered(struct lower *l, const struct context *c, struct mat qkv, struct mat out, struct mat lse)
{
    struct mat all = gather_keys(l, c, qkv);
    attend(l, c, out, lse, mat_columns(qkv, 0, c->q_cols), mat_columns(all, 0, c->kv_cols),
           mat_columns(all, c->kv_cols, c->kv_cols), (struct rows){c->cp, 0});
}

static void gathered_back(struct lower *l, const struct context *c, const struct seen *s, struct mat qkv, struct mat dqkv)
{
    struct mat all = gather_keys(l, c, qkv), d = lower_temp(l, "dkv.all", l->ctype, all.rows, all.cols);
    attend_back(l, c, s, mat_columns(all, 0, c->kv_cols), mat_columns(all, c->kv_cols, c->kv_cols),
                (struct rows){c->cp, 0}, mat_columns(dqkv, 0, c->q_cols), MARK_WRITE, mat_columns(d, 0, c->kv_cols),
                mat_columns(d, c->kv_cols, c->kv_cols));
    lower_collective(l, OP_REDUCE_SCATTER, c->queue, c->mask, d, mat_columns(dqkv, c->q_cols, 2 * c->kv_cols));
}

/* ---- all-to-all ---- */

/* q, k, v side by side <-> per rank of cp its heads of each, one below the other */
static void exchange_heads(struct lower *l, const struct context *c, struct mat local, struct mat whole, bool back)
{
    const uint32_t cols[3] = {c->q_cols, c->kv_cols, c->kv_cols};
    struct mat packed = lower_temp(l, "heads", l->ctype, c->cp * l->tokens, whole.cols);
    uint32_t at = 0;
    if (back)
        exchange(l, c, whole, packed);
    for (int i = 0; i < 3 && at < local.cols; at += cols[i++]) {
        struct mat here = mat_columns(local, at, cols[i]), there = mat_columns(packed, at / c->cp, cols[i] / c->cp);
        if (back)
            join_columns(l, c, there, here);
        else
            split_columns(l, c, here, there);
    }
    if (!back)
        exchange(l, c, packed, whole);
}

/* views of what attention keeps: queries, keys, values and output of all rows and some heads */
struct exchanged {
    struct mat qkv, q, k, v, o, lse;
};

static struct exchanged exchanged_new(struct lower *l, const struct context *c, uint32_t piece, uint32_t opr)
{
    uint32_t q = c->q_cols / c->cp, kv = c->kv_cols / c->cp;
    struct mat all = lower_exchanged(l, piece, opr), lse = lower_aux(l, piece, opr, 0);
    return (struct exchanged){mat_columns(all, 0, q + 2 * kv), mat_columns(all, 0, q),       mat_columns(all, q, kv),
                              mat_columns(all, q + kv, kv),    mat_columns(all, q + 2 * kv, q), lse};
}

static void exchanged(struct lower *l, const struct context *c, const struct exchanged *x, struct mat qkv, struct mat out)
{
    exchange_heads(l, c, qkv, x->qkv, false);
    attend(l, c, x->o, x->lse, x->q, x->k, x->v, (struct rows){c->cp, 0});
    exchange_heads(l, c, out, x->o, true);
}

static void exchanged_back(struct lower *l, const struct context *c, const struct exchanged *x, struct mat dout,
                           struct mat dqkv)
{
    uint32_t q = c->q_cols / c->cp, kv = c->kv_cols / c->cp, rows = c->cp * l->tokens;
    struct mat d = lower_temp(l, "dheads.qkv", l->ctype, rows, q + 2 * kv);
    struct seen s = {x->q, x->o, lower_temp(l, "dheads.o", l->ctype, rows, q), x->lse};
    exchange_heads(l, c, dout, s.dout, false);
    attend_back(l, c, &s, x->k, x->v, (struct rows){c->cp, 0}, mat_columns(d, 0, q), MARK_WRITE, mat_columns(d, q, kv),
                mat_columns(d, q + kv, kv));
    exchange_heads(l, c, dqkv, d, true);
}

/* ---- rules ---- */

void lower_context(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct context c = context_new(l, o->attn);
    struct mat qkv = lower_value(l, piece, o->in[0]), out = lower_value(l, piece, o->out);
    struct exchanged x;
    switch (l->d->context) {
    case CONTEXT_AUTO: /* a decision has chosen */
    case CONTEXT_RING:
        ring(l, &c, qkv, out, lower_aux(l, piece, opr, 0));
        break;
    case CONTEXT_ALL_GATHER:
        gathered(l, &c, qkv, out, lower_aux(l, piece, opr, 0));
        break;
    case CONTEXT_ALL_TO_ALL:
        x = exchanged_new(l, &c, piece, opr);
        exchanged(l, &c, &x, qkv, out);
        break;
    }
}

void lower_context_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    struct context c = context_new(l, o->attn);
    enum mark mark;
    struct mat dout = pc->gradient[o->out], dqkv = lower_gradient(l, piece, o->in[0], &mark);
    struct exchanged x;
    if (l->d->context == CONTEXT_ALL_TO_ALL) {
        x = exchanged_new(l, &c, piece, opr);
        exchanged_back(l, &c, &x, dout, dqkv);
        return;
    }
    struct mat qkv = lower_value(l, piece, o->in[0]);
    struct seen s = {mat_columns(qkv, 0, c.q_cols), lower_value(l, piece, o->out), dout,
                     lower_aux(l, piece, opr, 0)};
    if (l->d->context == CONTEXT_ALL_GATHER)
        gathered_back(l, &c, &s, qkv, dqkv);
    else
        ring_back(l, &c, &s, qkv, dqkv);
}
