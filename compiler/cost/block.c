/* A layer, the embedding or the head as one rank runs it: seconds and exposed transfers, by rules per operator; keep.c
 * adds bytes and parameters.
 *
 * Recomputation adds the operators that it runs again to the backward.  Tensor-parallel transfers are exposed in
 * forward; in backward the gather of a product's input runs beside its input gradient, and the reduction of that
 * gradient beside the weight gradient, as far as the profile's stack does so.  Context parallelism by ring hides its
 * transfers behind attention, up to its length.  What an asked-for overlap leaves exposed is the profile's.  A block
 * takes at least the host's time to launch its kernels. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/walk.h"

#include <math.h>
#include <string.h>

struct block {
    const struct cost *c;
    const struct decision *d;
    const struct expansion *e;
    enum dtype dtype;
    double element, tokens, rows; /* tokens of a microbatch here; rows of a TOKENS value (split under SP) */
    double sequence;
    const uint8_t *again;         /* by operator: full recomputation runs it once more, because backward reads on it */
    double forward_kernels, backward_kernels;
    double beside_s; /* transfers that go beside other transfers of a pair's other microbatch, in each direction */
    double copies_s; /* where the backward is split: of gradients of the residual stream, which weights need later */
    double held_forward_s, held_backward_s;   /* exposed transfers that no pair hides, or in part: see hidden */
    double fixed_forward_s, fixed_backward_s; /* of kernels: counting and sorting of experts' rows by the profile */
    struct walk walk;                         /* of its backward passes */
    struct cost_block out;
};

double cost_shown(const struct cost *c, uint32_t axis, double by_itself, double overlapped)
{
    const struct wishes *w = &c->job->wishes;
    return w->never_overlap & axis ? 1 : w->overlap & axis ? overlapped : by_itself;
}

static double shown(const struct block *b, uint32_t axis, double by_itself, double overlapped)
{
    return cost_shown(b->c, axis, by_itself, overlapped);
}

static double tp_shown(const struct block *b)
{
    return shown(b, OVERLAP_TP, b->c->profile->tp_shown, b->c->profile->tp_overlap_shown);
}

static double value_bytes(const struct block *b, uint32_t v)
{
    if (v == NONE)
        return 0;
    const struct opr_value *value = &b->e->values[v];
    double cols = expand_own_cols(value, b->d->tp);
    return b->element * (value->class == CLASS_COLS ? b->tokens * cols : b->rows * (double)value->cols);
}

/* forward and backward kernels, n of one and nb of the other; again: forward runs once more under recomputation */
static void add_time(struct block *b, double forward, double n, double backward, double nb, bool again)
{
    b->out.forward_s += forward;
    b->out.backward_s += backward + (again ? forward : 0);
    b->out.again_s += again ? forward : 0;
    b->forward_kernels += n;
    b->backward_kernels += nb + (again ? n : 0);
}

/* exposed transfers that either kind of backward pass has where it makes gradients of inputs */
static void add_backward_comm(struct block *b, double seconds)
{
    b->out.backward_comm_s += seconds;
    b->out.input_comm_s += seconds;
}

/* does backward run operator o once more? part: the words of selective recomputation that name it */
static bool recomputes(const struct block *b, const struct opr *o, uint32_t part)
{
    if (o - b->e->oprs >= b->e->again)
        return false; /* a prediction module's head */
    if (b->d->recompute == RECOMPUTE_FULL)
        return b->again[o - b->e->oprs] || b->c->profile->recompute_whole > 0.5;
    return b->d->recompute == RECOMPUTE_SELECTIVE && (b->d->parts & part);
}

static double weights_cols(const struct block *b, const struct opr *o, double *in)
{
    double rows = 0;
    for (uint32_t w = 0; w < o->nweights; w++) {
        rows += (double)b->e->weights[o->weight + w].rows;
        *in = (double)b->e->weights[o->weight + w].cols;
    }
    return rows;
}

/* Transfers around a product over tp: bytes of its whole output and input.  A row-parallel one reduces its output in
 * forward and, split over the sequence, gathers that gradient in backward; a column-parallel one gathers its input in
 * forward and again beside its input gradient, and reduces its input's gradient beside its weight gradient.  What is
 * gathered for 8-bit products is converted before it travels (Transformer Engine), what is reduced is not. */
