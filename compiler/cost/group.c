/* The participants of a decision's collectives, and the levels of the network at which they meet.
 *
 * A group is described by how many members of the first group lie together at or below each level; all groups of a
 * mask are translates of one another, so one represents all.  The ways to communicate are tuned once, here, because
 * a search asks for them a hundred thousand times.  Curves of the cluster file that match a group exactly are looked
 * up here too.
 *
 * The groups of one mask run at the same time on every GPU: each gets only its members' share of links, NICs and
 * uplinks, so contention among them needs no further factor. */

#include "compiler/cost/cost_private.h"

#include <string.h>

static const char *const curve_names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                          "all_to_all", "broadcast",  "send_recv"};

uint32_t cost_curve_slot(enum op op)
{
    static const int ops[] = {OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_TO_ALL, OP_BROADCAST, OP_SEND};
    for (uint32_t i = 0; i < 6; i++)
        if (ops[i] == (int)op)
            return i;
    return op == OP_RECV ? 5 : 6;
}

/* The curve for exactly this group, as index + 1; 0 = none. */
static uint16_t find_curve(const struct cost *c, const char *kind, const struct cost_group *g)
{
    uint32_t per_node = g->below[0] < c->type->gpus ? g->below[0] : c->type->gpus;
    for (uint32_t i = 0; i < c->topo->nmeasured && i < UINT16_MAX; i++) {
        const struct topo_measured *t = &c->topo->measured[i];
        if (strcmp(t->kind, kind) || t->npoints == 0 || t->ranks != g->n)
            continue;
        if ((t->per_node && t->per_node != per_node) || (t->type && strcmp(t->type, c->type->id)))
            continue;
        if (!t->tier || !strcmp(t->tier, topo_level_name(c->topo, g->level)))
            return (uint16_t)(i + 1);
    }
    return 0;
}

/* moves: those that the group is for; others are tuned on request. */
static void finish(const struct cost *c, struct cost_group *g, uint32_t moves)
{
    memset(g->curve, 0, sizeof g->curve);
    for (uint32_t i = 0; i < 6 && c->topo->nmeasured && g->n > 1; i++)
        g->curve[i] = find_curve(c, curve_names[i], g);
    cost_tune(c, g, moves);
}

/* Does a group from rank 0 to rank `last` leave a domain of bridged GPUs? */
static bool beyond_domain(const struct cost *c, uint32_t last)
{
    uint32_t domain = c->type->scale_up.gpus;
    return domain && domain < c->type->gpus && last >= domain;
}

/* Groups are consecutive, `extent` ranks each, and the first one lies within its domain at a level.  Where groups do
 * not divide domains, one of them crosses the end of the first domain: returns the level at which its members meet. */
static uint32_t across(const struct cost *c, uint32_t level, uint64_t extent, uint64_t last)
{
    const struct decision *d = c->decision;
    uint64_t span = level ? c->topo->tiers[level - 1].span : c->type->scale_up.span,
             domain = (span ? span : 1) * c->type->gpus;
    uint64_t all = c->mesh.nranks / c->mesh.size[AXIS_PP], first = (domain - 1) / extent * extent;
    if (domain % extent == 0 || all % extent || first + extent > c->mesh.nranks || mesh_run(&c->mesh, all) != all)
        return level; /* or pp is in between */
    uint32_t met = mesh_level(c->topo, d->nodes, c->type->gpus, (uint32_t)first, (uint32_t)(first + last));
    return met > level ? met : level;
}

/* n ranks from rank 0 on, `stride` apart when pp is not counted. */
static struct cost_group run_group(const struct cost *c, uint32_t n, uint32_t stride, uint32_t moves)
{
    struct cost_group g = {.n = n};
    const struct decision *d = c->decision;
    uint32_t per_node = c->type->gpus;
    for (uint32_t level = 0; level < COST_LEVELS; level++) {
        uint32_t low = 1, high = n;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (mesh_level(c->topo, d->nodes, per_node, 0,
                           (uint32_t)mesh_unfold(&c->mesh, (uint64_t)middle * stride)) <= level)
                low = middle + 1;
            else
                high = middle;
        }
        g.below[level] = low;
        g.level = level;
        if (low == n)
            break;
    }
    for (uint32_t level = across(c, g.level, (uint64_t)n * stride, (uint64_t)(n - 1) * stride);
         g.level < level && g.level + 1 < COST_LEVELS;)
        g.below[++g.level] = n;
    g.beyond = beyond_domain(c, (uint32_t)mesh_unfold(&c->mesh, (uint64_t)(g.below[0] - 1) * stride));
    finish(c, &g, moves);
    return g;
}

