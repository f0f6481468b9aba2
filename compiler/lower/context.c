/* Context parallelism: a sequence is cut into 2 cp runs; rank c of cp holds runs c and 2 cp - 1 - c, so that all
 * ranks have equally many scores under a causal mask (zigzag; Brandon et al., Striped Attention, arXiv 2311.09431).
 * Rows of a microbatch on a rank: for each sequence, the first run, then the second.
 *
 * ring: keys and values go round in cp - 1 shifts, each overlapped with attention to the keys at hand; the parts are
 * merged by their log-sum-exps.  In the backward pass they go round again, followed by the sums of their gradients,
 * which arrive at their owner with the last of cp shifts (Liu et al., Ring Attention, arXiv 2310.01889).
 *
 * all_gather: every rank gathers the keys and values of all; the backward pass gathers again and reduce-scatters
 * their gradients (Llama 3, arXiv 2407.21783, section 3.3.2).
 *
 * all_to_all: ranks exchange rows for heads, run attention over the whole sequence on heads / cp, and exchange back
 * (Jacobs et al., DeepSpeed Ulysses, arXiv 2309.14509).  Attention's operands and output are kept for the backward
 * pass in that layout.
 *
 * Which runs attend to which follows from the instructions' start attributes, integers bound to the rank's number
 * and to that of the keys' owner; kernels skip what the mask hides. */

#include "compiler/lower/build.h"
#include "compiler/lower/collect.h"
#include "compiler/lower/operators.h"

#include <math.h>

struct context {
    const struct attn *t;
    uint32_t cp, mask, heads, kv; /* heads of this tp rank */
    int64_t run;                  /* tokens */
    enum queue queue;
};
/* whose rows an operand holds: parts = 1: those of the rank that is `behind` ranks back in the ring; parts = cp:
 * those of all, rank by rank */
struct rows {
    uint32_t parts, behind;
};

static struct context context_new(const struct lower *l, const struct attn *t)
{
    const struct decision *d = l->d;
    struct context c = {
        .t = t, .cp = d->cp, .mask = l->mesh.dim[MESH_CP], .heads = t->heads / d->tp, .kv = lower_key_heads(l, t)};
    c.run = (int64_t)l->job->train.sequence / (2 * (int64_t)d->cp);
    c.queue = l->job->wishes.never_overlap & OVERLAP_CP ? QUEUE_COMPUTE : QUEUE_TP;
    return c;
}

/* keys and values as they are transferred: one matrix where they are side by side */
struct pair {
    uint32_t n;
    struct mat m[2];
};

static struct pair pair_new(struct mat k, struct mat v)
{
    bool beside = k.buffer == v.buffer; /* columns of one value: keys, then values */
    struct pair p = {beside ? 1 : 2, {k, v}};
    if (beside)
        p.m[0].cols += v.cols;
    return p;
}

/* the columns of part i of a pair in a matrix that has columns for both */
static struct mat pair_part(const struct pair *p, uint32_t i, struct mat both)
{
    return p->n == 1 ? both : mat_columns(both, i ? p->m[0].cols : 0, p->m[i].cols);
}

static uint32_t places_slot(struct lower *l, struct rows rows)
{
    if (rows.parts != 1)
        return NONE;
    return rows.behind ? lower_slot(l, SLOT_BEHIND, SLOT_BEHIND_ARG(l->mesh.dim[MESH_CP], rows.behind))
                       : lower_slot(l, SLOT_COORD, l->mesh.dim[MESH_CP]);
}

static struct bind first_of(struct lower *l, struct rows rows)
{
    return bind_to(0, places_slot(l, rows), (int64_t)l->job->train.sequence / (2 * (int64_t)l->d->cp));
}

static struct bind shift_of(struct lower *l, struct rows rows)
{
    int64_t cp = l->d->cp, run = (int64_t)l->job->train.sequence / (2 * cp);
    return bind_to((2 * cp - 2) * run, places_slot(l, rows), -2 * run);
}

struct bind lower_first(struct lower *l)
{
    return l->d->cp > 1 ? first_of(l, (struct rows){1, 0}) : bind_at(0);
}

struct bind lower_shift(struct lower *l)
{
    return l->d->cp > 1 ? shift_of(l, (struct rows){1, 0}) : bind_at(0);
}

uint32_t lower_sequence(const struct lower *l)
{
    return (uint32_t)l->job->train.sequence / l->d->cp;
}

bool lower_exchanges_heads(const struct lower *l)
{
    return decision_exchanges_heads(l->d);
}

static uint32_t value_dims(const struct attn *t)
{
    return t->kind == ATTN_MLA ? t->v : t->head;
}

