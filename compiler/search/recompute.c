/* Which kinds of recomputation a search tries: none, full, and a chain of lists of parts.
 *
 * Each list of the chain adds to the previous one the part of a layer that frees a byte for the fewest seconds, on
 * the smallest mesh allowed with one sequence: the order in which a person would choose parts, too.  Since stages
 * can spare some of their layers, memory between two lists of the chain is reached to within a layer.  The list
 * [core_attn] is tried as well, since it has a name, `selective`. */

#include "compiler/cost/cost_private.h"
#include "compiler/model/means.h"
#include "compiler/search/space.h"

enum { MOST_PARTS = 11 }; /* kinds before `full` */

struct parts_sum {
    double seconds, bytes;
};

/* Adds a kind if the job's target has it.  Without the means to spare any number of layers, all stages recompute all.
 */
static void add_kind(struct space *s, enum recompute kind, uint32_t parts, uint32_t layers)
{
    uint32_t has = means_of(s->job, TARGET_recompute),
             whole = target_bit(TARGET_recompute, layers ? "first_layers" : "full");
    bool spares = kind != RECOMPUTE_NONE && !layers && has & target_bit(TARGET_recompute, "some_layers");
    if (s->nrecompute == SPACE_RECOMPUTE || (parts | (kind == RECOMPUTE_FULL ? whole : 0)) & ~has)
        return;
    s->recompute[s->nrecompute++] = (struct space_recompute){kind, parts, layers, spares, 1, 0};
}

/* For stacks that recompute the first N layers of each chunk, the same N everywhere. */
static void add_first_layers(struct space *s)
{
    static const uint32_t layers[] = {1, 2, 3, 4, 6, 8, 12, 16};
    if (means_of(s->job, TARGET_recompute) & target_bit(TARGET_recompute, "some_layers"))
        return;
    for (size_t i = 0; i < ARRAY_LEN(layers) && layers[i] < s->job->model.nlayers; i++)
        add_kind(s, RECOMPUTE_FULL, 0, layers[i]);
}

/* PART_FFN covers PART_FFN_ACT, PART_MOE its activation and the shared experts */
static uint32_t without_covered(uint32_t parts)
{
    if (parts & PART_FFN)
        parts &= ~(uint32_t)PART_FFN_ACT;
    if (parts & PART_MOE)
        parts &= ~(uint32_t)(PART_MOE_ACT | PART_SHARED);
    return parts;
}

/* the smallest mesh: the least values of the axes, with one sequence */
struct least_mesh {
    struct cost *c;
    struct decision *d;
    struct cost_kinds kinds;
};

static bool least_mesh_new(struct arena *a, struct space *s, struct least_mesh *x)
{
    x->d = ARENA_NEW(a, struct decision);
    *x->d = decision_single();
    x->d->tp = s->tp.at[0];
    x->d->cp = s->cp.at[0];
    x->d->context = CONTEXT_RING;
    x->d->type = s->type;
    x->d->gpus_used = x->d->tp * x->d->cp;
    uint32_t per_node = s->topo->types[s->type].gpus;
    x->d->nnodes = (x->d->gpus_used + per_node - 1) / per_node;
    x->d->nodes = s->places[0].nodes;
    if (x->d->nnodes > s->places[0].n)
        return false;
    for (uint32_t i = 0; i < NAXES; i++)
        x->d->order[i] = s->order[0][i];
    x->c = ARENA_NEW(a, struct cost);
    cost_init(a, x->c, s->job, s->topo, x->d, space_runs(s, x->d), NULL, NULL);
    x->kinds = cost_kinds_new(a, &s->job->model);
    return true;
}

static struct parts_sum sum_kind(struct arena *a, const struct least_mesh *x, enum recompute kind, uint32_t parts)
{
    struct arena_mark mark = arena_mark(a);
    struct cost_shape shape;
    struct parts_sum sum = {0};
    x->d->recompute = kind;
    x->d->parts = parts;
    x->c->decision = x->d;
    cost_shape_init(a, x->c, &x->kinds, &shape);
    for (uint32_t i = 0; i < x->c->job->model.nlayers; i++) {
        const struct cost_block *b = &shape.layers[shape.kind[i]];
        sum.seconds += b->forward_s + b->backward_s + b->forward_comm_s + b->backward_comm_s;
        sum.bytes += b->keep_bytes;
    }
    arena_reset(a, mark);
    return sum;
}

static struct parts_sum sum_parts(struct arena *a, const struct least_mesh *x, uint32_t parts)
{
    return sum_kind(a, x, parts ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE, parts);
}

/* Appends the chain to s. */
static void add_chain(struct arena *a, struct space *s, const struct least_mesh *x)
{
    uint32_t parts = 0;
    struct parts_sum now = sum_parts(a, x, 0);
    while (s->nrecompute + 1 < MOST_PARTS) {
        uint32_t best = 0;
        double best_price = 0;
        struct parts_sum best_sum = now;
        for (uint32_t bit = 1; bit <= PART_SHARED; bit <<= 1) {
            uint32_t more = without_covered(parts | bit);
            if (more == parts || (parts & bit) || !(means_of(s->job, TARGET_recompute) & bit))
                continue;
            struct parts_sum sum = sum_parts(a, x, more);
            if (sum.bytes >= now.bytes)
                continue;
            double price = (sum.seconds - now.seconds) / (now.bytes - sum.bytes);
            if (!best || price < best_price) {
                best = more;
                best_price = price;
                best_sum = sum;
            }
        }
        if (!best)
            break;
        parts = best;
        now = best_sum;
        if (parts != PART_CORE_ATTN)
            add_kind(s, RECOMPUTE_SELECTIVE, parts, 0);
    }
}

static void weigh_kinds(struct arena *a, struct space *s, const struct least_mesh *x)
{
    struct parts_sum none = sum_parts(a, x, 0);
    for (uint32_t i = 0; i < s->nrecompute; i++) {
        struct space_recompute *k = &s->recompute[i];
        struct parts_sum own = sum_kind(a, x, k->kind, k->parts);
        k->kept = own.bytes / none.bytes;
        k->extra = own.seconds / none.seconds - 1;
    }
}

void space_recompute(struct arena *a, struct space *s)
{
    const struct wishes *w = &s->job->wishes;
    struct least_mesh x;
    s->nrecompute = 0;
    if (w->recompute == RECOMPUTE_AUTO) {
        bool weighs = least_mesh_new(a, s, &x);
        add_kind(s, RECOMPUTE_NONE, 0, 0);
        add_kind(s, RECOMPUTE_SELECTIVE, PART_CORE_ATTN, 0);
        if (weighs)
            add_chain(a, s, &x);
        add_kind(s, RECOMPUTE_FULL, 0, 0);
        add_first_layers(s);
        if (weighs)
            weigh_kinds(a, s, &x);
        return;
    }
    uint32_t parts = w->recompute == RECOMPUTE_SELECTIVE ? (w->parts ? w->parts : PART_CORE_ATTN) : 0;
    s->recompute[s->nrecompute++] = (struct space_recompute){w->recompute, parts, w->recompute_layers, false, 1, 0};
}
