/* Costs from below of what is not placed yet: blocks with the transfers that they cannot do without, whatever the order of
 * axes and the nodes.  One serves all meshes that share tp, cp and the experts' degrees. */

#include "compiler/search/search_private.h"

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
    cost_init(c, s->job, s->topo, d, space_runs(&s->space, d), s->products);
    cost_device_init(c); /* other meshes may do without degraded nodes */
    cost_net_init(c);
    c->group[AXIS_BIT(AXIS_TP)] = *floor_group(s, c, d->tp);
    c->group[AXIS_BIT(AXIS_CP)] = *floor_group(s, c, d->cp);
    c->ep = *floor_group(s, c, d->ep);
    c->near = c->far = (struct cost_group){.n = 1}; /* cost_exchange() knows */
    /* Kernels wait less for the host where transfers take longer.  What pairs hide grows with transfers, so there only
     * kernels that do not wait are least. */
    s->floor_profile = *c->profile;
    if (s->overlapping)
        s->floor_profile.host_op_us = 0;
    c->profile = &s->floor_profile;
    return c;
}

double search_floor_shards_s(struct searching *s, const struct cost *c, const struct cost_shape *x)
{
    const struct decision *d = c->decision;
    const struct train *t = &c->job->train;
    double gradient = t->reduce == DT_FP32 ? 4 : 2, parameter = t->precision == DT_FP32 ? 4 : 2, dense, experts;
    double moved = gradient + (d->zero == 3 ? 2 * parameter : 0);
    cost_elements(c, x, &dense, &experts);
    const struct cost_group *all = floor_group(s, c, d->dp * d->cp), *replicas = floor_group(s, c, decision_expert_dp(d));
    double moved_s = cost_group_s(c, OP_ALL_GATHER, moved * dense / d->pp, all) +
                     cost_group_s(c, OP_ALL_GATHER, moved * experts / d->pp, replicas);
    return d->zero == 3 ? moved_s / c->profile->zero3_speed : moved_s;
}
