/* Experts of a block: rows to experts and back, and their products, in the steps of compiler/lower/moe.c. */

#include "compiler/cost/block_private.h"

#include <math.h>

/* Seconds of one layer's experts on this rank. */
struct experts {
    double up[3], down[3];  /* grouped products into and out of the experts' inner dimension, by enum product */
    double act, act_back;   /* the activation function; the gradients of its inputs */
    double weigh;           /* weighting of rows, with the gradients of rows and of weights */
    double biases[2];       /* gradients of biases, for the products in and out */
    double there_s, back_s; /* kernels that place rows and sum them, without those of the once-per-node way
                             * (cost_exchange.copies_s) */
    double came_s;          /* kernels that expand rows that arrived in 8 bits */
    double fixed_s, idle_s; /* counting, sorting and waiting, by the profile; of that, what another microbatch fills */
    double offsets;         /* number of additional backward kernels for biases */
    struct cost_exchange to, from;
    double share;       /* exposed share of the transfers of rows */
    bool again, unread; /* they are recomputed; and then nothing reads the rows that they send back */
    bool turns;         /* their transfers run in turn with kernels */
    enum walk_queue tp_queue;
};

static void price_products(const struct block *b, const struct opr *o, double moved, double routed, struct experts *x)
{
    const struct cost *c = b->c;
    double h = (double)c->job->model.width, w = (double)o->moe->expert.width / b->d->etp;
    double parts = o->nweights - 1, local = (double)o->moe->experts / b->d->ep;
    uint64_t uh = (uint64_t)h, uw = (uint64_t)ceil(w), groups = (uint64_t)ceil(local);
    for (enum product p = PRODUCT_FORWARD; p <= PRODUCT_WEIGHT; p++) {
        x->up[p] = parts * cost_grouped_matmul_s(c, p, groups, routed / local, uw, uh, b->dtype);
        x->down[p] = cost_grouped_matmul_s(c, p, groups, routed / local, uh, uw, b->dtype);
    }
    if (c->job->train.precision == DT_FP8) { /* inputs; then gradients */
        x->up[PRODUCT_FORWARD] += cost_quantize_s(c, routed * h);
        x->down[PRODUCT_FORWARD] += cost_quantize_s(c, routed * w);
        x->down[PRODUCT_INPUT] += cost_quantize_s(c, routed * h);
        x->up[PRODUCT_INPUT] += parts * cost_quantize_s(c, routed * w);
    }
    double bytes = b->element * moved * b->d->etp * w;
    x->act = block_act_s(b, o->moe->expert.act, false, bytes * (parts + 1));
    x->weigh = cost_stream_s(c, bytes * 4);
    x->act_back = block_act_s(b, o->moe->expert.act, true, bytes * (2 * parts + 1));
    if (o->moe->expert.bias) { /* sums of rows per expert; what biases add to the gradients of rows' weights */
        x->biases[0] = parts * cost_stream_s(c, bytes);
        x->biases[1] = cost_stream_s(c, b->element * moved * b->d->etp * h);
        x->weigh += cost_grouped_matmul_s(c, PRODUCT_FORWARD, groups, routed / local, 1, uh, b->dtype);
        x->offsets = parts + 2;
    }
}

/* Exposed seconds of the transfers of rows: between nodes; within nodes or straight. */
static double far_s(const struct experts *x, const struct cost_exchange *way)
{
    return x->share * way->far_s;
}

static double near_s(const struct experts *x, const struct cost_exchange *way)
{
    return x->share * (way->way_s - way->far_s + way->shared_s);
}

/* How a transfer goes that need not be waited for at once. */
static enum walk_kind behind(const struct experts *x)
{
    return x->turns ? WALK_BLOCK : WALK_BEHIND;
}

/* Adds a transfer of rows.  Where keys or sequences travel too, the transfers within nodes are on the other queue if
 * rows go straight; otherwise those between nodes are. */