/* columns of what attention keeps in its own layout: queries, keys, values, output */
uint32_t lower_exchanged_cols(const struct lower *l, const struct attn *t)
{
    return (t->heads + t->kv) * (t->head + value_dims(t)) / l->d->tp / l->d->cp;
}

static void shift(struct lower *l, const struct context *c, struct mat x, struct mat y)
{
    EMIT(l, SHIFT, .x = x, .y = y, .group = lower_slot(l, SLOT_GROUP, c->mask), .by = 1);
    lower_last(l)->queue = (uint8_t)c->queue;
}

static void split_columns(struct lower *l, const struct context *c, struct mat x, struct mat y)
{
    EMIT(l, COLUMNS_SPLIT, .y = y, .x = x, .parts = c->cp);
}

static void join_columns(struct lower *l, const struct context *c, struct mat x, struct mat y)
{
    EMIT(l, COLUMNS_JOIN, .y = y, .x = x, .parts = c->cp);
}

static void copy(struct lower *l, struct mat x, struct mat y)
{
    EMIT(l, COPY, .y = y, .x = x);
}

/* numbers of heads are those of the operands, which have a cp-th of them where heads were exchanged */
#define PART_ATTRS(l, c, q, k, keys)                                                                                   \
    .heads = (q).cols / (c)->t->head, .kv = (k).cols / (c)->t->head, .head = (c)->t->head, .sequence = 2 * (c)->run,   \
    .scale = 1 / sqrt((c)->t->scale), .window = (c)->t->window, .softcap = (c)->t->softcap,                            \
    .parts = (q).rows / l->tokens, .kparts = (keys).parts, .first = first_of(l, own_rows(l, q)),                       \
    .shift = shift_of(l, own_rows(l, q)), .kfirst = first_of(l, keys), .kshift = shift_of(l, keys),                    \
    .alibi = lower_alibi((c)->t), .first_head = lower_first_head(l, (c)->t)

static struct rows own_rows(const struct lower *l, struct mat q)
{
    return (struct rows){q.rows / l->tokens, 0};
}

static void attend(struct lower *l, const struct context *c, struct mat o, struct mat lse, struct mat q, struct mat k,
                   struct mat v, struct rows keys)
{
    EMIT(l, ATTENTION_PART, .o = o, .lse = lse, .q = q, .k = k, .v = v, PART_ATTRS(l, c, q, k, keys));
}

/* what the backward pass reads of this rank's rows: queries, output, its gradient, log-sum-exps */
struct seen {
    struct mat q, o, dout, lse;
};

static void attend_back(struct lower *l, const struct context *c, const struct seen *s, struct mat k, struct mat v,
                        struct rows keys, struct mat dq, enum mark mark, struct mat dk, struct mat dv)
{
    EMIT(l, ATTENTION_PART_I, .dq = mat_by(dq, mark), .dk = dk, .dv = dv, .q = s->q, .k = k, .v = v, .o = s->o,
         .dout = s->dout, .lse = s->lse, PART_ATTRS(l, c, s->q, k, keys));
}

static void merge(struct lower *l, const struct context *c, struct mat o, struct mat lse, struct mat part,
                  struct mat part_lse)
{
    EMIT(l, ATTENTION_MERGE, .o = o, .lse = lse, .part = part, .part_lse = part_lse, .heads = lse.cols,
         .head = value_dims(c->t));
}

/* ---- ring ---- */

static struct mat ring_buffer(struct lower *l, const char *name, uint32_t step, enum dtype dtype, uint32_t cols)
{
    return lower_temp(l, arena_printf(l->arena, "%s%u", name, step % 2), dtype, l->tokens, cols);
}

static void shift_pair(struct lower *l, const struct context *c, struct mat k, struct mat v, struct mat next)
{
    struct pair p = pair_new(k, v);
    for (uint32_t i = 0; i < p.n; i++)
        shift(l, c, p.m[i], pair_part(&p, i, next));
}

static void ring(struct lower *l, const struct context *c, const struct operands *x, struct mat out, struct mat lse)
{
    struct mat k = x->k, v = x->v;
    bool wide = out.dtype == DTYPE_F32; /* parts are merged in fp32 */
    struct mat o = wide ? out : lower_temp(l, "ring.o", DTYPE_F32, l->tokens, out.cols);
    struct mat part = lower_temp(l, "ring.part", DTYPE_F32, l->tokens, out.cols);
    struct mat part_lse = lower_temp(l, "ring.lse", DTYPE_F32, l->tokens, c->heads);
    for (uint32_t s = 0; s < c->cp; s++) {
        struct mat next = ring_buffer(l, "ring.kv", s, l->ctype, k.cols + v.cols);
        if (s + 1 < c->cp)
            shift_pair(l, c, k, v, next);
        attend(l, c, s ? part : o, s ? part_lse : lse, x->q, k, v, (struct rows){1, s});
        if (s)
            merge(l, c, o, lse, part, part_lse);
        v = mat_columns(next, k.cols, v.cols);
        k = mat_columns(next, 0, k.cols);
    }
    if (!wide)
        copy(l, o, out);
}