static void tensor_parallel(struct block *b, const struct opr *o, double out, double in, double forward_s, double input_s,
                            double weight_s)
{
    const struct cost *c = b->c;
    struct walk *w = &b->walk;
    bool turns = c->job->wishes.never_overlap & OVERLAP_TP;
    double share = tp_shown(b), hidden = b->d->sp ? c->profile->sp_backward_hidden : c->profile->tp_backward_hidden;
    hidden *= c->job->wishes.never_overlap & OVERLAP_TP ? 0 : 1;
    bool again = b->d->recompute == RECOMPUTE_FULL && recomputes(b, o, 0);
    enum op reduce_op = b->d->sp ? OP_REDUCE_SCATTER : OP_ALL_REDUCE;
    bool own = c->profile->allocator < 0.5; /* llmrun's gathers come before conversions */
    double gathered = c->job->train.precision == DT_FP8 && !own ? 0.5 : 1;
    bool late = expand_puts_off(b->e, o); /* where the backward is split, what weights need comes again with them */
    if (o->row_parallel) {
        double reduce = share * cost_collective_s(c, reduce_op, out, AXIS_BIT(AXIS_TP));
        double gradient = b->d->sp ? share * cost_collective_s(c, OP_ALL_GATHER, gathered * out, AXIS_BIT(AXIS_TP)) : 0;
        b->out.forward_comm_s += reduce;
        b->out.backward_comm_s += gradient + (again ? reduce : 0);
        b->out.again_s += again ? reduce : 0;
        b->out.input_comm_s += gradient + (again ? reduce : 0);
        b->out.weight_comm_s += late ? gradient : 0;
        walk_again(w, WALK_KERNEL, again ? forward_s : 0);
        walk_again(w, WALK_BLOCK, again ? reduce : 0);
        walk_add(w, WALK_BLOCK, 0, WALK_B | WALK_I, gradient);
        walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_I, input_s);
        walk_add(w, turns ? WALK_BLOCK : WALK_AHEAD, WALK_OUTPUT, late ? WALK_W : 0, gradient);
        walk_add(w, WALK_USE, WALK_OUTPUT, WALK_W, 0);
        walk_add(w, WALK_KERNEL, 0, WALK_B | (late ? WALK_W : WALK_I), weight_s);
        walk_add(w, WALK_FREE, WALK_OUTPUT, WALK_W, 0);
        return;
    }
    double gather = b->d->sp ? share * cost_collective_s(c, OP_ALL_GATHER, gathered * in, AXIS_BIT(AXIS_TP)) : 0;
    double reduce = share * cost_collective_s(c, reduce_op, in, AXIS_BIT(AXIS_TP));
    double beside = gather - hidden * fmin(gather, input_s) + reduce - hidden * fmin(reduce, weight_s);
    b->out.forward_comm_s += gather;
    b->out.backward_comm_s += beside + (again ? gather : 0);
    b->out.again_s += again ? gather : 0;
    /* other stacks reduce what the input's half has made beside another microbatch's weights */
    b->out.input_comm_s += (late ? reduce - (own ? 0 : hidden * fmin(reduce, weight_s)) : beside) + (again ? gather : 0);
    b->out.weight_comm_s += late ? gather : 0;
    uint32_t weighs = WALK_B | (late ? WALK_W : WALK_I);
    walk_again(w, WALK_BLOCK, again ? gather : 0);
    walk_again(w, WALK_KERNEL, again ? forward_s : 0);
    walk_add(w, WALK_BLOCK, 0, weighs, (1 - hidden) * gather);
    walk_add(w, WALK_AHEAD, WALK_INPUT, weighs, hidden * gather);
    walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_I, input_s);
    walk_add(w, WALK_BLOCK, 0, WALK_B | WALK_I, (1 - hidden) * reduce);
    walk_add(w, WALK_BEHIND, WALK_REDUCED, WALK_B | WALK_I, hidden * reduce);
    walk_add(w, WALK_USE, WALK_INPUT, weighs, 0);
    walk_add(w, WALK_KERNEL, 0, weighs, weight_s);
    walk_add(w, WALK_FREE, WALK_INPUT, weighs, 0);
    walk_add(w, WALK_USE, WALK_REDUCED, WALK_B | WALK_I, 0);
}

/* Seconds of making an operand of m rows 8 bits wide.  One that is gathered over tp is converted in shares before; on
 * Hopper, whose products take both operands along the inner dimension, the whole is transposed after. */
static double operand_s(const struct block *b, double m, double cols, bool gathered)
{
    const struct cost *c = b->c;
    if (!gathered || c->profile->allocator < 0.5)
        return cost_quantize_s(c, m * cols);
    double turned = c->type->gpu.sm >= 100 ? 0 : cost_quantize_s(c, m * cols / 2);
    return cost_quantize_s(c, m * cols / b->d->tp) + turned;
}

