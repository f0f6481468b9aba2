/* Lower bounds on the cost of what is not placed yet: blocks with the transfers that they need for any order of axes
 * and any nodes.  One such cost serves all meshes with equal tp, cp and experts' degrees. */

#include "compiler/search/bounds.h"

#include <string.h>

static const struct cost_group *floor_group(struct searching *s, const struct cost *c, uint32_t n)
{
    for (const struct search_floor *f = s->floors; f; f = f->next)
        if (f->n == n)
            return &f->group;
    struct search_floor *f = ARENA_NEW(s->arena, struct search_floor);
    *f = (struct search_floor){n, cost_floor_group(c, n), s->floors};
    s->floors = f;
    return &f->group;
}

const struct cost *search_floor(struct searching *s, const struct decision *d)
{
    struct cost *c = ARENA_NEW(s->arena, struct cost);
    struct cost_group *group = ARENA_ARRAY(s->arena, struct cost_group, 1u << NAXES);
    cost_init(s->arena, c, s->job, s->topo, d, space_runs(&s->space, d), s->products, s->pairs);
    cost_device_init(c); /* other meshes may need no degraded nodes */
    cost_net_init(c);
    memcpy(group, c->group, (1u << NAXES) * sizeof *group);
    group[AXIS_BIT(AXIS_TP)] = *floor_group(s, c, d->tp);
    group[AXIS_BIT(AXIS_CP)] = *floor_group(s, c, d->cp);
    c->group = group;
    c->ep = *floor_group(s, c, d->ep);
    c->near = c->far = (struct cost_group){.n = 1}; /* cost_exchange() knows */
    /* Kernels wait less for the host if transfers take longer.  What pairs hide grows with transfers, so with pairs
     * only kernels that never wait give a lower bound. */
    s->floor_profile = *c->profile;
    if (s->overlapping)
        s->floor_profile.host_op_us = 0;
    c->profile = &s->floor_profile;
    return c;
}

/* most stages per rank */
static uint32_t most_chunks(const struct searching *s, const struct decision *d)
{
    uint32_t most = 1;
    for (uint32_t k = 0; k < s->space.nschedules && d->pp > 1; k++) {
        uint32_t vpp = s->space.schedules[k].vpp;
        if (s->layout_stages || d->pp * vpp <= s->job->model.nlayers)
            most = vpp > most ? vpp : most;
    }
    return most;
}

/* Seconds of a microbatch's transfers of so many elements, of dense weights and of experts: gradients that are
 * scattered over `shard` ranks, and parameters that are used. */
static double shards_s(struct searching *s, const struct cost *c, uint32_t shard, const double *scattered,
                       const double *used)
{
    const struct train *t = &c->job->train;
    double gradient = t->reduce == DT_FP32 ? 4 : 2, parameter = t->precision == DT_FP32 ? 4 : 2, moved_s = 0;
    struct decision d = *c->decision;
    d.shard = shard;
    for (int k = 0; k < 2; k++)
        moved_s += cost_group_s(c, OP_ALL_GATHER, gradient * scattered[k] + parameter * used[k],
                                floor_group(s, c, k ? decision_expert_shard(&d) : shard));
    return d.zero == 3 ? moved_s / c->profile->zero3_speed : moved_s;
}

/* The smallest shard count with which c's state fits, activations aside. */
static uint32_t least_shard(const struct searching *s, const struct cost *c, const struct cost_shape *x)
{
    const struct wishes *w = &s->job->wishes;
    struct cost own = *c;
    struct decision d = *c->decision;
    uint32_t all = d.dp * d.cp, least = 2;
    double most = d.pp * ((double)s->memory_limit - c->buffers->context_gib * (1 << 30));
    own.decision = &d;
    bool whole = w->degree[DEG_ZERO].relation == REL_EQ && w->degree[DEG_SHARD].relation == REL_ANY;
    if (whole || s->topo->ntiers == 0)
        return all;
    for (; least < all; least++) {
        if (all % least || !space_wants(&w->degree[DEG_SHARD], least))
            continue;
        d.shard = least;
        if (cost_state_all(&own, x) <= most)
            break;
    }
    return least;
}

/* Counts layers only: their matrices and experts, except those whose gradients may stay whole until the update.  A
 * layer that is used twice in a row is gathered once, so every pass of a stage may save the gathering of its largest
 * layer. */
double search_floor_shards_s(struct searching *s, const struct cost *c, const struct cost_shape *x, bool splits)
{
    const struct decision *d = c->decision;
    double scattered[2] = {0}, used[2] = {0}, largest[2] = {0};
    uint32_t chunks = most_chunks(s, d), all = d->dp * d->cp, least = least_shard(s, c, x);
    for (uint32_t i = 0; i < s->job->model.nlayers; i += x->run[i]) {
        const struct cost_block *b = &x->layers[x->kind[i]];
        const double own[2] = {b->matrices - b->key_matrices, b->experts};
        for (int k = 0; k < 2; k++) {
            used[k] += x->run[i] * own[k];
            scattered[k] += splits && b->early ? 0 : x->run[i] * own[k];
            largest[k] = cost_larger(largest[k], own[k]);
        }
    }
    for (int k = 0; k < 2; k++) {
        scattered[k] /= d->pp;
        used[k] = d->zero == 3 ? 2 * cost_larger(0, used[k] / d->pp - chunks * largest[k]) : 0;
    }
    double moved_s = shards_s(s, c, all, scattered, used);
    return least < all ? cost_smaller(moved_s, shards_s(s, c, least, scattered, used)) : moved_s;
}
