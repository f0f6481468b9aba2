/* Seconds of transfers and collectives: alpha-beta on every network level that a group crosses.
 *
 * Level by level, as a hierarchical ring does it: with q members together below a level and n such sets joined by it,
 * each rank moves (n - 1)/n of bytes/q over that level (twice for all-reduce), at the level's bytes/s per GPU times the
 * share that NCCL reaches; all-to-all sends every part directly.  Shares: NVLink 0.80 (365-370 GB/s of 450 on H100,
 * 235 of 300 on A100), NVSwitch multicast all-reduce 1.3 times that, networks 0.90.  Latency is a start plus a hop per
 * ring step within a domain and per doubling across networks; small messages on 8 GPUs then take 30-50 us, as measured.
 * Measured curves of the cluster file replace all of it for their group: time is interpolated in log(size), and
 * continued at the last point's bandwidth above and at the first point's time below. */

#include "compiler/cost/cost_private.h"

#include <math.h>
#include <string.h>

/* beyond: between GPUs of a node that its scale-up network does not join */
static double level_bytes_s(const struct cost *c, uint32_t level, bool beyond)
{
    const struct topo_node_type *t = c->type;
    double bytes_s = topo_level_bytes_s(c->topo, c->decision->type, level) * (level ? c->device.nic_factor : 1);
    if (level == 0 && (beyond || t->scale_up.kind == SCALE_UP_NONE))
        bytes_s = t->host_bytes_s > 0 ? t->host_bytes_s : t->gpu.memory_bytes_s / 4;
    if (bytes_s <= 0)
        bytes_s = level ? 1e9 : 2e9;
    return bytes_s * (level ? 0.90 : 0.80);
}

/* one step between two members: topo gives NCCL's LL128 hop; across networks large messages take its Simple protocol,
 * which needs about twice as long */
static double hop_s(const struct cost *c, uint32_t level)
{
    return (level ? 2 : 1) * topo_level_latency_s(c->topo, c->decision->type, level);
}

static double start_s(const struct cost *c)
{
    return c->type->gpu.sm ? 12e-6 : 3e-6;
}

static const char *measured_name(enum op op)
{
    if (op == OP_ALL_REDUCE)
        return "all_reduce";
    if (op == OP_ALL_GATHER)
        return "all_gather";
    if (op == OP_REDUCE_SCATTER)
        return "reduce_scatter";
    if (op == OP_ALL_TO_ALL)
        return "all_to_all";
    return op == OP_BROADCAST ? "broadcast" : "send_recv";
}

static double curve_s(const struct topo_measured *t, double bytes)
{
    const struct topo_point *p = t->points;
    uint32_t n = t->npoints;
    if (bytes <= p[0].bytes)
        return p[0].seconds;
    if (bytes >= p[n - 1].bytes)
        return p[n - 1].seconds * bytes / p[n - 1].bytes;
    uint32_t i = 1;
    while (bytes > p[i].bytes)
        i++;
    double x = log(bytes / p[i - 1].bytes) / log(p[i].bytes / p[i - 1].bytes);
    return p[i - 1].seconds + x * (p[i].seconds - p[i - 1].seconds);
}

/* the curve for exactly this group; NULL = none */
static const struct topo_measured *measured_curve(const struct cost *c, enum op op, uint32_t ranks, uint32_t per_node,
                                                  uint32_t level)
{
    for (uint32_t i = 0; i < c->topo->nmeasured; i++) {
        const struct topo_measured *t = &c->topo->measured[i];
        if (strcmp(t->kind, measured_name(op)) || t->npoints == 0 || t->ranks != ranks)
            continue;
        if ((t->per_node && t->per_node != per_node) || (t->type && strcmp(t->type, c->type->id)))
            continue;
        if (!t->tier || !strcmp(t->tier, topo_level_name(c->topo, level)))
            return t;
    }
    return NULL;
}

/* members of the group on one node: what a curve calls per-node */
static uint32_t members_per_node(const struct cost *c, const struct cost_group *g)
{
    uint32_t together = g->below[0], per_node = c->type->gpus;
    return together < per_node ? together : per_node;
}

double cost_group_s(const struct cost *c, enum op op, double bytes, const struct cost_group *g)
{
    if (g->n < 2)
        return 0;
    const struct topo_measured *t = measured_curve(c, op, g->n, members_per_node(c, g), g->level);
    if (t)
        return curve_s(t, bytes);
    double seconds = start_s(c), n = g->n, below = 1;
    double passes = op == OP_ALL_REDUCE ? 2 : 1;
    for (uint32_t level = 0; level <= g->level && level < COST_LEVELS; level++) {
        double together = g->below[level], sets = together / below;
        if (together <= below)
            continue;
        double bytes_s = level_bytes_s(c, level, g->beyond), moved = passes * bytes / below * (sets - 1) / sets;
        if (op == OP_ALL_TO_ALL)
            moved = bytes * (together - below) / n;
        else if (op == OP_BROADCAST)
            moved = bytes / below;
        if (op == OP_ALL_REDUCE && level == 0 && c->type->scale_up.multicast && together >= 4)
            bytes_s *= 1.3;
        double steps = level ? 2 * ceil(log2(sets)) : sets - 1;
        seconds += moved / bytes_s + passes * steps * hop_s(c, level);
        below = together;
    }
    return seconds;
}