/* is the gradient of its output the residual stream's, which others add to? */
static bool copied(const struct block *b, const struct opr *o)
{
    bool read = false;
    for (const struct opr *x = o + 1; x < b->e->oprs + b->e->noprs && !read; x++)
        for (int k = 0; k < 2; k++)
            if (x->in[k] == o->out) {
                if (x->kind != OPR_ADD)
                    return false;
                read = true;
            }
    return read && expand_puts_off(b->e, o);
}

/* the three products of m rows, n outputs and k inputs */
static void add_products(const struct block *b, bool head, double m, double n, double k, double seconds[3])
{
    const struct cost *c = b->c;
    uint64_t um = (uint64_t)m, un = (uint64_t)ceil(n), uk = (uint64_t)ceil(k);
    for (enum product p = PRODUCT_FORWARD; p <= PRODUCT_WEIGHT; p++) {
        uint64_t rows = p == PRODUCT_WEIGHT ? un : um, cols = p == PRODUCT_FORWARD ? un : uk;
        uint64_t inner = p == PRODUCT_FORWARD ? uk : p == PRODUCT_INPUT ? un : um;
        seconds[p] += head ? cost_matmul_half_s(c, p, rows, cols, inner, b->dtype)
                           : cost_matmul_s(c, p, rows, cols, inner, b->dtype);
    }
}

static void linear(struct block *b, const struct opr *o)
{
    const struct cost *c = b->c;
    const struct opr_weight *first = &b->e->weights[o->weight];
    bool head = o + 1 < b->e->oprs + b->e->noprs && o[1].kind == OPR_LOSS;
    double in = 0, out = weights_cols(b, o, &in), tp = b->d->tp;
    if (head)
        out = (double)expand_padded_vocab(c->job->model.vocab, b->d->tp);
    const struct opr_value *y = &b->e->values[o->out];
    double m = b->tokens, n = out, k = in, keys = y->kv < tp ? (double)y->keys / fmax(1, y->kv) : 0; /* by themselves */
    if (first->split == SPLIT_ROWS)
        n = head ? out / tp : expand_own_cols(y, b->d->tp);
    else if (first->split == SPLIT_COLS)
        k /= tp;
    else
        m = b->rows;
    /* under fp8 the head stays in half precision; elsewhere products convert their input, and backward the gradient */
    bool fp8 = !head && c->job->train.precision == DT_FP8;
    double seconds[3] = {0}; /* by product */
    add_products(b, head, m, n - keys, k, seconds);
    if (keys > 0)
        add_products(b, head, m, keys, k, seconds);
    bool whole = first->split != SPLIT_NONE && tp > 1 && b->d->sp; /* one side of the product is gathered */
    double forward = seconds[PRODUCT_FORWARD] + (fp8 ? operand_s(b, m, k, whole && !o->row_parallel) : 0);
    double input = seconds[PRODUCT_INPUT] + (fp8 ? operand_s(b, m, n, whole && o->row_parallel) : 0);
    double weight = seconds[PRODUCT_WEIGHT];
    double bias = o->nbiases ? cost_stream_s(c, value_bytes(b, o->out)) : 0; /* column sums */
    b->out.weight_s += expand_puts_off(b->e, o) ? weight + bias : 0;
    b->copies_s += !head && copied(b, o) ? cost_stream_s(c, 2 * value_bytes(b, o->out)) : 0;
    double products = keys > 0 ? 2 : 1;
    bool again = recomputes(b, o, cost_linear_part(o));
    add_time(b, forward, products, input + weight + bias, products * (2 + (bias > 0)), again);
    if (first->split != SPLIT_NONE && tp > 1) {
        walk_again(&b->walk, WALK_KERNEL, again && b->d->recompute == RECOMPUTE_SELECTIVE ? forward : 0);
        tensor_parallel(b, o, b->tokens * b->element * out, b->tokens * b->element * in, forward, input, weight + bias);
        return;
    }
    walk_again(&b->walk, WALK_KERNEL, again ? forward : 0);
    walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | WALK_I, input);
    walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | (expand_puts_off(b->e, o) ? WALK_W : WALK_I), weight + bias);
}

/* The ring of compiler/lower/context.c: keys and values go a step while those at hand are attended to; backward the sums of
 * their gradients, in fp32, follow them and come home with a step of their own.  Parts are merged and summed in
 * fp32.  Bytes of keys with values, of outputs, of queries. */
