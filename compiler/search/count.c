/* How many configurations a search's space has, how many were evaluated, and how many were ruled out without
 * evaluation.
 *
 * A configuration is a mesh with its experts' degrees, an order of axes, a microbatch size, sequence parallelism and
 * a context kind, a schedule, a state (ZeRO level and shard) and a kind of recomputation; nodes, stages and spared
 * layers follow from it.  The number for a mesh is a product, since none of these restricts another, except that
 * microbatches restrict the schedules.
 *
 * Limits: shards that stay within a level of the network are counted as if every level had one, and orders that a
 * keep forbids are counted, so the true space is never larger than stated.  Evaluated configurations are identified
 * by a hash of 64 bits. */

#include "compiler/search/branch.h"
#include "compiler/search/candidates.h"

#include <string.h>

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t hash_decision(const struct decision *d)
{
    const uint64_t v[] = {d->tp,
                          d->cp,
                          d->dp,
                          d->pp,
                          d->ep,
                          d->etp,
                          d->vpp,
                          d->sp,
                          d->context,
                          d->microbatch,
                          d->schedule,
                          d->folds,
                          d->zero,
                          d->shard,
                          d->schedule_group,
                          d->recompute,
                          d->parts,
                          d->recompute_layers,
                          (uint64_t)(uintptr_t)d->listed};
    uint64_t h = 1;
    for (size_t i = 0; i < ARRAY_LEN(v); i++)
        h = mix(h, v[i]);
    for (uint32_t i = 0; i < NAXES; i++)
        h = mix(h, d->order[i]);
    return h ? h : 1;
}

/* the place of h in the table, or where it would be */
static uint64_t *find_place(const struct searching *s, uint64_t h)
{
    uint64_t at = h & (s->places - 1);
    while (s->counted[at] && s->counted[at] != h)
        at = (at + 1) & (s->places - 1);
    return &s->counted[at];
}

static void grow(struct searching *s)
{
    uint64_t *old = s->counted, n = s->places;
    s->places = n ? 2 * n : 1024;
    s->counted = ARENA_ARRAY(s->arena, uint64_t, s->places);
    memset(s->counted, 0, s->places * sizeof *s->counted);
    for (uint64_t i = 0; i < n; i++)
        if (old[i])
            *find_place(s, old[i]) = old[i];
}

void search_count(struct searching *s, const struct decision *d)
{
    uint64_t h = hash_decision(d), *place;
    if (2 * s->ncounted >= s->places)
        grow(s);
    place = find_place(s, h);
    s->ncounted += *place == 0;
    *place = h;
    s->result->evaluated = s->ncounted;
}

/* number of states: ZeRO levels with their shard counts over `all` ranks */
static double count_states(const struct searching *s, uint32_t all)
{
    const struct wish *w = &s->job->wishes.degree[DEG_SHARD];
    uint32_t divisors = 0, wanted = 0, levels = s->topo->ntiers + 1, n = 0;
    for (uint32_t v = 1; v <= all / v; v++)
        if (all % v == 0) {
            bool pair = v < all / v;
            wanted += space_wants(w, v);
            wanted += pair && space_wants(w, all / v);
            divisors += v > 1;
            divisors += pair;
        }
    for (uint32_t i = 0; i < (all > 1 ? s->space.zero.n : 1); i++)
        if (s->space.zero.at[i] == 0 || all == 1)
            n += space_wants(w, 1);
        else if (w->relation != REL_ANY)
            n += wanted;
        else if (s->job->wishes.degree[DEG_ZERO].relation == REL_EQ)
            n++;
        else
            n += divisors < levels + 1 ? divisors : levels + 1;
    return n;
}

static double count_schedules(const struct searching *s, const struct decision *d)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->space.nschedules; k++)
        n += search_schedule_applies(s, d, k);
    return n;
}

/* number of configurations of a mesh's families, in all orders of axes */
static double count_mesh(const struct searching *s, const struct space_mesh *m)
{
    const struct mesh_node x = {.mesh = *m, .ep = 1, .etp = 1};
    struct decision d = search_mesh_decision(&x);
    double schedules = 0, known = 0;
    uint32_t orders = 0, microbatches = 0;
    for (uint32_t order = 0; order < s->space.norders; order++)
        orders += space_order_counts(&s->space, order, m);
    d = search_before_families(s, &d);
    while (search_next_family(s, &d)) {
        if (d.microbatches != microbatches)
            known = count_schedules(s, &d);
        microbatches = d.microbatches;
        schedules += known;
    }
    return orders * schedules * count_states(s, m->dp * m->cp) * s->space.nrecompute;
}

/* number of ways in which a mesh's ranks can hold experts */
static uint32_t count_experts(const struct space *space, const struct space_mesh *m)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < space->ep.n; e++)
        for (uint32_t t = 0; t < space->etp.n; t++)
            n += (uint64_t)m->tp * m->cp * m->dp % ((uint64_t)space->ep.at[e] * space->etp.at[t]) == 0;
    return n;
}

/* number of configurations below a node that the search did not reach */
static double count_node(struct searching *s, const struct node *x)
{
    switch ((enum node_kind)x->kind) {
    case NODE_MESH:
        return s->meshes.at[x->index].dead ? 0 : count_mesh(s, &s->meshes.at[x->index].mesh);
    case NODE_FAMILY: {
        const struct decision *d = &s->families.at[x->index].decision;
        return count_schedules(s, d) * count_states(s, d->dp * d->cp) * s->space.nrecompute;
    }
    case NODE_LOT: {
        const struct lot *lot = &s->lots.at[x->index];
        const struct decision *d = &lot->decision;
        return search_count_orders(s, &s->meshes.at[lot->mesh]) * count_schedules(s, d) *
               count_states(s, d->dp * d->cp) * s->space.nrecompute;
    }
    case NODE_CELL:
        return s->space.nrecompute;
    case NODE_LEAF: /* its memory and a bound are known */
        break;
    }
    return 0;
}

/* limited to what readers of JSON can hold: signed 64-bit integers */
static uint64_t saturate(double x)
{
    return x >= 0x1p63 ? INT64_MAX : x > 0 ? (uint64_t)x : 0;
}

void search_count_space(struct searching *s)
{
    struct search_result *r = s->result;
    struct space_mesh *meshes;
    double space = 0, left = 0;
    uint32_t n = space_meshes(s->arena, &s->space, &meshes);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t experts = count_experts(&s->space, &meshes[i]);
        space += experts ? experts * count_mesh(s, &meshes[i]) : 0;
    }
    for (size_t i = 0; i < s->heap.n; i++)
        if (s->heap.at[i].bound < search_best(s))
            left += count_node(s, &s->heap.at[i]);
    r->space = saturate(space);
    r->pruned = saturate(space - left - (double)r->evaluated);
}
