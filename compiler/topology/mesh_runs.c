/* Levels of groups from the ends of levels.
 *
 * The groups of a mask begin at ranks that are a sum of digits outside the mask, and each reaches as far from its first
 * rank.  One crosses an end of a level if the last beginning before the end is within reach of it: a division per
 * digit. Beginnings repeat with the outermost digit that the mask fixes and regular ends repeat too, so only ends that
 * are different to both are looked at.
 *
 * Levels must nest, which is looked up once per list; where they do not, mesh.c's walk over all groups answers. */

#include "compiler/topology/mesh_runs.h"

#include "compiler/support/vec.h"

static struct mesh_ends find_ends(struct arena *a, const struct mesh_runs *x, const uint32_t *apart, uint32_t level)
{
    VEC(uint32_t) at = {0};
    struct mesh_ends ends = {0};
    for (uint32_t i = 1; i < x->nnodes; i++)
        if (apart[i] > level)
            vec_push(a, &at, i);
    ends.n = (uint32_t)at.n;
    ends.at = at.at;
    ends.step = at.n ? at.at[0] : 0;
    for (uint32_t i = 0; i < ends.n; i++)
        if (ends.at[i] != (uint64_t)ends.step * (i + 1))
            ends.step = 0;
    return ends;
}

/* are the first and the last node of every run of a level within it? */
static bool runs_hold(const struct mesh_runs *x, uint32_t level)
{
    const struct mesh_ends *e = &x->ends[level];
    for (uint32_t i = 0; i <= e->n; i++) {
        uint32_t first = i ? e->at[i - 1] : 0, end = i < e->n ? e->at[i] : x->nnodes;
        if (topo_level(x->topo, x->nodes[first], x->nodes[end - 1]) > level)
            return false;
    }
    return true;
}

static void find_factors(struct arena *a, struct mesh_runs *x)
{
    double *compute = ARENA_ARRAY(a, double, x->nnodes), *nic = ARENA_ARRAY(a, double, x->nnodes);
    for (uint32_t i = 0; i < x->nnodes; i++) {
        const struct topo_node *node = &x->topo->nodes[x->nodes[i]];
        compute[i] = i && compute[i - 1] < node->compute_factor ? compute[i - 1] : node->compute_factor;
        nic[i] = i && nic[i - 1] < node->nic_factor ? nic[i - 1] : node->nic_factor;
    }
    x->compute_factor = compute;
    x->nic_factor = nic;
}

struct mesh_runs *mesh_runs_new(struct arena *a, const struct topo *t, const uint32_t *nodes, uint32_t n,
                                uint32_t gpus_per_node)
{
    struct mesh_runs *x = ARENA_NEW(a, struct mesh_runs);
    *x = (struct mesh_runs){.topo = t, .nodes = nodes, .nnodes = n, .gpus_per_node = gpus_per_node, .nested = true};
    uint32_t *apart = ARENA_ARRAY(a, uint32_t, n); /* of a node and the one before it */
    for (uint32_t i = 1; i < n; i++) {
        apart[i] = topo_level(t, nodes[i - 1], nodes[i]);
        x->nlevels = apart[i] > x->nlevels ? apart[i] : x->nlevels;
    }
    struct mesh_ends *ends = ARENA_ARRAY(a, struct mesh_ends, x->nlevels + 1);
    x->ends = ends;
    for (uint32_t level = 0; level <= x->nlevels; level++) {
        ends[level] = find_ends(a, x, apart, level);
        x->nested = x->nested && runs_hold(x, level);
    }
    find_factors(a, x);
    return x;
}

/* Where groups begin: sums of digits, of digit i any value below values[i]; the same again every `period` ranks. */
struct starts {
    const struct mesh *m;
    uint32_t values[NDIGITS];
    uint64_t period;
};

static struct starts starts_new(const struct mesh *m)
{
    struct starts s = {.m = m, .period = 1};
    for (uint32_t i = 0; i < NDIGITS; i++)
        s.values[i] = m->size[i];
    return s;
}

static void limit_digit(struct starts *s, uint32_t digit, uint32_t values)
{
    uint64_t end = (uint64_t)s->m->stride[digit] * s->m->size[digit];
    if (values < s->m->size[digit] && end > s->period)
        s->period = end;
    s->values[digit] = values;
}

/* the last start at or before a rank */
static uint64_t last_start(const struct starts *s, uint64_t rank)
{
    const struct mesh *m = s->m;
    uint64_t start = 0;
    bool below = false; /* already, so that the digits that are left may be at their most */
    for (uint32_t i = m->ndigits; i-- > 0;) {
        uint32_t digit = m->order[i];
        uint64_t most = s->values[digit] - 1, own = below ? most : rank / m->stride[digit];
        if (own > most) {
            own = most;
            below = true;
        }
        start += own * m->stride[digit];
        rank -= below ? 0 : own * m->stride[digit];
    }
    return start;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool crosses(const struct mesh_runs *x, const struct starts *s, uint64_t distance, const struct mesh_ends *e)
{
    uint64_t n = e->n, per_node = x->gpus_per_node;
    if (e->step) {
        uint64_t different = s->period / common_divisor(s->period, e->step * per_node);
        n = n < different ? n : different;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t end = e->at[i] * per_node;
        if (end >= s->m->nranks)
            return false;
        if (last_start(s, end - 1) + distance >= end)
            return true;
    }
    return false;
}

static uint32_t reach(const struct mesh_runs *x, const struct starts *s, uint64_t distance)
{
    uint32_t level = x->nlevels;
    while (distance && level > 0 && !crosses(x, s, distance, &x->ends[level - 1]))
        level--;
    return distance ? level : 0;
}

uint32_t mesh_runs_group_level(const struct mesh_runs *x, const struct mesh *m, uint32_t mask)
{
    if (!x->nested)
        return mesh_group_level(m, x->topo, x->nodes, x->gpus_per_node, mask);
    struct starts s = starts_new(m);
    struct group g = mesh_group(m, 0, mask); /* of a tie the outermost pair, within which the others are */
    uint64_t distance = 0;
    for (uint32_t i = 0; i < NAXES; i++)
        distance += (uint64_t)(g.n[i] - 1) * g.stride[i];
    for (uint32_t i = 0; i < m->ndigits; i++)
        if (mask & GROUP_TIE ? m->order[i] == AXIS_PP : (mask & AXIS_BIT(m->order[i])) != 0)
            limit_digit(&s, m->order[i], 1);
    return reach(x, &s, distance);
}

uint32_t mesh_runs_next_level(const struct mesh_runs *x, const struct mesh *m)
{
    if (m->size[AXIS_PP] < 2)
        return 0;
    if (!x->nested)
        return mesh_next_stage_level(m, x->topo, x->nodes, x->gpus_per_node);
    struct starts s = starts_new(m);
    limit_digit(&s, AXIS_PP, m->size[AXIS_PP] - 1);
    return reach(x, &s, m->stride[AXIS_PP]);
}