static void travel(struct walk *w, const struct experts *x, enum walk_queue queue, uint32_t passes, double seconds)
{
    w->queue = queue;
    walk_add(w, WALK_BLOCK, 0, passes, seconds);
    w->queue = x->tp_queue;
}

static void add_forward(struct block *b, const struct experts *x, enum walk_queue far, enum walk_queue near)
{
    struct walk *w = &b->walk;
    uint32_t passes = WALK_F | (x->again ? WALK_AGAIN : 0);
    bool nodes = x->from.far_s > 0; /* then the places of rows there depend on what arrived */
    w->queue = nodes ? far : near;
    walk_add(w, nodes ? WALK_BLOCK : behind(x), nodes ? 0 : WALK_CHOICES, passes, x->from.forward_s);
    walk_add(w, WALK_KERNEL, 0, passes, x->there_s + x->fixed_s);
    travel(w, x, far, passes, far_s(x, &x->to));
    walk_add(w, WALK_KERNEL, 0, passes, x->to.copies_s);
    travel(w, x, near, passes, near_s(x, &x->to));
    walk_add(w, WALK_KERNEL, 0, passes, x->came_s);
    walk_add(w, WALK_USE, WALK_CHOICES, passes, 0);
    walk_add(w, WALK_KERNEL, 0, passes, x->up[PRODUCT_FORWARD]);
    walk_add(w, WALK_KERNEL, 0, passes, x->act);
    passes = WALK_F | (x->again && !x->unread ? WALK_AGAIN : 0);
    walk_add(w, WALK_KERNEL, 0, passes, x->down[PRODUCT_FORWARD]);
    travel(w, x, near, passes, near_s(x, &x->from));
    walk_add(w, WALK_KERNEL, 0, passes, x->from.copies_s);
    travel(w, x, far, passes, far_s(x, &x->from));
    walk_add(w, WALK_KERNEL, 0, passes, x->back_s);
}

/* Adds the way of rows' gradients back, beside weight gradients. */
static void bring_rows(struct walk *w, const struct experts *x, enum walk_queue far, enum walk_queue near)
{
    uint32_t passes = WALK_B | WALK_I;
    w->queue = near;
    walk_add(w, behind(x), WALK_ROWS, passes, near_s(x, &x->from));
    walk_add(w, WALK_KERNEL, 0, passes, x->down[PRODUCT_WEIGHT] + x->biases[1]);
    if (x->from.far_s > 0) {
        walk_add(w, WALK_USE, WALK_ROWS, passes, 0);
        walk_add(w, WALK_KERNEL, 0, passes, x->from.copies_s);
        w->queue = far;
        walk_add(w, behind(x), WALK_ROWS, passes, far_s(x, &x->from));
    }
    walk_add(w, WALK_KERNEL, 0, passes, x->up[PRODUCT_WEIGHT] + x->biases[0]);
    walk_add(w, WALK_USE, WALK_ROWS, passes, 0);
    walk_add(w, WALK_USE, WALK_REDUCED, passes, 0); /* of shared experts: the result is added to it */
    walk_add(w, WALK_KERNEL, 0, passes, x->back_s);
    walk_add(w, WALK_USE, WALK_CHOICES, passes, 0); /* which the router needs */
    w->queue = x->tp_queue;
}