static void own_ring(struct block *b, double kv, double out, double q, double forward, double backward)
{
    const struct cost *c = b->c;
    double cp = b->d->cp, wide = b->element < 4 ? 4 / b->element : 1, step = cost_shift_s(c, kv, AXIS_BIT(AXIS_CP));
    double sums = cost_shift_s(c, wide * kv, AXIS_BIT(AXIS_CP));
    bool turns = c->job->wishes.never_overlap & OVERLAP_CP; /* all of it between kernels */
    double under = turns ? 0 : forward / cp, under_back = turns ? 0 : backward / cp;
    double narrow = wide > 1 ? cost_stream_s(c, (1 + wide) * out) : 0;
    double back = wide > 1 ? cost_stream_s(c, (1 + wide) * q) + 2 * cost_stream_s(c, (1 + wide) * kv / 2) : 0;
    add_time(b, narrow, wide > 1, (cp - 1) * cost_stream_s(c, 3 * wide * kv) + back, cp, false);
    b->out.forward_comm_s += (cp - 1) * fmax(0, step - under);
    add_backward_comm(b, (cp - 1) * fmax(0, step + sums - under_back) + sums);
    double add = cost_stream_s(c, 3 * wide * kv);
    for (double s = 0; s < cp; s++) {
        bool last = s + 1 >= cp;
        walk_add(&b->walk, WALK_USE, WALK_KEYS, WALK_B | WALK_I, 0);
        walk_add(&b->walk, turns ? WALK_BLOCK : WALK_BEHIND, WALK_KEYS, WALK_B | WALK_I, last ? 0 : step);
        walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | WALK_I, backward / cp);
        walk_add(&b->walk, WALK_USE, WALK_SUMS, WALK_B | WALK_I, 0);
        walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | WALK_I, s > 0 ? add : 0);
        walk_add(&b->walk, turns || last ? WALK_BLOCK : WALK_BEHIND, WALK_SUMS, WALK_B | WALK_I, sums);
    }
    walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | WALK_I, back);
}

/* transfers of keys and values (or heads) among the ranks of a sequence; attention of `seconds` can hide a ring */
static void context_parallel(struct block *b, const struct attn *t, double forward, double backward)
{
    const struct cost *c = b->c;
    double cp = b->d->cp, tp = b->d->tp, kv_heads = (double)t->kv / model_key_parts(t->kv, b->d->tp);
    double v = t->kind == ATTN_MLA ? t->v : t->head;
    double kv = b->tokens * b->element * kv_heads * (t->head + v), q = b->tokens * b->element * t->heads * t->head / tp;
    double share = shown(b, OVERLAP_CP, c->profile->cp_shown, c->profile->cp_shown);
    bool own = c->profile->allocator < 0.5;
    if (b->d->context == CONTEXT_ALL_GATHER) {
        b->out.forward_comm_s += share * cost_collective_s(c, OP_ALL_GATHER, kv * cp, AXIS_BIT(AXIS_CP));
        /* backward's begins as soon as its queue is free, while the feed-forward's gradients are made */
        bool early = own && !(c->job->wishes.never_overlap & OVERLAP_CP);
        double again = early ? 0 : cost_collective_s(c, OP_ALL_GATHER, kv * cp, AXIS_BIT(AXIS_CP));
        double sums = cost_collective_s(c, OP_REDUCE_SCATTER, kv * cp, AXIS_BIT(AXIS_CP));
        add_backward_comm(b, share * (again + sums));
        again = cost_collective_s(c, OP_ALL_GATHER, kv * cp, AXIS_BIT(AXIS_CP));
        walk_add(&b->walk, early ? WALK_AHEAD : WALK_BLOCK, WALK_KEYS, WALK_B | WALK_I, share * again);
        walk_add(&b->walk, WALK_USE, WALK_KEYS, WALK_B | WALK_I, 0);
        walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | WALK_I, backward);
        walk_add(&b->walk, WALK_FREE, WALK_KEYS, WALK_B | WALK_I, 0);
        walk_add(&b->walk, WALK_BLOCK, 0, WALK_B | WALK_I, share * sums);
        return;
    }
    if (b->d->context == CONTEXT_ALL_TO_ALL) {
        share = own ? 1 : share; /* nothing else goes on meanwhile */
        double there = cost_collective_s(c, OP_ALL_TO_ALL, kv + q, AXIS_BIT(AXIS_CP));
        double back = cost_collective_s(c, OP_ALL_TO_ALL, q, AXIS_BIT(AXIS_CP));
        b->out.forward_comm_s += share * (there + back);
        add_backward_comm(b, share * (there + back));
        double pack = cost_stream_s(c, 2 * kv) + cost_stream_s(c, 2 * q), unpack = cost_stream_s(c, 2 * q / t->head * v);
        add_time(b, pack + unpack, 3, pack + unpack, 3, false); /* heads side by side, and back */
        walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | WALK_I, pack + unpack + backward);
        walk_add(&b->walk, WALK_BLOCK, 0, WALK_B | WALK_I, share * (there + back));
        return;
    }
    if (c->profile->allocator < 0.5) {
        own_ring(b, kv, q / t->head * v, q, forward, backward);
        return;
    }
    /* a ring moves what an all-gather moves, in cp - 1 steps under cp steps of attention */
    double ring = cost_collective_s(c, OP_ALL_GATHER, kv * cp, AXIS_BIT(AXIS_CP));
    double hides = c->job->wishes.never_overlap & OVERLAP_CP ? 0 : (cp - 1) / cp;
    b->out.forward_comm_s += fmax(0, ring - forward * hides);
    add_backward_comm(b, fmax(0, 2 * ring - backward * hides));
}

