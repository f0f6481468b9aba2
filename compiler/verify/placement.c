/* Property 8, placement: ranks and GPUs match one to one, on GPUs that may be used, where the wishes want
 * them, and ranks that communicate can reach each other.
 *
 * One pass over the ranks; keep-wishes compare every rank with the first member of its group.  Links are
 * asked for once per pair of neighbouring nodes in rank order's levels, not per pair of ranks. */

#include "compiler/verify/prove.h"

#include <assert.h>
#include <string.h>

static void check_rank(struct arena *a, const struct plan *p, uint32_t rank, uint64_t *taken, struct verdict *v)
{
    const struct rank_info *r = &p->ranks->ranks[rank];
    const struct decision *d = &p->decision;
    struct site at = {8, NONE, rank, false, NONE};
    if (r->node >= p->topo->nnodes) {
        prove_report(a, p, v, at, "node %u of %u", r->node, p->topo->nnodes);
        return;
    }
    const struct topo_node *node = &p->topo->nodes[r->node];
    const struct topo_node_type *type = &p->topo->types[node->type];
    if (node->type != d->type)
        prove_report(a, p, v, at, "node %s is of type %s, not %s", node->name, type->id, p->topo->types[d->type].id);
    else if (r->gpu >= type->gpus || r->gpu >= 64)
        prove_report(a, p, v, at, "GPU %u of %u on node %s", r->gpu, type->gpus, node->name);
    else if (node->state != NODE_USABLE)
        prove_report(a, p, v, at, "node %s is %s", node->name, node->state == NODE_SPARE ? "a spare" : "excluded");
    else if (node->excluded_gpus >> r->gpu & 1)
        prove_report(a, p, v, at, "GPU %u of node %s is excluded", r->gpu, node->name);
    else if (taken[r->node] >> r->gpu & 1)
        prove_report(a, p, v, at, "GPU %u of node %s already holds another rank", r->gpu, node->name);
    else if (rank / type->gpus >= d->nnodes || r->node != d->nodes[rank / type->gpus] || r->gpu != rank % type->gpus)
        prove_report(a, p, v, at, "it sits on GPU %u of node %s, the decision puts it on GPU %u of node %s", r->gpu,
                     node->name, rank % type->gpus,
                     rank / type->gpus < d->nnodes ? p->topo->nodes[d->nodes[rank / type->gpus]].name : "none");
    if (r->gpu < 64)
        taken[r->node] |= (uint64_t)1 << r->gpu;
}

static bool wish_mask(const struct mesh *m, const struct keep_wish *w, uint32_t *mask)
{
    for (uint32_t d = 0; d < NDIMS; d++)
        if (!strcmp(w->axis, mesh_dim_names[d])) {
            *mask = m->dim[d];
            return true;
        }
    return false;
}

/* outermost level that a keep wish allows; UINT32_MAX where it counts nodes instead */
static uint32_t wish_level(const struct plan *p, const struct keep_wish *w)
{
    if (!w->within)
        return UINT32_MAX;
    for (uint32_t i = 0; i < p->topo->ntiers; i++)
        if (p->topo->tiers[i].name && !strcmp(p->topo->tiers[i].name, w->within))
            return i + 1;
    return 0; /* node, scale_up */
}

static void check_keep(struct arena *a, const struct plan *p, const struct keep_wish *w, struct verdict *v)
{
    uint32_t mask = 0, level = wish_level(p, w);
    bool known = wish_mask(&p->mesh, w, &mask);
    assert(known); /* by the language's own checks */
    (void)known;
    bool node = w->within && !strcmp(w->within, "node");
    uint32_t gpus = p->topo->types[p->decision.type].gpus;
    for (uint32_t rank = 0; rank < p->ranks->nranks; rank++) {
        struct group g = mesh_group(&p->mesh, rank, mask);
        uint32_t x = p->ranks->ranks[g.first].node, y = p->ranks->ranks[rank].node;
        bool kept = true;
        if (node)
            kept = x == y;
        else if (w->within)
            kept = topo_level(p->topo, x, y) <= level;
        else /* within n nodes: members are spread evenly, so the span from first to last counts them */
            kept = rank / gpus - g.first / gpus < w->nodes;
        struct site at = {8, NONE, rank, false, NONE};
        if (kept)
            continue;
        prove_report(a, p, v, at, "its %s group reaches from node %s to node %s, beyond the wish to keep it within %s",
                     w->axis, p->topo->nodes[x].name, p->topo->nodes[y].name,
                     w->within ? w->within : arena_printf(a, "%llu nodes", (unsigned long long)w->nodes));
        return;
    }
}

/* Every rank talks, at least through the metrics, to ranks of other nodes: the way between each used node and
 * the previous one must have a rate.  Tiers nest, so these levels include the outermost one between any two.
 */
static void check_paths(struct arena *a, const struct plan *p, struct verdict *v)
{
    const struct decision *d = &p->decision;
    for (uint32_t i = 1; i < d->nnodes; i++) {
        uint32_t level = topo_level(p->topo, d->nodes[i - 1], d->nodes[i]);
        struct site at = {8, NONE, NONE, false, NONE};
        if (topo_level_bytes_s(p->topo, d->type, level) > 0)
            continue;
        prove_report(a, p, v, at, "no link joins nodes %s and %s", p->topo->nodes[d->nodes[i - 1]].name,
                     p->topo->nodes[d->nodes[i]].name);
        return;
    }
}

void verify_placement(struct arena *a, const struct plan *p, struct verdict *v)
{
    const struct decision *d = &p->decision;
    uint32_t before = prove_count(v, 8);
    struct site all = {8, NONE, NONE, false, NONE};
    uint64_t want = (uint64_t)d->tp * d->cp * d->pp * d->dp;
    if (p->ranks->nranks != want || p->nroles != d->pp) { /* structure: the mesh has as many ranks */
        prove_report(a, p, v, all, "%u ranks of %u roles, the decision's degrees ask for %llu of %u", p->ranks->nranks,
                     p->nroles, (unsigned long long)want, d->pp);
        return;
    }
    struct arena *scratch = arena_new();
    uint64_t *taken = ARENA_ARRAY(scratch, uint64_t, p->topo->nnodes + 1u);
    for (uint32_t rank = 0; rank < p->ranks->nranks; rank++)
        check_rank(a, p, rank, taken, v);
    arena_free(scratch);
    if (prove_count(v, 8) != before)
        return;
    for (uint32_t i = 0; i < p->job->wishes.nkeeps; i++)
        check_keep(a, p, &p->job->wishes.keeps[i], v);
    check_paths(a, p, v);
}