/* Shifts gradient sums that have gone all the way round to their owner. */
static void ring_home(struct lower *l, const struct context *c, struct mat sum, const struct operands *d)
{
    struct pair home = pair_new(d->k, d->v);
    if (d->k.dtype == DTYPE_F32) {
        for (uint32_t i = 0; i < home.n; i++)
            shift(l, c, pair_part(&home, i, sum), home.m[i]);
        return;
    }
    struct mat last = ring_buffer(l, "ring.dkv", c->cp, DTYPE_F32, sum.cols);
    shift(l, c, sum, last);
    for (uint32_t i = 0; i < home.n; i++)
        copy(l, pair_part(&home, i, last), home.m[i]);
}

/* Gradients of keys and values follow them one step later: each rank adds to the sums that have arrived, and sends
 * them on. */
static void ring_back(struct lower *l, const struct context *c, const struct seen *s, const struct operands *x,
                      const struct operands *d)
{
    struct mat k = x->k, v = x->v;
    uint32_t cols = k.cols + v.cols;
    bool wide = d->q.dtype == DTYPE_F32;
    struct mat dq = wide ? d->q : lower_temp(l, "ring.dq", DTYPE_F32, l->tokens, d->q.cols);
    struct mat part = lower_temp(l, "ring.dpart", DTYPE_F32, l->tokens, cols);
    for (uint32_t step = 0; step < c->cp; step++) {
        struct mat next = ring_buffer(l, "ring.kv", step, l->ctype, cols);
        struct mat sum = ring_buffer(l, "ring.dkv", step, DTYPE_F32, cols), own = step ? part : sum;
        if (step + 1 < c->cp)
            shift_pair(l, c, k, v, next);
        attend_back(l, c, s, k, v, (struct rows){1, step}, dq, step ? MARK_ADD : MARK_WRITE,
                    mat_columns(own, 0, k.cols), mat_columns(own, k.cols, v.cols));
        if (step) {
            EMIT(l, ADD, .y = mat_add(sum), .a = part);
        }
        if (step + 1 < c->cp)
            shift(l, c, sum, ring_buffer(l, "ring.dkv", step + 1, DTYPE_F32, cols));
        else
            ring_home(l, c, sum, d);
        v = mat_columns(next, k.cols, v.cols);
        k = mat_columns(next, 0, k.cols);
    }
    if (!wide)
        copy(l, dq, d->q);
}

/* ---- all-gather ---- */

static struct mat gather_keys(struct lower *l, const struct context *c, const struct operands *x)
{
    struct mat all = lower_temp(l, "kv.all", l->ctype, c->cp * l->tokens, x->k.cols + x->v.cols);
    struct pair p = pair_new(x->k, x->v);
    for (uint32_t i = 0; i < p.n; i++)
        lower_collective(l, OP_ALL_GATHER, c->queue, c->mask, p.m[i], pair_part(&p, i, all));
    return all;
}

static void gathered(struct lower *l, const struct context *c, const struct operands *x, struct mat out, struct mat lse)
{
    struct mat all = gather_keys(l, c, x);
    attend(l, c, out, lse, x->q, mat_columns(all, 0, x->k.cols), mat_columns(all, x->k.cols, x->v.cols),
           (struct rows){c->cp, 0});
}

static void gathered_back(struct lower *l, const struct context *c, const struct seen *s, const struct operands *x,
                          const struct operands *d)
{
    struct mat all = gather_keys(l, c, x), sums = lower_temp(l, "dkv.all", l->ctype, all.rows, all.cols);
    struct pair p = pair_new(d->k, d->v);
    attend_back(l, c, s, mat_columns(all, 0, x->k.cols), mat_columns(all, x->k.cols, x->v.cols),
                (struct rows){c->cp, 0}, d->q, MARK_WRITE, mat_columns(sums, 0, x->k.cols),
                mat_columns(sums, x->k.cols, x->v.cols));
    for (uint32_t i = 0; i < p.n; i++)
        lower_collective(l, OP_REDUCE_SCATTER, c->queue, c->mask, pair_part(&p, i, sums), p.m[i]);
}

/* ---- all-to-all ---- */

/* Exchanges matrices of local rows and all heads with one of all rows and a cp-th of the heads; packed for each cp
 * rank side by side, one rank's block below the other. */
