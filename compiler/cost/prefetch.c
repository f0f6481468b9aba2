/* How many uses ahead ZeRO 3 gathers parameters: as many as one layer's gather outlasts the shortest forward pass of a
 * layer, at least one and at most four, because each costs the memory of the largest piece. */

#include "compiler/cost/cost_private.h"

#include <math.h>

#define MOST_PREFETCH 4

static uint32_t shape_prefetch(const struct cost *c, const struct cost_shape *s)
{
    const struct decision *d = c->decision;
    const struct model *m = &c->job->model;
    if (d->zero < 3 || d->shard < 2 || !m->nlayers)
        return 0;
    double shortest = INFINITY, largest = 0;
    for (uint32_t i = 0; i < m->nlayers; i += s->run[i]) {
        const struct cost_block *b = &s->layers[s->kind[i]];
        double layer = b->forward_s + b->backward_s + b->forward_comm_s + b->backward_comm_s;
        shortest = fmin(shortest, layer / 3); /* a third of forward and backward */
        largest = fmax(largest, (double)model_layer_parameters(m, m->layers[i], false) / d->tp);
    }
    double element = c->job->train.precision == DT_FP32 ? 4 : 2;
    double gather = cost_group_s(c, OP_ALL_GATHER, element * largest, &c->shard);
    double ahead = shortest > 0 ? ceil(gather / shortest) : 1;
    return ahead > MOST_PREFETCH ? MOST_PREFETCH : ahead < 1 ? 1 : (uint32_t)ahead;
}

uint32_t cost_prefetch(struct arena *a, const struct cost *c)
{
    if (c->decision->zero < 3 || c->decision->shard < 2)
        return 0;
    struct arena_mark mark = arena_mark(a);
    struct cost_kinds kinds = cost_kinds_new(a, &c->job->model);
    struct cost_shape s;
    cost_shape_init(a, c, &kinds, &s);
    uint32_t prefetch = shape_prefetch(c, &s);
    arena_reset(a, mark);
    return prefetch;
}

uint32_t cost_uses_ahead(const struct cost *c, const struct cost_shape *s)
{
    const struct decision *d = c->decision;
    bool blocks = c->job->wishes.never_overlap & OVERLAP_DP;
    return d->zero < 3 || blocks ? 0 : d->prefetch ? d->prefetch : shape_prefetch(c, s);
}