static void attention(struct block *b, const struct opr *o)
{
    const struct attn *t = o->attn;
    double tp = b->d->tp, s = b->sequence;
    /* rows are balanced over cp: every rank has tokens/cp of them, each with s keys */
    struct cost_attention a = {.tokens = b->tokens, .context = (double)attn_reach(t, (uint64_t)s), .window = t->window,
                               .heads = t->heads / tp, .kv = (double)t->kv / model_key_parts(t->kv, b->d->tp),
                               .qk = t->head, .v = t->kind == ATTN_MLA ? t->v : t->head};
    double forward = cost_attention_s(b->c, &a, b->dtype, false), backward = cost_attention_s(b->c, &a, b->dtype, true);
    bool others = b->d->cp > 1 && !attn_local(t, (uint64_t)s, b->d->cp); /* have keys, too */
    if (others && b->d->context == CONTEXT_RING) {
        forward /= b->c->profile->cp_attention;
        backward /= b->c->profile->cp_attention;
    }
    bool again = recomputes(b, o, PART_CORE_ATTN);
    add_time(b, forward, 1, backward, 3, again);
    if (t->sinks) { /* over its output; over that and its gradient */
        double pass = cost_stream_s(b->c, 2 * value_bytes(b, o->out));
        add_time(b, pass, 1, pass, 1, again);
    }
    double before_f = b->out.forward_comm_s, before_x = b->out.backward_comm_s, kernels_s = b->out.forward_s;
    walk_again(&b->walk, WALK_KERNEL, again ? forward : 0);
    if (others)
        context_parallel(b, t, forward, backward);
    else
        walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | WALK_I, backward);
    if (again) { /* with all that goes round it */
        double moved_s = b->out.forward_comm_s - before_f;
        kernels_s = b->out.forward_s - kernels_s;
        b->out.backward_s += kernels_s;
        b->out.again_s += kernels_s + moved_s;
        add_backward_comm(b, moved_s);
        walk_again(&b->walk, WALK_KERNEL, kernels_s);
        walk_again(&b->walk, WALK_BLOCK, moved_s);
    }
    if (b->c->job->wishes.never_overlap & OVERLAP_CP) {
        b->held_forward_s += b->out.forward_comm_s - before_f;
        b->held_backward_s += b->out.backward_comm_s - before_x;
    }
}

