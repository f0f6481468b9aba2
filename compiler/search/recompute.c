/* Which kinds of recomputation a search tries: none, full, and a chain of lists.
 *
 * Each list of the chain adds to the one before it the part of a layer that frees a byte for the fewest
 * seconds, on the smallest mesh allowed with one sequence: the order in which a person would give parts up,
 * too.  With stages that spare some of their layers, what lies between two lists of the chain is reached to
 * within a layer.  The list [core_attn] is tried as well, for it has a name, `selective`. */

#include "compiler/cost/cost_private.h"
#include "compiler/search/space.h"

struct parts_sum {
    double seconds, bytes;
};

/* PART_FFN covers PART_FFN_ACT, PART_MOE its activation and the shared experts */
static uint32_t without_covered(uint32_t parts)
{
    if (parts & PART_FFN)
        parts &= ~(uint32_t)PART_FFN_ACT;
    if (parts & PART_MOE)
        parts &= ~(uint32_t)(PART_MOE_ACT | PART_SHARED);
    return parts;
}

static struct parts_sum sum_parts(struct arena *a, struct cost *c, const struct cost_kinds *kinds,
                                  struct decision *d, uint32_t parts)
{
    struct arena_mark mark = arena_mark(a);
    struct cost_shape shape;
    struct parts_sum sum = {0};
    d->recompute = parts ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE;
    d->parts = parts;
    c->decision = d;
    cost_shape_init(a, c, kinds, &shape);
    for (uint32_t i = 0; i < c->job->model.nlayers; i++) {
        const struct cost_block *b = &shape.layers[shape.kind[i]];
        sum.seconds += b->forward_s + b->backward_s + b->forward_comm_s + b->backward_comm_s;
        sum.bytes += b->keep_bytes;
    }
    arena_reset(a, mark);
    return sum;
}

/* the chain into s, behind what is there */
static void add_chain(struct arena *a, struct space *s)
{
    struct decision d = decision_single();
    d.tp = s->tp.at[0];
    d.cp = s->cp.at[0];
    d.context = CONTEXT_RING;
    d.type = s->type;
    d.gpus_used = d.tp * d.cp;
    uint32_t per_node = s->topo->types[s->type].gpus;
    d.nnodes = (d.gpus_used + per_node - 1) / per_node;
    d.nodes = s->places[0].nodes;
    if (d.nnodes > s->places[0].n)
        return;
    for (uint32_t i = 0; i < NAXES; i++)
        d.order[i] = s->order[0][i];
    struct cost *c = ARENA_NEW(a, struct cost);
    cost_init(c, s->job, s->topo, &d, space_runs(s, &d), NULL);
    struct cost_kinds kinds = cost_kinds_new(a, &s->job->model);
    uint32_t parts = 0;
    struct parts_sum now = sum_parts(a, c, &kinds, &d, 0);
    while (s->nrecompute + 2 < SPACE_RECOMPUTE) {
        uint32_t best = 0;
        double best_price = 0;
        struct parts_sum best_sum = now;
        for (uint32_t bit = 1; bit <= PART_SHARED; bit <<= 1) {
            uint32_t more = without_covered(parts | bit);
            if (more == parts || (parts & bit))
                continue;
            struct parts_sum x = sum_parts(a, c, &kinds, &d, more);
            if (x.bytes >= now.bytes)
                continue;
            double price = (x.seconds - now.seconds) / (now.bytes - x.bytes);
            if (!best || price < best_price) {
                best = more;
                best_price = price;
                best_sum = x;
            }
        }
        if (!best)
            break;
        parts = best;
        now = best_sum;
        if (parts != PART_CORE_ATTN)
            s->recompute[s->nrecompute++] = (struct space_recompute){RECOMPUTE_SELECTIVE, parts, 0, true};
    }
}

void space_recompute(struct arena *a, struct space *s)
{
    const struct wishes *w = &s->job->wishes;
    s->nrecompute = 0;
    if (w->recompute == RECOMPUTE_AUTO) {
        s->recompute[s->nrecompute++] = (struct space_recompute){RECOMPUTE_NONE, 0, 0, false};
        s->recompute[s->nrecompute++] =
            (struct space_recompute){RECOMPUTE_SELECTIVE, PART_CORE_ATTN, 0, true};
        add_chain(a, s);
        s->recompute[s->nrecompute++] = (struct space_recompute){RECOMPUTE_FULL, 0, 0, true};
        return;
    }
    uint32_t parts = w->recompute == RECOMPUTE_SELECTIVE ? (w->parts ? w->parts : PART_CORE_ATTN) : 0;
    s->recompute[s->nrecompute++] = (struct space_recompute){w->recompute, parts, w->recompute_layers, false};
}
