/* Tensor parallelism in a block: its transfers around products, either whole or cut into parts that the products
 * hide (decision_cuts(), compiler/lower/collect.c), and what the other operators do to the order of kernels and
 * transfers in the latter case. */

#include "compiler/cost/block_private.h"

#include <math.h>
#include <string.h>

/* llmrun gathers before it converts; and so do stacks whose products have other scales than one for the tensor, where
 * the profile says so */
bool cost_gathers_eight(const struct cost *c)
{
    const struct train *t = &c->job->train;
    return t->precision == DT_FP8 && c->profile->allocator > 0.5 &&
           (t->recipe == FP8_TENSOR || c->profile->gathers_half < 0.5);
}

double cost_tp_shown(const struct cost *c)
{
    const struct profile *p = c->profile;
    return cost_shown(c, OVERLAP_TP, p->tp_shown, p->allocator < 0.5 ? p->tp_shown : p->tp_overlap_shown);
}

/* Adds the transfers around a product over tp; out, in: bytes of its whole output and input.  A row-parallel product
 * reduces its output in the forward pass and, split over the sequence, gathers that output's gradient in the
 * backward pass.  A column-parallel one gathers its input in the forward pass and again beside the product for its
 * input gradient, and reduces the input gradient beside the product for its weight gradient.  What is gathered for
 * 8-bit products is converted before it travels (Transformer Engine); what is reduced is not. */
static void whole_transfers(struct block *b, const struct opr *o, double out, double in, double forward_s,
                            double input_s, double weight_s)
{
    const struct cost *c = b->c;
    struct walk *w = &b->walk;
    bool turns = b->tp_queue == WALK_COMPUTE;
    double share = cost_tp_shown(b->c),
           hidden = b->d->sp ? c->profile->sp_backward_hidden : c->profile->tp_backward_hidden;
    hidden *= turns ? 0 : 1;
    bool runs_again = block_recomputes(b, o);
    bool again = runs_again && (!o->row_parallel || b->d->recompute == RECOMPUTE_FULL); /* no selected part needs its
                                                                                         * reduction repeated */
    enum op reduce_op = b->d->sp ? OP_REDUCE_SCATTER : OP_ALL_REDUCE;
    double gathered = cost_gathers_eight(c) ? 0.5 : 1;
    bool late = expand_puts_off(b->e, o); /* where the backward pass is split, what weight gradients need is gathered
                                           * again for them */
    if (o->row_parallel) {
        double reduce = share * cost_collective_s(c, reduce_op, out, AXIS_BIT(AXIS_TP));
        double gradient = b->d->sp ? share * cost_collective_s(c, OP_ALL_GATHER, gathered * out, AXIS_BIT(AXIS_TP)) : 0;
        b->out.forward_comm_s += reduce;
        b->out.backward_comm_s += gradient + (again ? reduce : 0);
        b->out.again_s += again ? reduce : 0;
        b->out.unread_s += again && !b->plan.needed[o - b->e->oprs] ? reduce : 0;
        b->out.input_comm_s += gradient + (again ? reduce : 0);
        b->out.weight_comm_s += late ? gradient : 0;
        walk_forward(w, WALK_KERNEL, 0, forward_s, runs_again);
        walk_forward(w, WALK_BLOCK, 0, reduce, again);
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
    b->out.input_comm_s += (late ? reduce : beside) + (again ? gather : 0);
    b->out.weight_comm_s += late ? gather : 0;
    uint32_t weighs = WALK_B | (late ? WALK_W : WALK_I);
    /* what is kept in 8 bits can only be gathered once it has been converted */
    enum walk_kind ahead = turns ? WALK_BLOCK : b->words && b->words->eight[o->in[0]] ? WALK_BEHIND : WALK_AHEAD;
    /* the gather for shared experts begins with the router of the others, and their reduction is needed after those */
    walk_forward(w, o->shared && !turns ? WALK_AHEAD : WALK_BLOCK, WALK_INPUT, gather, again);
    walk_forward(w, WALK_USE, WALK_INPUT, 0, again && o->shared);
    walk_forward(w, WALK_KERNEL, 0, forward_s, runs_again);
    walk_add(w, ahead, WALK_INPUT, weighs, hidden * gather);
    walk_add(w, WALK_BLOCK, 0, weighs, (1 - hidden) * gather);
    walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_I, input_s);
    walk_add(w, WALK_BLOCK, 0, WALK_B | WALK_I, (1 - hidden) * reduce);
    walk_add(w, WALK_BEHIND, WALK_REDUCED, WALK_B | WALK_I, hidden * reduce);
    walk_add(w, WALK_USE, WALK_INPUT, weighs, 0);
    walk_add(w, WALK_KERNEL, 0, weighs, weight_s);
    walk_add(w, WALK_FREE, WALK_INPUT, weighs, 0);
    if (!o->shared)
        walk_add(w, WALK_USE, WALK_REDUCED, WALK_B | WALK_I, 0);
}

/* Forward kernels on a rank's own rows run part by part, all kernels of a part one after the other. */
void block_flush_own(struct block *b)
{
    if (b->own_s > 0)
        walk_own(&b->walk, WALK_F, b->cuts, b->runs == 1, b->own_s / b->runs);
    if (b->own_again_s > 0)
        walk_own(&b->walk, WALK_AGAIN, b->cuts, b->runs == 1, b->own_again_s / b->runs);
    b->own_s = b->own_again_s = 0;
}

/* Does it make the queries of latent attention?  Keys and values do not wait for its reduction. */
static bool makes_queries(const struct opr *o)
{
    return !strcmp(o->name, "mla.q_up");
}