static void experts(struct block *b, const struct opr *o)
{
    const struct cost *c = b->c;
    const struct moe *m = o->moe;
    double h = (double)c->job->model.width, ep = b->d->ep, etp = b->d->etp, w = (double)m->expert.width / etp;
    double chosen = b->tokens / b->d->tp * m->active;                    /* token copies that start here */
    double moved = chosen * cost_rows_moved(c, m);
    double routed = fmin(chosen * c->job->train.imbalance, moved) * etp, parts = o->nweights - 1, local = m->experts / ep;
    uint64_t uh = (uint64_t)h, uw = (uint64_t)ceil(w), groups = (uint64_t)ceil(local);
    double seconds[3];
    for (enum product p = PRODUCT_FORWARD; p <= PRODUCT_WEIGHT; p++)
        seconds[p] = parts * cost_grouped_matmul_s(c, p, groups, routed / local, uw, uh, b->dtype) +
                     cost_grouped_matmul_s(c, p, groups, routed / local, uh, uw, b->dtype);
    if (c->job->train.precision == DT_FP8) { /* inputs; then gradients */
        seconds[PRODUCT_FORWARD] += cost_quantize_s(c, routed * h) + cost_quantize_s(c, routed * w);
        seconds[PRODUCT_INPUT] += cost_quantize_s(c, routed * h) + parts * cost_quantize_s(c, routed * w);
    }
    double act = cost_stream_s(c, b->element * moved * etp * w * (parts + 1));
    /* the activation's inputs and gradients; rows weighed, their gradients too */
    double act_back = cost_stream_s(c, b->element * moved * etp * w * (2 * parts + 1)) +
                      cost_stream_s(c, b->element * moved * etp * w * 4);
    uint32_t offsets = 0;
    if (m->expert.bias) { /* sums of rows per expert; what biases add to the gradients of rows' weights */
        act_back += parts * cost_stream_s(c, b->element * moved * etp * w) + cost_stream_s(c, b->element * moved * etp * h) +
                    cost_grouped_matmul_s(c, PRODUCT_FORWARD, groups, routed / local, 1, uh, b->dtype);
        offsets = (uint32_t)parts + 2;
    }
    double rows = b->element * h * (chosen + b->tokens / b->d->tp), move = 2 * cost_stream_s(c, rows); /* there, and back */
    double fixed = 1e-6 * c->profile->moe_layer_us; /* counting and sorting */
    fixed += c->type->scale_up.span > 1 ? 0 : 1e-6 * c->profile->moe_wait_us;
    struct cost_exchange x, there;
    double dispatch = cost_travel_s(c, m, &there, &x);
    move += x.copies_s + there.copies_s;
    bool over_nodes = x.rows > 0; /* six kernels more forward: places, two ways to nodes, sums; five backward */
    add_time(b, seconds[PRODUCT_FORWARD] + act + move + fixed, over_nodes ? 14 : 8,
             seconds[PRODUCT_INPUT] + seconds[PRODUCT_WEIGHT] + act_back + move + fixed, (over_nodes ? 15 : 12) + offsets,
             recomputes(b, o, PART_MOE));
    b->fixed_forward_s += fixed;
    b->fixed_backward_s += fixed * (recomputes(b, o, PART_MOE) ? 2 : 1);
    if (b->d->recompute == RECOMPUTE_SELECTIVE && (b->d->parts & (PART_MOE | PART_MOE_ACT)) == PART_MOE_ACT)
        add_time(b, 0, 0, act, 1, false);
    /* an overlap that is asked for is one of pairs: it is them that hide, not every block */
    bool pairs = decision_pairs(b->d->schedule);
    double share = shown(b, OVERLAP_ALL_TO_ALL, c->profile->ep_shown, pairs ? c->profile->ep_shown : c->profile->ep_overlap_shown);
    double beside = x.beside_s + there.beside_s, before_f = b->out.forward_comm_s, before_x = b->out.backward_comm_s;
    b->out.forward_comm_s += x.forward_s;
    add_backward_comm(b, x.backward_s);
    b->out.forward_comm_s += share * dispatch;
    add_backward_comm(b, share * dispatch * (recomputes(b, o, PART_MOE) ? 2 : 1));
    b->out.again_s += recomputes(b, o, PART_MOE) ? share * dispatch : 0;
    b->held_forward_s += b->out.forward_comm_s - before_f;
    b->held_backward_s += b->out.backward_comm_s - before_x;
    if (c->job->wishes.never_overlap & OVERLAP_ALL_TO_ALL)
        return;
    double hidden = fmax(0, share - c->profile->ep_overlap_shown);
    b->beside_s += share * beside;
    b->out.forward_hidden_s += hidden * (dispatch - beside);
    b->out.backward_hidden_s += hidden * (dispatch - beside);
}