double cost_collective_s(const struct cost *c, enum op op, double bytes, uint32_t mask)
{
    return cost_group_s(c, op, bytes, mask & GROUP_TIE ? &c->tie : &c->group[mask & AXES_WORLD]);
}

double cost_transfer_s(const struct cost *c, double bytes)
{
    const struct topo_measured *t = measured_curve(c, OP_SEND, 2, c->next_level ? 1 : 2, c->next_level);
    if (t)
        return curve_s(t, bytes);
    return start_s(c) / 2 + hop_s(c, c->next_level) + bytes / level_bytes_s(c, c->next_level, false);
}

/* does a group from rank 0 to rank `last` leave a domain of bridged GPUs? */
static bool beyond_domain(const struct cost *c, uint32_t last)
{
    uint32_t domain = c->type->scale_up.gpus;
    return domain && domain < c->type->gpus && last >= domain;
}

/* n ranks, `stride` apart, from rank 0: experts and ZeRO shards, which are runs of the mesh's inner axes */
struct cost_group cost_run_group(const struct cost *c, uint32_t n, uint32_t stride)
{
    struct cost_group g = {.n = n};
    const struct decision *d = c->decision;
    uint32_t per_node = c->type->gpus;
    for (uint32_t level = 0; level < COST_LEVELS; level++) {
        uint32_t low = 1, high = n;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (mesh_level(c->topo, d->nodes, per_node, 0, middle * stride) <= level)
                low = middle + 1;
            else
                high = middle;
        }
        g.below[level] = low;
        g.level = level;
        if (low == n)
            break;
    }
    g.beyond = beyond_domain(c, (g.below[0] - 1) * stride);
    return g;
}

static struct cost_group mesh_cost_group(const struct cost *c, uint32_t mask)
{
    const struct decision *d = c->decision;
    struct cost_group g = {.n = mesh_group_size(&c->mesh, mask)};
    if (g.n < 2)
        return g;
    g.level = mesh_group_level(&c->mesh, c->topo, d->nodes, c->type->gpus, mask);
    g.level = g.level < COST_LEVELS ? g.level : COST_LEVELS - 1;
    for (uint32_t level = 0; level < g.level; level++)
        g.below[level] = mesh_group_below(&c->mesh, c->topo, d->nodes, c->type->gpus, mask, level);
    g.below[g.level] = g.n;
    struct group members = mesh_group(&c->mesh, 0, mask);
    g.beyond = beyond_domain(c, group_rank(&members, g.below[0] - 1));
    return g;
}

void cost_set_shard(struct cost *c)
{
    const struct decision *d = c->decision;
    const struct cost_group *all = &c->group[AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP)];
    c->replicas = *all;
    if (d->shard == d->dp * d->cp) {
        c->shard = *all;
        c->replicas = (struct cost_group){.n = 1};
        return;
    }
    c->shard = cost_run_group(c, d->shard, d->order[0] == AXIS_TP ? d->tp : 1);
    c->replicas.n = d->dp * d->cp / d->shard;
    for (uint32_t level = 0; level < COST_LEVELS; level++) { /* what is left above the shard groups */
        uint32_t sets = c->replicas.below[level] / d->shard;
        c->replicas.below[level] = sets ? sets : 1;
    }
}

void cost_init(struct cost *c, const struct job *job, const struct topo *topo, const struct decision *d, bool all_masks)
{
    *c = (struct cost){.job = job, .profile = job->wishes.profile, .topo = topo, .type = &topo->types[d->type], .decision = d};
    cost_device_init(c);
    c->device.nic_factor = 1;
    double compute = 1;
    for (uint32_t i = 0; i < d->nnodes; i++) { /* everyone waits for the slowest */
        const struct topo_node *node = &topo->nodes[d->nodes[i]];
        c->device.nic_factor = node->nic_factor < c->device.nic_factor ? node->nic_factor : c->device.nic_factor;
        compute = node->compute_factor < compute ? node->compute_factor : compute;
    }
    for (int i = 0; i < NDTYPES; i++)
        c->device.flop_s[i] *= compute;
    const uint32_t size[NAXES] = {[AXIS_TP] = d->tp, [AXIS_CP] = d->cp, [AXIS_DP] = d->dp, [AXIS_PP] = d->pp};
    c->mesh = mesh_new(size, d->order);
    uint32_t tp = AXIS_BIT(AXIS_TP), cp = AXIS_BIT(AXIS_CP), dp = AXIS_BIT(AXIS_DP);
    for (uint32_t mask = 1; mask <= AXES_WORLD; mask++)
        if (all_masks || mask == tp || mask == cp || mask == (dp | cp) || mask == AXES_WORLD)
            c->group[mask] = mesh_cost_group(c, mask);
    if (!all_masks)
        c->group[dp] = d->cp == 1 ? c->group[dp | cp] : mesh_cost_group(c, dp);
    c->tie = mesh_cost_group(c, GROUP_TIE);
    c->next_level = mesh_next_stage_level(&c->mesh, topo, d->nodes, c->type->gpus);
    if (c->next_level >= COST_LEVELS)
        c->next_level = COST_LEVELS - 1;
    cost_set_shard(c);
    c->ep = cost_run_group(c, d->ep, d->etp);
}

struct cost *cost_new(struct arena *a, const struct job *job, const struct topo *topo, const struct decision *d)
{
    struct cost *c = ARENA_NEW(a, struct cost);
    cost_init(c, job, topo, d, true);
    return c;
}
