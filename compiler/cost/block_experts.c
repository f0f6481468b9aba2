/* Experts of a block: rows there and back, products: the steps of compiler/lower/moe.c. */

#include "compiler/cost/block_private.h"

#include <math.h>

/* seconds of one layer's experts on this rank */
struct experts {
    double up[3], down[3];  /* grouped products in and out, by product */
    double act, act_back;   /* the activation; gradients of its inputs */
    double weigh;           /* rows weighed, their gradients and those of weights */
    double biases[2];       /* sums of rows' gradients, for products in and out */
    double there_s, back_s; /* kernels that place rows and sum them, but for what nodes do (cost_exchange.copies_s); */
    double came_s;          /* that make numbers of those that came in 8 bits */
    double fixed_s;         /* counting and sorting by the profile */
    double offsets;         /* kernels more backward, of biases */
    struct cost_exchange to, from;
    double share;       /* of the rows' transfers that is seen */
    bool again, unread; /* they run again; and then nothing reads what they bring home */
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

/* seconds of rows' transfers, as far as they are seen: between nodes, and within them or straight */
static double far_s(const struct experts *x, const struct cost_exchange *way)
{
    return x->share * way->far_s;
}

static double near_s(const struct experts *x, const struct cost_exchange *way)
{
    return x->share * (way->way_s - way->far_s + way->shared_s);
}

/* A transfer of rows of so many seconds.  Where keys or sequences travel too, those within nodes are on the other queue
 * if they go straight; else those between nodes are. */
static void travel(struct walk *w, enum walk_queue queue, uint32_t passes, double seconds)
{
    w->queue = queue;
    walk_add(w, WALK_BLOCK, 0, passes, seconds);
    w->queue = WALK_TP;
}

static void add_forward(struct block *b, const struct experts *x, enum walk_queue far, enum walk_queue near)
{
    struct walk *w = &b->walk;
    uint32_t passes = WALK_F | (x->again ? WALK_AGAIN : 0);
    bool nodes = x->from.far_s > 0; /* then rows' places there follow from what came */
    w->queue = nodes ? far : near;
    walk_add(w, nodes ? WALK_BLOCK : WALK_BEHIND, nodes ? 0 : WALK_CHOICES, passes, x->from.forward_s);
    walk_add(w, WALK_KERNEL, 0, passes, x->there_s + x->fixed_s);
    travel(w, far, passes, far_s(x, &x->to));
    walk_add(w, WALK_KERNEL, 0, passes, x->to.copies_s);
    travel(w, near, passes, near_s(x, &x->to));
    walk_add(w, WALK_KERNEL, 0, passes, x->came_s);
    walk_add(w, WALK_USE, WALK_CHOICES, passes, 0);
    walk_add(w, WALK_KERNEL, 0, passes, x->up[PRODUCT_FORWARD]);
    walk_add(w, WALK_KERNEL, 0, passes, x->act);
    passes = WALK_F | (x->again && !x->unread ? WALK_AGAIN : 0);
    walk_add(w, WALK_KERNEL, 0, passes, x->down[PRODUCT_FORWARD]);
    travel(w, near, passes, near_s(x, &x->from));
    walk_add(w, WALK_KERNEL, 0, passes, x->from.copies_s);
    travel(w, far, passes, far_s(x, &x->from));
    walk_add(w, WALK_KERNEL, 0, passes, x->back_s);
}

/* rows' gradients home, beside gradients of weights */
static void bring_rows(struct walk *w, const struct experts *x, enum walk_queue far, enum walk_queue near)
{
    uint32_t passes = WALK_B | WALK_I;
    w->queue = near;
    walk_add(w, WALK_BEHIND, WALK_ROWS, passes, near_s(x, &x->from));
    walk_add(w, WALK_KERNEL, 0, passes, x->down[PRODUCT_WEIGHT] + x->biases[1]);
    if (x->from.far_s > 0) {
        walk_add(w, WALK_USE, WALK_ROWS, passes, 0);
        walk_add(w, WALK_KERNEL, 0, passes, x->from.copies_s);
        w->queue = far;
        walk_add(w, WALK_BEHIND, WALK_ROWS, passes, far_s(x, &x->from));
    }
    walk_add(w, WALK_KERNEL, 0, passes, x->up[PRODUCT_WEIGHT] + x->biases[0]);
    walk_add(w, WALK_USE, WALK_ROWS, passes, 0);
    walk_add(w, WALK_USE, WALK_REDUCED, passes, 0); /* of shared experts: what comes now is added to it */
    walk_add(w, WALK_KERNEL, 0, passes, x->back_s);
    walk_add(w, WALK_USE, WALK_CHOICES, passes, 0); /* by the router */
    w->queue = WALK_TP;
}

static void add_backward(struct block *b, const struct experts *x, enum walk_queue far, enum walk_queue near)
{
    struct walk *w = &b->walk;
    uint32_t passes = WALK_B | WALK_I;
    bool nodes = x->from.far_s > 0;
    double small_s = x->from.backward_s / (nodes ? 3 : 2); /* rows' weights; their gradients, on both ways */
    w->queue = near;
    walk_add(w, WALK_BEHIND, WALK_CHOICES, passes, small_s);
    walk_add(w, WALK_KERNEL, 0, passes, x->there_s + x->fixed_s);
    travel(w, far, passes, far_s(x, &x->to)); /* gradients as rows before */
    walk_add(w, WALK_KERNEL, 0, passes, x->to.copies_s);
    travel(w, near, passes, near_s(x, &x->to));
    walk_add(w, WALK_KERNEL, 0, passes, x->came_s);
    walk_add(w, WALK_KERNEL, 0, passes, x->down[PRODUCT_INPUT]);
    walk_add(w, WALK_USE, WALK_CHOICES, passes, 0);
    walk_add(w, WALK_KERNEL, 0, passes, x->weigh);
    w->queue = near;
    walk_add(w, nodes ? WALK_BLOCK : WALK_BEHIND, nodes ? 0 : WALK_CHOICES, passes, small_s);
    w->queue = far;
    walk_add(w, WALK_BEHIND, WALK_CHOICES, passes, nodes ? small_s : 0);
    walk_add(w, WALK_KERNEL, 0, passes, x->act_back + x->up[PRODUCT_INPUT]);
    bring_rows(w, x, far, near);
}

/* as compiler/lower/moe.c issues them */
static void add_steps(struct block *b, const struct experts *x)
{
    bool nodes = x->from.far_s > 0, others = b->d->cp > 1 || b->d->sp;
    enum walk_queue far = nodes ? WALK_DP : WALK_TP, near = !nodes && others ? WALK_DP : WALK_TP;
    add_forward(b, x, far, near);
    add_backward(b, x, far, near);
}

/* Seconds of rows' way home that gradients of weights hide in the emitted programs, whatever a profile's stack does. */
static double hidden_s(const struct experts *x)
{
    double down = x->down[PRODUCT_WEIGHT] + x->biases[1], up = x->up[PRODUCT_WEIGHT] + x->biases[0],
           far = far_s(x, &x->from);
    return far > 0 ? fmin(near_s(x, &x->from), down) + fmin(far, up) : fmin(near_s(x, &x->from), down + up);
}

/* Kernels that move rows within memory.  Rows that travel in 8 bits are made so before, and into numbers behind; other
 * stacks' products read them as they come.  Returns how many kernels more that takes. */
static double price_moves(const struct block *b, double chosen, double came, struct experts *x)
{
    const struct cost *c = b->c;
    double row = b->element * (double)c->job->model.width, sent = cost_sent_bytes(c), own = b->tokens / b->d->tp;
    bool converts = c->job->train.fp8_sent && c->profile->allocator < 0.5;
    x->there_s = cost_stream_s(c, sent * (chosen + own));
    x->back_s = cost_stream_s(c, row * (chosen + own));
    x->there_s += converts ? cost_stream_s(c, (row + sent) * own) : 0;
    x->came_s = converts ? cost_stream_s(c, (row + sent) * came) : 0;
    return converts ? 2 : 0;
}

/* What runs again in front of gradients: forward's kernels and transfers of rows.  llmrun's programs end at what the
 * backward pass reads (compiler/lower/moe.c), other stacks run the way home, too. */
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
    block_add_backward_comm(b, x->share * dispatch_s);
    b->out.again_s += x->share * dispatch_s;
}

