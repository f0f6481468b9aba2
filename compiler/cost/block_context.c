/* Attention of a block, and the transfers of context parallelism around it: the steps of compiler/lower/context.c. */

#include "compiler/cost/block_private.h"

#include <math.h>

/* One rank's part of a microbatch: bytes of keys with values, of queries, of outputs; seconds of attention's
 * kernels. */
struct context {
    double kv, q, out, forward, backward;
    bool again; /* the whole forward pass is recomputed in the backward pass */
    bool turns; /* transfers run on the queue of kernels, all of them in between kernels */
};

/* Seconds of the ring of compiler/lower/context.c: keys and values are passed one step on while those at hand are
 * attended to; in the backward pass the sums of their gradients, in fp32, follow them and return with one more step.
 * Keys that F left are sent on as soon as their queue reaches them.  Parts are merged and summed in fp32. */
struct ring_costs {
    double step, sums; /* transfers */
    double narrow;     /* forward kernel that converts the result */
    double add, back;  /* the same in the backward pass */
};

/* cost_shift_s() for the axis, which may be split into digits of the program's mesh. */
static double shift_s(const struct block *b, double bytes)
{
    return cost_collective_s(b->c, OP_ALL_GATHER, bytes * b->d->cp, AXIS_BIT(AXIS_CP)) / (b->d->cp - 1);
}

static struct ring_costs price_ring(const struct block *b, const struct context *x)
{
    const struct cost *c = b->c;
    double wide = b->element < 4 ? 4 / b->element : 1;
    struct ring_costs r = {.step = shift_s(b, x->kv), .sums = shift_s(b, wide * x->kv)};
    r.narrow = wide > 1 ? cost_stream_s(c, (1 + wide) * x->out) : 0;
    r.back = wide > 1 ? cost_stream_s(c, (1 + wide) * x->q) + 2 * cost_stream_s(c, (1 + wide) * x->kv / 2) : 0;
    r.add = cost_stream_s(c, 3 * wide * x->kv);
    return r;
}

static void ring_steps(struct block *b, const struct context *x, const struct ring_costs *r)
{
    struct walk *w = &b->walk;
    double cp = b->d->cp;
    enum walk_kind goes = x->turns ? WALK_BLOCK : WALK_BEHIND;
    for (double s = 0; s < cp; s++) {
        walk_forward(w, WALK_USE, WALK_KEYS, 0, x->again);
        walk_forward(w, goes, WALK_KEYS, s + 1 < cp ? r->step : 0, x->again);
        walk_forward(w, WALK_KERNEL, 0, x->forward / cp, x->again);
    }
    walk_forward(w, WALK_KERNEL, 0, r->narrow, x->again);
    for (double s = 0; s < cp; s++) {
        bool last = s + 1 >= cp;
        walk_add(w, WALK_USE, WALK_KEYS, WALK_B | WALK_I, 0);
        walk_add(w, s > 0 || x->turns || x->again ? goes : WALK_AHEAD, WALK_KEYS, WALK_B | WALK_I, last ? 0 : r->step);
        walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_I, x->backward / cp);
        walk_add(w, WALK_USE, WALK_SUMS, WALK_B | WALK_I, 0);
        walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_I, s > 0 ? r->add : 0);
        walk_add(w, last ? WALK_BLOCK : goes, WALK_SUMS, WALK_B | WALK_I, r->sums);
    }
    walk_add(w, WALK_FREE, WALK_KEYS, WALK_B | WALK_I, 0);
    walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_I, r->back);
}

static void ring(struct block *b, const struct context *x)
{
    double cp = b->d->cp;
    struct ring_costs r = price_ring(b, x);
    if (b->c->profile->allocator < 0.5) {
        double under = x->turns ? 0 : x->forward / cp, under_back = x->turns ? 0 : x->backward / cp;
        block_add_time(b, r.narrow, r.narrow > 0, (cp - 1) * r.add + r.back, cp, false);
        b->out.forward_comm_s += (cp - 1) * fmax(0, r.step - under);
        block_add_backward_comm(b, (cp - 1) * fmax(0, r.step + r.sums - under_back) + r.sums);
    } else { /* A ring moves what an all-gather moves, in cp - 1 steps hidden by cp steps of attention; in the
              * backward pass the first keys arrive while the gradients of what follows attention are made. */
        double moved = cost_collective_s(b->c, OP_ALL_GATHER, x->kv * cp, AXIS_BIT(AXIS_CP)),
               hides = x->turns ? 0 : (cp - 1) / cp;
        double early = x->turns || x->again ? 0 : moved / (cp - 1);
        b->out.forward_comm_s += fmax(0, moved - x->forward * hides);
        block_add_backward_comm(b, fmax(0, 2 * moved - early - x->backward * hides));
    }
    ring_steps(b, x, &r);
}

static void gathered(struct block *b, const struct context *x, double share)
{
    struct walk *w = &b->walk;
    double gather = share * cost_collective_s(b->c, OP_ALL_GATHER, x->kv * b->d->cp, AXIS_BIT(AXIS_CP));
    double sums = share * cost_collective_s(b->c, OP_REDUCE_SCATTER, x->kv * b->d->cp, AXIS_BIT(AXIS_CP));
    /* that of the backward pass begins as soon as its queue is free, while the feed-forward's gradients are made */
    bool early = b->c->profile->allocator < 0.5 && !x->turns;
    b->out.forward_comm_s += gather;
    block_add_backward_comm(b, (early ? 0 : gather) + sums);
    walk_forward(w, WALK_BLOCK, 0, gather, x->again);
    walk_forward(w, WALK_KERNEL, 0, x->forward, x->again);
    walk_add(w, early ? WALK_AHEAD : WALK_BLOCK, WALK_KEYS, WALK_B | WALK_I, gather);
    walk_add(w, WALK_USE, WALK_KEYS, WALK_B | WALK_I, 0);
    walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_I, x->backward);
    walk_add(w, WALK_FREE, WALK_KEYS, WALK_B | WALK_I, 0);
    walk_add(w, WALK_BLOCK, 0, WALK_B | WALK_I, sums);
}