/* For experts, which are runs of the mesh's inner axes. */
struct cost_group cost_run_group(const struct cost *c, uint32_t n, uint32_t stride)
{
    return run_group(c, n, stride, 1u << MOVE_GATHER | 1u << MOVE_ALL_REDUCE);
}

struct cost_group cost_expert_group(const struct cost *c, uint32_t n, uint32_t stride)
{
    return run_group(c, n, stride, 1u << MOVE_EXCHANGE);
}

/* The first n of a rank's dp * cp replicas, in the order of ranks: as many of them are together at a level as of
 * all, but at most n. */
struct cost_group cost_shard_group(const struct cost *c, uint32_t n)
{
    uint32_t mask = AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP);
    const struct cost_group *all = &c->group[mask];
    struct cost_group g = {.n = n};
    if (n < 2)
        return g;
    while (g.level < all->level && all->below[g.level] < n) {
        g.below[g.level] = all->below[g.level];
        g.level++;
    }
    g.below[g.level] = n;
    struct group members = mesh_group(&c->mesh, 0, mask);
    g.beyond = beyond_domain(c, group_rank(&members, g.below[0] - 1));
    finish(c, &g, 1u << MOVE_GATHER);
    return g;
}

static struct cost_group mesh_cost_group(const struct cost *c, const struct mesh *m, uint32_t mask)
{
    const struct decision *d = c->decision;
    struct cost_group g = {.n = mesh_group_size(m, mask)};
    if (g.n < 2)
        return g;
    g.level = c->runs ? mesh_runs_group_level(c->runs, m, mask)
                      : mesh_group_level(m, c->topo, d->nodes, c->type->gpus, mask);
    g.level = g.level < COST_LEVELS ? g.level : COST_LEVELS - 1;
    for (uint32_t level = 0; level < g.level; level++)
        g.below[level] = mesh_group_below(m, c->topo, d->nodes, c->type->gpus, mask, level);
    g.below[g.level] = g.n;
    struct group members = mesh_group(m, 0, mask);
    g.beyond = beyond_domain(c, group_rank(&members, g.below[0] - 1));
    finish(c, &g, MOVES_ALL);
    return g;
}

struct cost_group cost_mask_group(const struct cost *c, const struct mesh *m, uint32_t mask)
{
    return mask ? mesh_cost_group(c, m, mask) : (struct cost_group){.n = 1};
}

/* Two neighbouring stages in the worst position.  Where a transfer leaves a switch group, at its end, it is that of
 * one stage's ranks out of all ranks in it: these few share its uplinks, oversubscribed or not, like a single member
 * of a ring. */
static struct cost_group next_group(const struct cost *c)
{
    struct cost_group g = {.n = c->decision->pp > 1 ? 2 : 1};
    if (g.n < 2)
        return g;
    g.level = c->runs ? mesh_runs_next_level(c->runs, &c->mesh)
                      : mesh_next_stage_level(&c->mesh, c->topo, c->decision->nodes, c->type->gpus);
    g.level = g.level < COST_LEVELS ? g.level : COST_LEVELS - 1;
    for (uint32_t level = 0; level <= g.level; level++) {
        uint64_t nodes = level && level <= c->topo->ntiers ? c->topo->tiers[level - 1].span : 1;
        uint64_t inside = nodes * c->type->gpus / c->mesh.stride[AXIS_PP];
        g.below[level] = level == g.level ? 2 : level && inside > 1 ? (uint32_t)inside : 1;
    }
    g.beyond = g.level == 0 && beyond_domain(c, c->mesh.stride[AXIS_PP]);
    finish(c, &g, 1u << MOVE_BROADCAST);
    return g;
}