static void stream(struct block *b, const struct opr *o)
{
    const struct cost *c = b->c;
    double in = value_bytes(b, o->in[0]), in2 = value_bytes(b, o->in[1]), out = value_bytes(b, o->out);
    switch (o->kind) {
    case OPR_NORM:
        add_time(b, cost_stream_s(c, in + out), 1, cost_stream_s(c, 2 * in + 2 * out) + cost_stream_s(c, in + out), 2,
                 recomputes(b, o, PART_NORM));
        break;
    case OPR_ROPE:
        add_time(b, cost_stream_s(c, 2 * in), 1, cost_stream_s(c, 2 * in), 1, recomputes(b, o, 0));
        break;
    case OPR_HEADNORM: /* in and out also hold the other half */
        add_time(b, cost_stream_s(c, in + out) / 2, 1, cost_stream_s(c, 3 * out) / 2 + cost_stream_s(c, out), 2,
                 recomputes(b, o, PART_NORM));
        break;
    case OPR_CONCAT:
        add_time(b, cost_stream_s(c, 2 * out), 1, cost_stream_s(c, 2 * out), 1, recomputes(b, o, 0));
        break;
    case OPR_KEYS:
        add_time(b, cost_stream_s(c, in + in2 + out), 1, cost_stream_s(c, in + in2 + out), 1, recomputes(b, o, PART_MLA_UP));
        break;
    case OPR_SCALE:
        add_time(b, cost_stream_s(c, 2 * in), 1, cost_stream_s(c, 2 * in), 1, recomputes(b, o, 0));
        break;
    case OPR_SOFTCAP:
        add_time(b, cost_stream_s(c, in + out), 1, cost_stream_s(c, 2 * in + out), 1, recomputes(b, o, 0));
        break;
    case OPR_ACT:
        add_time(b, cost_stream_s(c, in + out), 1, cost_stream_s(c, 2 * in + out), 1,
                 recomputes(b, o, cost_act_part(o)));
        break;
    case OPR_ADD:
        add_time(b, cost_stream_s(c, in + in2 + out), 1, o->nbiases ? cost_stream_s(c, out) : 0, o->nbiases > 0,
                 recomputes(b, o, 0));
        break;
    case OPR_EMBED:
        add_time(b, cost_stream_s(c, 2 * out), 1, cost_stream_s(c, 5 * out), 2, false);
        b->out.weight_s += cost_stream_s(c, 5 * out);
        if (b->d->tp > 1)
            b->out.forward_comm_s += cost_collective_s(c, b->d->sp ? OP_REDUCE_SCATTER : OP_ALL_REDUCE,
                                                       b->tokens * b->element * (double)c->job->model.width,
                                                       AXIS_BIT(AXIS_TP));
        break;
    case OPR_POSITION:
        add_time(b, cost_stream_s(c, 2 * out), 1, cost_stream_s(c, 5 * out), 2, false);
        b->out.weight_s += cost_stream_s(c, 5 * out);
        break;
    case OPR_LOSS:
        /* fused: maximum, sum and the gradient in place, half of it in backward; two small reductions of row statistics */
        in = b->element * b->tokens * (double)expand_padded_vocab(c->job->model.vocab, b->d->tp) / b->d->tp;
        in *= c->profile->loss_passes / 4;
        add_time(b, 2 * cost_stream_s(c, in), 6, cost_stream_s(c, 2 * in), 2, false);
        b->out.forward_comm_s += 2 * cost_collective_s(c, OP_ALL_REDUCE, 8 * b->tokens, AXIS_BIT(AXIS_TP));
        break;
    case OPR_ROUTER:
        add_time(b, cost_stream_s(c, in + 6 * out), 4, cost_stream_s(c, 2 * in + 6 * out), 6, recomputes(b, o, PART_MOE));
        break;
    case OPR_LINEAR:
    case OPR_ATTENTION:
    case OPR_EXPERTS:
        break;
    }
}

/* Seconds of kernels with the waits for a host that launches them and the transfers between them as it goes: all of it
 * takes at least as long as the host, and more where both are alike, because small kernels then wait for the host while
 * large ones let it run ahead.  Runs of one model with growing microbatches (vTrain's, tp 1 to 8, one node and many)
 * follow the root of the sum of squares.  A host that waits for each kernel in turn never runs ahead (BLOOM's runs on more
 * than 160 GPUs, which hung otherwise: its chronicles, "dealing with JZ hanging on the large model"). */
static double waits(const struct profile *p, double kernels_s, double transfers_s, double host_s)
{
    double device_s = kernels_s + transfers_s;
    if (p->launches_block > 0.5)
        return kernels_s + host_s;
    return sqrt(device_s * device_s + host_s * host_s) - transfers_s;
}

/* under the kernels of another microbatch goes no more than these take: of a block's transfers, its own kernels' time */
static void cap_hidden(struct cost_block *out)
{
    double hidden = out->forward_hidden_s + out->backward_hidden_s, most = out->forward_s + out->backward_s;
    if (!(hidden > most))
        return;
    out->forward_hidden_s *= most / hidden;
    out->backward_hidden_s *= most / hidden;
}