/* Exchanges rows for heads before attention, and back after it. */
static void exchanged(struct block *b, const struct context *x, double share)
{
    const struct cost *c = b->c;
    struct walk *w = &b->walk;
    double there = share * cost_collective_s(c, OP_ALL_TO_ALL, x->kv + x->q, AXIS_BIT(AXIS_CP));
    double back = share * cost_collective_s(c, OP_ALL_TO_ALL, x->q, AXIS_BIT(AXIS_CP));
    double pack = cost_stream_s(c, 2 * x->kv) + cost_stream_s(c, 2 * x->q), unpack = cost_stream_s(c, 2 * x->out);
    b->out.forward_comm_s += there + back;
    block_add_backward_comm(b, there + back);
    block_add_time(b, pack + unpack, 3, pack + unpack, 3, false);
    walk_forward(w, WALK_KERNEL, 0, pack, x->again);
    walk_forward(w, WALK_BLOCK, 0, there, x->again);
    walk_forward(w, WALK_KERNEL, 0, x->forward, x->again);
    walk_forward(w, WALK_BLOCK, 0, back, x->again);
    walk_forward(w, WALK_KERNEL, 0, unpack, x->again);
    walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_I, unpack);
    walk_add(w, WALK_BLOCK, 0, WALK_B | WALK_I, back);
    walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_I, x->backward);
    walk_add(w, WALK_BLOCK, 0, WALK_B | WALK_I, there);
    walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_I, pack);
}

/* Adds the transfers of keys and values (or heads) among the ranks of a sequence; attention can hide those of a
 * ring. */
static void context_parallel(struct block *b, const struct attn *t, double forward, double backward, bool again)
{
    const struct cost *c = b->c;
    double kv_heads = (double)t->kv / model_key_parts(t->kv, b->d->tp), v = t->kind == ATTN_MLA ? t->v : t->head;
    double share = block_shown(b, OVERLAP_CP, c->profile->cp_shown, c->profile->cp_shown);
    struct context x = {.forward = forward, .backward = backward, .again = again};
    x.kv = b->tokens * b->element * kv_heads * (t->head + v);
    x.q = b->tokens * b->element * t->heads * t->head / b->d->tp;
    x.out = x.q / t->head * v;
    x.turns = c->job->wishes.never_overlap & OVERLAP_CP;
    b->walk.queue = x.turns ? WALK_COMPUTE : WALK_TP;
    switch (b->d->context) {
    case CONTEXT_ALL_GATHER:
        gathered(b, &x, share);
        break;
    case CONTEXT_ALL_TO_ALL:
        exchanged(b, &x, c->profile->allocator < 0.5 ? 1 : share); /* nothing overlaps it */
        break;
    case CONTEXT_RING:
    case CONTEXT_AUTO: /* the decision has chosen one */
        ring(b, &x);
        break;
    }
    b->walk.queue = b->tp_queue;
}

void block_attention(struct block *b, const struct opr *o)
{
    const struct attn *t = o->attn;
    double tp = b->d->tp, s = b->sequence;
    /* rows are balanced over cp: every rank has tokens/cp of them, each with s keys */
    struct cost_attention a = {.tokens = b->tokens,
                               .context = (double)attn_reach(t, (uint64_t)s),
                               .window = t->window,
                               .heads = t->heads / tp,
                               .kv = (double)t->kv / model_key_parts(t->kv, b->d->tp),
                               .qk = t->head,
                               .v = t->kind == ATTN_MLA ? t->v : t->head};
    double forward = cost_attention_s(b->c, &a, b->dtype, false), backward = cost_attention_s(b->c, &a, b->dtype, true);
    bool others = b->d->cp > 1 && !attn_local(t, (uint64_t)s, b->d->cp); /* other ranks hold keys, too */
    if (others && b->d->context == CONTEXT_RING) {
        forward /= b->c->profile->cp_attention;
        backward /= b->c->profile->cp_attention;
    }
    bool again = block_recomputes(b, o);
    block_flush_own(b);
    block_add_time(b, forward, 1, backward, 3, again);
    double pass = t->sinks ? cost_stream_s(b->c, 2 * block_value_bytes(b, o->out))
                           : 0; /* the output; in the backward pass the output and its gradient */
    block_add_time(b, pass, pass > 0, pass, pass > 0, again);
    walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | WALK_I, pass);
    double before_f = b->out.forward_comm_s, kernels_s = b->out.forward_s;
    if (others) {
        context_parallel(b, t, forward, backward, again);
    } else {
        walk_forward(&b->walk, WALK_KERNEL, 0, forward, again);
        walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | WALK_I, backward);
    }
    walk_forward(&b->walk, WALK_KERNEL, 0, pass, again);
    if (again) { /* including the transfers around it */
        double moved_s = b->out.forward_comm_s - before_f;
        kernels_s = b->out.forward_s - kernels_s;
        b->out.backward_s += kernels_s;
        b->out.again_s += kernels_s + moved_s;
        block_add_backward_comm(b, moved_s);
    }
}
