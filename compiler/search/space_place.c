/* The nodes under a mesh.
 *
 * `keep AXIS within X` bounds runs of ranks: all ranks from the first to the last of a group.  Nodes are
 * handed out so that runs fit: of every domain or tier group only a multiple of the run's nodes is used. */

#include "compiler/search/space.h"
#include "compiler/support/vec.h"

#include <string.h>

/* Length in ranks of the aligned run that holds a group of the axis; 0: unknown axis. */
static uint64_t axis_run(const struct decision *d, const struct mesh *m, const char *axis)
{
    for (uint32_t i = 0; i < NAXES; i++)
        if (!strcmp(axis, axis_names[i]))
            return m->size[i] > 1 ? (uint64_t)m->stride[i] * m->size[i] : 1;
    if (!strcmp(axis, "ep"))
        return d->ep > 1 ? mesh_run(m, (uint64_t)d->ep * d->etp) : 1;
    if (!strcmp(axis, "etp"))
        return mesh_run(m, d->etp);
    return !strcmp(axis, "shard") ? mesh_run(m, (uint64_t)d->shard * d->tp) : 0;
}

/* network level that a run must not exceed */
static uint32_t keep_level(const struct topo *t, const struct keep_wish *k)
{
    if (!strcmp(k->within, "scale_up"))
        return 0;
    for (uint32_t i = 0; i < t->ntiers; i++)
        if (!strcmp(k->within, t->tiers[i].name))
            return i + 1;
    return t->ntiers;
}

static bool keep_holds(const struct space *s, const struct keep_wish *k, const struct decision *d, uint64_t run)
{
    uint32_t per_node = s->topo->types[d->type].gpus;
    if (per_node % run == 0)
        return true; /* no run leaves its node */
    for (uint64_t first = 0; first < d->gpus_used; first += run) {
        uint64_t a = first / per_node, b = (first + run - 1) / per_node;
        if (b >= d->nnodes)
            b = d->nnodes - 1;
        if (a == b)
            continue;
        if (!k->within ? b - a >= k->nodes : !strcmp(k->within, "node"))
            return false;
        if (k->within && topo_level(s->topo, d->nodes[a], d->nodes[b]) > keep_level(s->topo, k))
            return false;
    }
    return true;
}

/* the node list for runs of `block` nodes within a level, made once */
static const struct space_nodes *choose_nodes(struct space *s, uint64_t block, uint32_t level)
{
    for (uint32_t i = 0; i < s->nplaces; i++)
        if (s->places[i].block == block && (block == 1 || s->places[i].level == level))
            return &s->places[i];
    if (s->nplaces == ARRAY_LEN(s->places))
        return NULL;
    const struct space_nodes *all = &s->places[0];
    uint32_t *out = ARENA_ARRAY(s->arena, uint32_t, all->n ? all->n : 1), have = 0;
    for (uint32_t i = 0, j; i < all->n; i = j) {
        for (j = i; j < all->n && (j == i || topo_level(s->topo, all->nodes[i], all->nodes[j]) <= level);)
            j++;
        uint32_t whole = (uint32_t)((j - i) / block * block);
        for (uint32_t k = i; k < i + whole; k++)
            out[have++] = all->nodes[k];
    }
    s->places[s->nplaces] = (struct space_nodes){.block = block, .level = level, .n = have, .nodes = out};
    return &s->places[s->nplaces++];
}

const struct mesh_runs *space_runs(struct space *s, const struct decision *d)
{
    struct space_nodes *x = &s->healthy;
    for (uint32_t i = 0; i < s->nplaces && x->nodes != d->nodes; i++)
        x = &s->places[i];
    if (!x->runs)
        x->runs = mesh_runs_new(s->arena, s->topo, x->nodes, x->n, s->topo->types[s->type].gpus);
    return x->runs;
}

bool space_place(struct space *s, uint32_t order, struct decision *d)
{
    const struct wishes *w = &s->job->wishes;
    d->type = s->type;
    d->gpus_used = d->tp * d->cp * d->dp * d->pp;
    memcpy(d->order, s->order[order], sizeof d->order);
    const uint32_t size[NAXES] = {[AXIS_TP] = d->tp, [AXIS_CP] = d->cp, [AXIS_DP] = d->dp, [AXIS_PP] = d->pp};
    struct mesh m = mesh_new(size, d->order);
    uint32_t per_node = s->topo->types[d->type].gpus, level = UINT32_MAX;
    uint64_t block = 1;
    for (uint32_t i = 0; i < w->nkeeps; i++) {
        uint64_t run = axis_run(d, &m, w->keeps[i].axis);
        if (run <= per_node || !w->keeps[i].within || !strcmp(w->keeps[i].within, "node"))
            continue;
        uint64_t nodes = (run + per_node - 1) / per_node;
        uint32_t l = keep_level(s->topo, &w->keeps[i]);
        block = nodes > block ? nodes : block;
        level = l < level ? l : level;
    }
    const struct space_nodes *place = choose_nodes(s, block, level);
    d->nnodes = (d->gpus_used + per_node - 1) / per_node;
    if (!place || place->n < d->nnodes) {
        s->keeps_refused += block > 1;
        return false;
    }
    d->nodes = block == 1 && s->healthy.n >= d->nnodes ? s->healthy.nodes : place->nodes;
    for (uint32_t i = 0; i < w->nkeeps; i++) {
        uint64_t run = axis_run(d, &m, w->keeps[i].axis);
        if (run > 1 && !keep_holds(s, &w->keeps[i], d, run)) {
            s->keeps_refused++;
            return false;
        }
    }
    return true;
}