static void add_backward(struct block *b, const struct experts *x, enum walk_queue far, enum walk_queue near)
{
    struct walk *w = &b->walk;
    uint32_t passes = WALK_B | WALK_I;
    bool nodes = x->from.far_s > 0;
    double small_s = x->from.backward_s / (nodes ? 3 : 2); /* rows' weights; their gradients, on both parts of the
                                                            * way */
    w->queue = near;
    walk_add(w, behind(x), WALK_CHOICES, passes, small_s);
    walk_add(w, WALK_KERNEL, 0, passes, x->there_s + x->fixed_s);
    travel(w, x, far, passes, far_s(x, &x->to)); /* gradients travel as the rows did */
    walk_add(w, WALK_KERNEL, 0, passes, x->to.copies_s);
    travel(w, x, near, passes, near_s(x, &x->to));
    walk_add(w, WALK_KERNEL, 0, passes, x->came_s);
    walk_add(w, WALK_KERNEL, 0, passes, x->down[PRODUCT_INPUT]);
    walk_add(w, WALK_USE, WALK_CHOICES, passes, 0);
    walk_add(w, WALK_KERNEL, 0, passes, x->weigh);
    w->queue = near;
    walk_add(w, nodes ? WALK_BLOCK : behind(x), nodes ? 0 : WALK_CHOICES, passes, small_s);
    w->queue = far;
    walk_add(w, behind(x), WALK_CHOICES, passes, nodes ? small_s : 0);
    walk_add(w, WALK_KERNEL, 0, passes, x->act_back + x->up[PRODUCT_INPUT]);
    bring_rows(w, x, far, near);
}

/* Adds the steps in the order in which compiler/lower/moe.c issues them. */
static void add_steps(struct block *b, const struct experts *x)
{
    bool nodes = x->from.far_s > 0, others = b->d->cp > 1 || b->d->sp;
    enum walk_queue far = nodes ? WALK_DP : WALK_TP, near = !nodes && others ? WALK_DP : WALK_TP;
    if (x->turns)
        far = near = WALK_COMPUTE;
    add_forward(b, x, far, near);
    add_backward(b, x, far, near);
}

/* Seconds of the rows' way back that weight gradients hide in the emitted programs, whatever a profile's stack does. */
static double hidden_s(const struct experts *x)
{
    double down = x->down[PRODUCT_WEIGHT] + x->biases[1], up = x->up[PRODUCT_WEIGHT] + x->biases[0],
           far = far_s(x, &x->from);
    return far > 0 ? fmin(near_s(x, &x->from), down) + fmin(far, up) : fmin(near_s(x, &x->from), down + up);
}

/* Prices the kernels that move rows within memory.  Rows that travel in 8 bits are converted before, and expanded
 * afterwards; the products of other stacks read them as they arrive.  Returns the number of additional kernels. */
static double price_moves(const struct block *b, double chosen, double came, struct experts *x)
{
    const struct cost *c = b->c;
    double row = b->element * (double)c->job->model.width, sent = cost_sent_bytes(c), own = b->tokens / b->d->tp;
    bool converts = c->job->train.fp8_sent && c->profile->allocator < 0.5;
    x->there_s = cost_stream_s(c, c->profile->permute_traffic * sent * (chosen + own));
    x->back_s = cost_stream_s(c, c->profile->permute_traffic * row * (chosen + own));
    x->there_s += converts ? cost_stream_s(c, (row + sent) * own) : 0;
    x->came_s = converts ? cost_stream_s(c, (row + sent) * came) : 0;
    return converts ? 2 : 0;
}

/* Adds recomputation: the kernels and transfers of the forward pass.  llmrun's programs stop at what the backward
 * pass reads (compiler/lower/moe.c); other stacks repeat the way back as well. */
static void run_again(struct block *b, const struct experts *x, double forward_s, double kernels, double dispatch_s)
{
    bool over_nodes = x->from.rows > 0;
    double home_s = x->from.way_s + x->from.shared_s;
    if (!x->again)
        return;
    if (x->unread && b->c->profile->allocator > 0.5) {
        b->out.unread_s += x->share * home_s;
    } else if (x->unread) {
        forward_s -= x->down[PRODUCT_FORWARD] + x->back_s + x->from.copies_s;
        kernels -= over_nodes ? 3 : 2;
        dispatch_s -= home_s;
    }
    block_add_again(b, forward_s, kernels);
    b->fixed_backward_s += x->fixed_s;
    b->out.backward_idle_s += x->idle_s;
    block_add_backward_comm(b, x->share * dispatch_s);
    b->out.again_s += x->share * dispatch_s;
}