void cost_set_shard(struct cost *c)
{
    const struct decision *d = c->decision;
    const struct cost_group *all = &c->group[AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP)];
    if (d->shard == d->dp * d->cp) {
        c->shard = *all;
        c->replicas = (struct cost_group){.n = 1};
        return;
    }
    c->replicas = *all;
    c->shard = cost_shard_group(c, d->shard);
    c->replicas.n = d->dp * d->cp / d->shard;
    for (uint32_t level = 0; level < COST_LEVELS; level++) { /* what remains above the shard groups */
        uint32_t sets = c->replicas.below[level] / d->shard;
        c->replicas.below[level] = sets ? sets : 1;
    }
    finish(c, &c->replicas, 1u << MOVE_ALL_REDUCE);
}

/* everyone waits for the slowest node */
static void set_factors(struct cost *c)
{
    const struct decision *d = c->decision;
    double compute = 1, nic = c->device.nic_factor;
    for (uint32_t i = 0; !c->runs && i < d->nnodes; i++) {
        const struct topo_node *node = &c->topo->nodes[d->nodes[i]];
        nic = cost_smaller(nic, node->nic_factor);
        compute = cost_smaller(compute, node->compute_factor);
    }
    if (c->runs && d->nnodes) {
        nic = cost_smaller(nic, c->runs->nic_factor[d->nnodes - 1]);
        compute = cost_smaller(compute, c->runs->compute_factor[d->nnodes - 1]);
    }
    c->device.nic_factor = nic;
    c->device.compute_factor = compute;
}

const struct profile *cost_buffers(const struct job *job)
{
    return job->wishes.emitted ? job->wishes.emitted : job->wishes.profile;
}

static void init(struct arena *a, struct cost *c, const struct job *job, const struct topo *topo,
                 const struct decision *d, const struct mesh_runs *runs)
{
    struct cost_group *group = ARENA_ARRAY(a, struct cost_group, 1u << NAXES);
    *c = (struct cost){.job = job,
                       .profile = job->wishes.profile,
                       .buffers = cost_buffers(job),
                       .topo = topo,
                       .type = &topo->types[d->type],
                       .decision = d,
                       .group = group,
                       .runs = runs};
    cost_device_init(c);
    c->crowd = cost_crowd(c);
    set_factors(c);
    cost_net_init(c);
    const uint32_t size[NAXES] = {[AXIS_TP] = d->tp, [AXIS_CP] = d->cp, [AXIS_DP] = d->dp, [AXIS_PP] = d->pp};
    c->mesh = mesh_new(size, d->order);
    uint32_t tp = AXIS_BIT(AXIS_TP), cp = AXIS_BIT(AXIS_CP), dp = AXIS_BIT(AXIS_DP);
    for (uint32_t mask = 1; mask <= AXES_WORLD; mask++)
        if (!runs || mask == tp || mask == cp || mask == (dp | cp) || mask == AXES_WORLD)
            group[mask] = mesh_cost_group(c, &c->mesh, mask);
    if (runs)
        group[dp] = d->cp == 1 ? group[dp | cp] : mesh_cost_group(c, &c->mesh, dp);
    c->tie = mesh_cost_group(c, &c->mesh, GROUP_TIE);
    c->next = next_group(c);
    c->next_level = c->next.level;
    cost_set_shard(c);
    c->ep = cost_expert_group(c, d->ep, d->etp);
    cost_split_experts(c);
}

void cost_init(struct arena *a, struct cost *c, const struct job *job, const struct topo *topo,
               const struct decision *d, const struct mesh_runs *runs, struct cost_products *products,
               struct moments_pairs *pairs)
{
    init(a, c, job, topo, d, runs);
    c->products = products;
    c->pairs = pairs;
}

struct cost *cost_new(struct arena *a, const struct job *job, const struct topo *topo, const struct decision *d)
{
    struct cost *c = ARENA_NEW(a, struct cost);
    init(a, c, job, topo, d, NULL);
    struct mesh m = decision_mesh(job, d);
    if (m.ndigits == NAXES)
        return c;
    struct cost_group *digits = ARENA_ARRAY(a, struct cost_group, 1u << NDIGITS);
    for (uint32_t mask = 1; mask < 1u << NDIGITS; mask++)
        if (!(mask & ~m.dim[MESH_WORLD]))
            digits[mask] = mesh_cost_group(c, &m, mask);
    c->digits = digits;
    return c;
}