/* The same where rows are cut: every part of an input is gathered while the product works on the part before, and
 * every part of an output is reduced while it works on the next. */
static void cut_transfers(struct block *b, const struct opr *o, double out, double in, double forward_s, double input_s,
                          double weight_s)
{
    const struct cost *c = b->c;
    struct walk *w = &b->walk;
    uint32_t n = b->cuts, input = WALK_B | WALK_I, late = expand_puts_off(b->e, o) ? WALK_W : 0;
    bool again = block_recomputes(b, o);
    uint32_t forward = WALK_F | (again ? WALK_AGAIN : 0);
    double bytes = (o->row_parallel ? out : in) / n;
    double gather = b->d->sp ? cost_collective_s(c, OP_ALL_GATHER, bytes, AXIS_BIT(AXIS_TP)) : 0;
    double reduce = cost_collective_s(c, b->d->sp ? OP_REDUCE_SCATTER : OP_ALL_REDUCE, bytes, AXIS_BIT(AXIS_TP));
    uint32_t weighs = WALK_B | (late ? late : WALK_I);
    enum walk_room room = o->row_parallel ? WALK_OUTPUT : WALK_INPUT; /* of what weight gradients need whole */
    uint32_t ahead = o->row_parallel ? late : weighs;                 /* passes that gather it for weight gradients
                                                                       * alone */
    block_flush_own(b);
    if (o->row_parallel)
        walk_reduced(w, forward, n, forward_s / n, reduce);
    else if (b->d->sp)
        walk_gathered(w, forward, n, gather, forward_s / n);
    else
        walk_add(w, WALK_KERNEL, 0, forward, forward_s);
    if (o->row_parallel && b->d->sp)
        walk_gathered(w, input, n, gather, input_s / n);
    else if (o->row_parallel)
        walk_add(w, WALK_KERNEL, 0, input, input_s);
    walk_add(w, WALK_AHEAD, room, ahead, n * gather);
    for (uint32_t i = 0; i < n && !o->row_parallel && makes_queries(o); i++) { /* beside the kernels of keys and
                                                                                * values */
        walk_add(w, WALK_KERNEL, 0, input, input_s / n);
        walk_add(w, WALK_BEHIND, WALK_REDUCED, input, reduce);
    }
    if (!o->row_parallel && !makes_queries(o))
        walk_reduced(w, input, n, input_s / n, reduce);
    walk_add(w, WALK_USE, room, ahead, 0);
    walk_add(w, WALK_KERNEL, 0, weighs, weight_s);
    walk_add(w, WALK_FREE, room, ahead, 0);
    b->out.forward_comm_s += o->row_parallel ? reduce : gather; /* the walk determines the exposed transfers of all
                                                                 * passes in the end */
    b->out.again_s += again ? o->row_parallel ? reduce : gather : 0;
}

void block_tensor_parallel(struct block *b, const struct opr *o, double out, double in, double forward_s,
                           double input_s, double weight_s)
{
    (b->cuts > 1 ? cut_transfers : whole_transfers)(b, o, out, in, forward_s, input_s, weight_s);
}

/* MLA's rotated keys, which all heads share: a rank's rows of them are gathered, and the heads' gradients of them
 * are reduced (compiler/lower/heads.c).  Kernel seconds of the forward and the backward pass are given. */
void block_keys(struct block *b, const struct opr *o, double forward_s, double backward_s, bool again)
{
    const struct cost *c = b->c;
    struct walk *w = &b->walk;
    double bytes = b->tokens * b->element * (double)b->e->values[o->in[1]].cols;
    uint32_t n = b->runs, forward = WALK_F | (again ? WALK_AGAIN : 0), back = WALK_B | WALK_I;
    bool own = c->profile->allocator < 0.5 && b->d->tp > 1;
    double gather = own && b->d->sp ? cost_collective_s(c, OP_ALL_GATHER, bytes / n, AXIS_BIT(AXIS_TP)) : 0;
    double reduce = own ? cost_collective_s(c, b->d->sp ? OP_REDUCE_SCATTER : OP_ALL_REDUCE, bytes / n,
                                            AXIS_BIT(AXIS_TP))
                        : 0;
    block_flush_own(b);
    for (uint32_t i = 0; i < n; i++)
        walk_add(w, n > 1 ? WALK_ONWARD : WALK_BLOCK, i, forward, gather);
    for (uint32_t i = 0; i < n && n > 1 && gather > 0; i++)
        walk_add(w, WALK_USE, WALK_WHOLE + i, forward, 0);
    walk_forward(w, WALK_KERNEL, 0, forward_s, again);
    walk_add(w, WALK_KERNEL, 0, back, backward_s);
    for (uint32_t i = 0; i < n; i++)
        walk_add(w, n > 1 ? WALK_BEHIND : WALK_BLOCK, n > 1 ? WALK_OWN + i : 0, back, reduce);
    b->out.forward_comm_s += n * gather;
    block_add_backward_comm(b, n * reduce + (again ? n * gather : 0));
    b->out.again_s += again ? n * gather : 0;
}

void block_cut_products(const struct block *b, const struct opr *o, bool whole, uint32_t parts[3])
{
    parts[PRODUCT_FORWARD] = o->row_parallel && !whole ? b->cuts : b->runs;
    parts[PRODUCT_INPUT] = o->row_parallel || whole ? b->runs : b->cuts;
    parts[PRODUCT_WEIGHT] = whole ? b->runs : 1;
}

bool block_on_own_rows(const struct block *b, const struct opr *o)
{
    return b->cuts > 1 && o->kind != OPR_EMBED && o->out != NONE && b->e->values[o->out].class == CLASS_TOKENS;
}