void block_experts(struct block *b, const struct opr *o)
{
    const struct cost *c = b->c;
    const struct moe *m = o->moe;
    const struct profile *p = c->profile;
    double chosen = b->tokens / b->d->tp * m->active; /* token copies that start here */
    double moved = chosen * cost_rows_moved(c, m), routed = fmin(chosen * c->job->train.imbalance, moved) * b->d->etp;
    bool inside = b->d->recompute == RECOMPUTE_SELECTIVE && backward_act_only(o, b->d->parts),
         again = block_recomputes(b, o);
    struct experts x = {.again = again && !inside};
    x.unread = x.again && b->plan.unread[o - b->e->oprs];
    price_products(b, o, moved, routed, &x);
    x.fixed_s = 1e-6 * p->moe_layer_us + (c->type->scale_up.span > 1 ? 0 : 1e-6 * p->moe_wait_us);
    double dispatch = cost_travel_s(c, m, &x.to, &x.from);
    cost_emitted_ways(c, m, &x.to, &x.from);
    double forward = x.act + x.fixed_s, backward = x.weigh + x.act_back + x.biases[0] + x.biases[1] + x.fixed_s;
    double conversions = price_moves(b, chosen, moved * b->d->etp, &x);
    double move_s = x.there_s + x.came_s + x.back_s + x.to.copies_s + x.from.copies_s;
    forward += x.up[PRODUCT_FORWARD] + x.down[PRODUCT_FORWARD] + move_s;
    for (enum product k = PRODUCT_INPUT; k <= PRODUCT_WEIGHT; k++)
        backward += x.up[k] + x.down[k];
    bool over_nodes = x.from.rows > 0; /* six kernels more forward: places, two ways to nodes, sums; five backward */
    double kernels = (over_nodes ? 14 : 8) + conversions;
    block_add_time(b, forward, kernels, backward + move_s, (over_nodes ? 15 : 12) + x.offsets + conversions, false);
    b->fixed_forward_s += x.fixed_s;
    b->fixed_backward_s += x.fixed_s;
    if (again && inside) {
        block_add_time(b, 0, 0, x.act, 1, false);
        x.act_back += x.act;
    }
    /* an overlap that is asked for is one of pairs: it is them that hide, not every block */
    x.share = block_shown(b, OVERLAP_ALL_TO_ALL, p->ep_shown, p->ep_shown);
    b->out.forward_comm_s += x.from.forward_s + x.share * dispatch;
    double hidden = c->job->wishes.emitted ? hidden_s(&x) : 0;
    block_add_backward_comm(b, x.from.backward_s + x.share * dispatch - hidden);
    run_again(b, &x, forward, kernels, dispatch);
    b->exchanges_apart = over_nodes || b->d->cp > 1 || b->d->sp;
    add_steps(b, &x);
}