/* Seconds of one pass through a layer of experts in which its host waits for the counts of tokens. */
static double wait_s(const struct cost *c)
{
    const struct profile *p = c->profile;
    double within_us = p->moe_wait_us * p->graph_wait,
           between_us = p->moe_wait_us * (p->ep_once_per_node > 0.5 ? p->once_wait : 1);
    double wait_us = c->ep.level == COST_FLOOR ? fmin(within_us, between_us) : c->ep.level > 0 ? between_us : within_us;
    return c->type->scale_up.span > 1 ? 0 : 1e-6 * wait_us * (cost_together(c) ? p->pair_wait : 1);
}

void block_experts(struct block *b, const struct opr *o)
{
    const struct cost *c = b->c;
    const struct moe *m = o->moe;
    double chosen = b->tokens / b->d->tp * m->active; /* copies of tokens that are sent from this rank */
    double moved = chosen * cost_rows_moved(c, m), routed = fmin(chosen * c->job->train.imbalance, moved) * b->d->etp;
    bool inside = b->d->recompute == RECOMPUTE_SELECTIVE && backward_act_only(o, b->d->parts),
         again = block_recomputes(b, o);
    struct experts x = {.again = again && !inside, .tp_queue = b->tp_queue};
    x.turns = c->job->wishes.never_overlap & OVERLAP_ALL_TO_ALL;
    x.unread = x.again && b->plan.unread[o - b->e->oprs];
    price_products(b, o, moved, routed, &x);
    double waits_s = wait_s(c);
    x.idle_s = c->decision->pp > 1 ? (1 - c->profile->pair_wait) * waits_s : 0;
    x.fixed_s = 1e-6 * c->profile->moe_layer_us + waits_s;
    double dispatch = cost_travel_s(c, m, &x.to, &x.from);
    cost_emitted_ways(c, m, &x.to, &x.from);
    double forward = x.act + x.fixed_s, backward = x.weigh + x.act_back + x.biases[0] + x.biases[1] + x.fixed_s;
    double conversions = price_moves(b, chosen, moved * b->d->etp, &x);
    double move_s = x.there_s + x.came_s + x.back_s + x.to.copies_s + x.from.copies_s;
    forward += x.up[PRODUCT_FORWARD] + x.down[PRODUCT_FORWARD] + move_s;
    for (enum product k = PRODUCT_INPUT; k <= PRODUCT_WEIGHT; k++)
        backward += x.up[k] + x.down[k];
    bool over_nodes = x.from.rows > 0; /* six more kernels in the forward pass: places, two ways to nodes, sums; five
                                        * in the backward pass */
    double kernels = (over_nodes ? 14 : 8) + conversions;
    block_add_time(b, forward, kernels, backward + move_s, (over_nodes ? 15 : 12) + x.offsets + conversions, false);
    b->fixed_forward_s += x.fixed_s;
    b->fixed_backward_s += x.fixed_s;
    b->out.forward_idle_s += x.idle_s;
    b->out.backward_idle_s += x.idle_s;
    if (again && inside) {
        block_add_time(b, 0, 0, x.act, 1, false);
        x.act_back += x.act;
    }
    x.share = cost_ep_shown(c);
    b->out.forward_comm_s += x.from.forward_s + x.share * dispatch;
    /* of a stack's pairs each action alone takes what the stack takes; pairs.c has the two together */
    bool own = c->job->wishes.emitted && !job_is_modelled(c->job) && !x.turns;
    double hidden = own ? hidden_s(&x) : 0;
    block_add_backward_comm(b, x.from.backward_s + x.share * dispatch - hidden);
    run_again(b, &x, forward, kernels, dispatch);
    b->exchanges_apart = over_nodes || b->d->cp > 1 || b->d->sp;
    add_steps(b, &x);
}