static void exchange_heads(struct lower *l, const struct context *c, const struct mat *local, uint32_t n,
                           struct mat whole, bool back)
{
    struct mat packed = lower_temp(l, "heads", l->ctype, c->cp * l->tokens, whole.cols);
    if (back)
        lower_collective(l, OP_ALL_TO_ALL, c->queue, c->mask, whole, packed);
    for (uint32_t i = 0, at = 0; i < n; at += local[i++].cols / c->cp) {
        struct mat there = mat_columns(packed, at, local[i].cols / c->cp);
        if (back)
            join_columns(l, c, there, local[i]);
        else
            split_columns(l, c, local[i], there);
    }
    if (!back)
        lower_collective(l, OP_ALL_TO_ALL, c->queue, c->mask, packed, whole);
}

/* views of what attention keeps: queries, keys, values and output, for all rows and some heads */
struct exchanged {
    struct mat qkv, o, lse;
    struct operands x;
};

static struct operands operands_of(struct mat all, const struct operands *local, uint32_t cp)
{
    uint32_t q = local->q.cols / cp, k = local->k.cols / cp, v = local->v.cols / cp;
    return (struct operands){mat_columns(all, 0, q), mat_columns(all, q, k), mat_columns(all, q + k, v)};
}

static struct exchanged exchanged_new(struct lower *l, const struct context *c, uint32_t piece, uint32_t opr,
                                      const struct operands *local)
{
    struct mat all = lower_exchanged(l, piece, opr);
    uint32_t o = c->heads / c->cp * value_dims(c->t), qkv = all.cols - o;
    return (struct exchanged){mat_columns(all, 0, qkv), mat_columns(all, qkv, o), lower_aux(l, piece, opr, 0),
                              operands_of(all, local, c->cp)};
}

static void exchanged(struct lower *l, const struct context *c, const struct exchanged *e, const struct operands *local,
                      struct mat out)
{
    const struct mat three[3] = {local->q, local->k, local->v};
    exchange_heads(l, c, three, 3, e->qkv, false);
    attend(l, c, e->o, e->lse, e->x.q, e->x.k, e->x.v, (struct rows){c->cp, 0});
    exchange_heads(l, c, &out, 1, e->o, true);
}

static void exchanged_back(struct lower *l, const struct context *c, const struct exchanged *e, struct mat dout,
                           const struct operands *d)
{
    struct mat all = lower_temp(l, "dheads.qkv", l->ctype, e->qkv.rows, e->qkv.cols);
    struct operands x = operands_of(all, d, c->cp);
    struct seen s = {e->x.q, e->o, lower_temp(l, "dheads.o", l->ctype, e->o.rows, e->o.cols), e->lse};
    exchange_heads(l, c, &dout, 1, s.dout, false);
    attend_back(l, c, &s, e->x.k, e->x.v, (struct rows){c->cp, 0}, x.q, MARK_WRITE, x.k, x.v);
    const struct mat three[3] = {d->q, d->k, d->v};
    exchange_heads(l, c, three, 3, all, true);
}

/* ---- rules ---- */

void lower_context(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct context c = context_new(l, o->attn);
    struct operands x = lower_attention_values(l, piece, o);
    struct mat out = lower_value(l, piece, o->out);
    struct exchanged e;
    switch (l->d->context) {
    case CONTEXT_AUTO: /* a decision is never AUTO */
    case CONTEXT_RING:
        ring(l, &c, &x, out, lower_aux(l, piece, opr, 0));
        break;
    case CONTEXT_ALL_GATHER:
        gathered(l, &c, &x, out, lower_aux(l, piece, opr, 0));
        break;
    case CONTEXT_ALL_TO_ALL:
        e = exchanged_new(l, &c, piece, opr, &x);
        exchanged(l, &c, &e, &x, out);
        break;
    }
}

void lower_context_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    struct context c = context_new(l, o->attn);
    struct mat dout = pc->gradient[o->out];
    struct operands d = lower_attention_gradients(l, piece, o);
    if (l->d->context == CONTEXT_ALL_TO_ALL) {
        struct exchanged e = exchanged_new(l, &c, piece, opr, &d);
        exchanged_back(l, &c, &e, dout, &d);
        return;
    }
    struct operands x = lower_attention_values(l, piece, o);
    struct seen s = {x.q, lower_value(l, piece, o->out), dout, lower_aux(l, piece, opr, 0)};
    if (l->d->context == CONTEXT_ALL_GATHER)
        gathered_back(l, &c, &s, &x, &d);
    else
        ring_back(l, &c, &s, &x, &d);
}
