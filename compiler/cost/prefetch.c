/* How many uses ahead ZeRO 3 gathers parameters: as many as one layer's gather outlasts the shortest forward pass of a
 * layer, at least one and at most four, because each costs the memory of the largest piece. */

#include "compiler/cost/cost.h"

#include <math.h>

#define MOST_PREFETCH 4

uint32_t cost_prefetch(struct arena *a, const struct cost *c)
{
    const struct decision *d = c->decision;
    const struct model *m = &c->job->model;
    if (d->zero < 3 || d->shard < 2 || !m->nlayers)
        return 0;
    double *layer = ARENA_ARRAY(a, double, m->nlayers), embed, head, shortest = INFINITY, largest = 0;
    cost_layers(a, c, layer, &embed, &head);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        shortest = fmin(shortest, layer[i] / 3); /* a third of forward and backward */
        largest = fmax(largest, (double)model_layer_parameters(m, m->layers[i], false) / d->tp);
    }
    double element = c->job->train.precision == DT_FP32 ? 4 : 2;
    double gather = cost_group_s(c, OP_ALL_GATHER, element * largest, &c->shard);
    double ahead = shortest > 0 ? ceil(gather / shortest) : 1;
    return ahead > MOST_PREFETCH ? MOST_PREFETCH : ahead < 1 ? 1 : (uint32_t)ahead;
}