/* What backward passes do not hide of their transfers.  Other stacks hide in B and in I what their profiles say. */
static void expose(struct block *b, bool layer)
{
    b->out.weight_comm_s = walk_exposed_s(&b->walk, WALK_W, layer);
    if (b->c->profile->allocator > 0.5)
        return;
    b->out.backward_comm_s = walk_exposed_s(&b->walk, WALK_B, layer);
    b->out.input_comm_s = walk_exposed_s(&b->walk, WALK_I, layer);
    b->held_backward_s = fmin(b->held_backward_s, b->out.backward_comm_s);
}

struct cost_block cost_block_make(struct arena *a, const struct cost *c, const struct expansion *e, bool layer)
{
    const struct decision *d = c->decision;
    const struct train *t = &c->job->train;
    struct block b = {.c = c, .d = d, .e = e, .dtype = t->precision == DT_FP32 ? DTYPE_F32 : DTYPE_BF16};
    struct decision whole = *d;
    if (!layer) { /* the embedding and the head are never recomputed */
        whole.recompute = RECOMPUTE_NONE;
        whole.parts = 0;
        b.d = &whole;
    }
    b.element = b.dtype == DTYPE_F32 ? 4 : 2;
    b.sequence = (double)t->sequence;
    b.tokens = b.sequence * d->microbatch / d->cp;
    b.rows = d->sp ? b.tokens / d->tp : b.tokens;
    struct arena_mark mark = arena_mark(a);
    b.walk.arena = a;
    b.again = cost_again(a, e);
    double kept_s = 0; /* of forward, to where the last value is kept */
    for (uint32_t i = 0; i < e->noprs; i++) {
        const struct opr *o = &e->oprs[i];
        double before_s = b.out.forward_s + b.out.forward_comm_s, back_s = b.out.backward_s, back_comm_s = b.out.backward_comm_s;
        b.walk.opr = i;
        if (o->kind == OPR_LINEAR)
            linear(&b, o);
        else if (o->kind == OPR_ATTENTION)
            attention(&b, o);
        else if (o->kind == OPR_EXPERTS)
            experts(&b, o);
        else
            stream(&b, o);
        if (o->kind != OPR_LINEAR && o->kind != OPR_ATTENTION) {
            walk_add(&b.walk, WALK_KERNEL, 0, WALK_B | (expand_puts_off(e, o) ? WALK_W : WALK_I), b.out.backward_s - back_s);
            walk_add(&b.walk, WALK_BLOCK, 0, WALK_B | WALK_I, b.out.backward_comm_s - back_comm_s);
        }
        double after_s = b.out.forward_s + b.out.forward_comm_s;
        if (o->kind == OPR_LINEAR || o->kind == OPR_EXPERTS) /* the products out of experts come behind it */
            kept_s = before_s + (o->kind == OPR_EXPERTS ? 1 - 1.0 / o->nweights : 0) * (after_s - before_s);
    }
    double whole_s = b.out.forward_s + b.out.forward_comm_s;
    b.out.tail = whole_s > 0 ? 1 - kept_s / whole_s : 0;
    expose(&b, layer);
    arena_reset(a, mark);
    b.out.input_s = b.out.backward_s - b.out.weight_s + b.copies_s;
    b.out.own_forward_s = b.out.forward_s - b.fixed_forward_s;
    b.out.own_backward_s = b.out.backward_s - b.fixed_backward_s;
    double host_s = 1e-6 * c->profile->host_op_us, kernels_s = b.out.backward_s;
    b.out.forward_s = waits(c->profile, b.out.forward_s, b.out.forward_comm_s, host_s * b.forward_kernels);
    b.out.backward_s = waits(c->profile, b.out.backward_s, b.out.backward_comm_s, host_s * b.backward_kernels);
    double slower = kernels_s > 0 ? b.out.backward_s / kernels_s : 1;
    b.out.input_s *= slower;
    b.out.weight_s *= slower;
    if (c->profile->allocator < 0.5 && !(c->job->wishes.never_overlap & OVERLAP_ALL_TO_ALL)) {
        /* llmrun writes two actions as one list: one's transfers go beside the other's kernels; those of experts, which are
         * long, in part */
        b.out.forward_hidden_s += b.out.forward_comm_s - b.held_forward_s;
        b.out.backward_hidden_s += b.out.backward_comm_s - b.held_backward_s;
    }
    cap_hidden(&b.out);
    b.out.forward_hidden_s += b.beside_s;
    b.out.backward_hidden_s += b.beside_s;
    cost_keep(a, c, e, layer, &b.out);
    return b.out;
}
