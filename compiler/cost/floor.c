/* Lower bounds of transfers over all placements of a group, for the bounds of a search.
 *
 * Where the members of a group are follows from the mesh and its order of axes; before an order is chosen only their
 * number is known.  A floor has, for each way to communicate, the least start and the least slopes of any placement:
 * every number of members in a domain is tried, and above that level they are as close as the switches allow.  This
 * is a lower bound, because upper levels of a network are neither faster nor closer, unless a curve was measured:
 * then a floor costs nothing. */

#include "compiler/cost/cost_private.h"

#include <math.h>

/* The most members of a group that fit into a domain. */
static uint32_t most_together(const struct cost *c, uint32_t n)
{
    uint64_t domain = (uint64_t)c->type->gpus * c->type->scale_up.span;
    return domain && domain < n ? (uint32_t)domain : n;
}

/* A group with `together` of n members in a domain, and as many as possible below each switch; n = 0: there is no
 * such placement. */
static struct cost_group place(const struct cost *c, uint32_t n, uint32_t together)
{
    struct cost_group g = {.n = n, .below = {together}};
    for (uint32_t level = 1; level <= c->topo->ntiers && level < COST_LEVELS && g.below[g.level] < n; level++) {
        const struct topo_tier *t = &c->topo->tiers[level - 1];
        bool whole = t->group_of || level == c->topo->ntiers || level + 1 == COST_LEVELS || t->span >= n;
        uint64_t most = whole ? n : t->span * c->type->gpus;
        g.level = level;
        g.below[level] = most < together ? together : most < n ? (uint32_t)most : n;
    }
    if (g.below[g.level] < n)
        g.n = 0;
    return g;
}

static uint32_t count_places(const struct cost *c, uint32_t n)
{
    uint32_t bridged = c->type->scale_up.gpus;
    return most_together(c, n) * (bridged && bridged < c->type->gpus ? 2 : 1) + 1;
}

/* The i-th placement: every number of members together; the same with bridged GPUs that meet beyond their bridges;
 * and a group that is together where other groups cross the end of a domain. */
static struct cost_group nth_place(const struct cost *c, uint32_t n, uint32_t i)
{
    uint32_t most = most_together(c, n);
    if (i + 1 < count_places(c, n)) {
        struct cost_group g = place(c, n, i % most + 1);
        g.beyond = i >= most;
        return g;
    }
    bool crosses = n <= most && c->topo->ntiers;
    return (struct cost_group){.n = crosses ? n : 0, .level = 1, .below = {n, n}};
}

static void lower_line(struct cost_line *least, const struct cost_line *x)
{
    least->start_s = fminf(least->start_s, x->start_s);
    least->per_byte_s = fminf(least->per_byte_s, x->per_byte_s);
    least->root_s = fminf(least->root_s, x->root_s);
}

/* All moves together have fewer ways than COST_LINES. */
struct cost_group cost_floor_group(const struct cost *c, uint32_t n)
{
    enum { WAYS = 16 };
    struct cost_line least[NMOVES][WAYS];
    uint32_t known[NMOVES] = {0}; /* bits by way */
    if (n < 2 || c->topo->nmeasured)
        return (struct cost_group){.n = 1};
    for (uint32_t i = 0; i < count_places(c, n); i++) {
        struct cost_group g = nth_place(c, n, i);
        if (g.n < n)
            continue;
        cost_tune(c, &g, MOVES_ALL);
        for (uint32_t move = 0; move < NMOVES; move++)
            for (uint32_t k = g.first[move]; k < g.first[move + 1]; k++) {
                uint32_t way = g.lines[k].way % WAYS;
                if (known[move] & 1u << way)
                    lower_line(&least[move][way], &g.lines[k]);
                else
                    least[move][way] = g.lines[k];
                known[move] |= 1u << way;
            }
    }
    struct cost_group floor = {.n = n, .level = COST_FLOOR, .below = {most_together(c, n)}};
    uint32_t end = 0;
    for (uint32_t move = 0; move < NMOVES; move++) {
        floor.first[move] = end;
        for (uint32_t way = 0; way < WAYS && end < COST_LINES; way++)
            if (known[move] & 1u << way)
                floor.lines[end++] = least[move][way];
        if (floor.first[move] == end)
            return (struct cost_group){.n = 1}; /* one node too small for it: never asked for */
    }
    floor.first[NMOVES] = end;
    return floor;
}

double cost_floor_dispatch_s(const struct cost *c, double bytes, uint32_t copies, uint32_t groups, uint32_t pick,
                             uint32_t n)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < count_places(c, n); i++) {
        struct cost_group g = nth_place(c, n, i);
        if (g.n == n)
            least = cost_smaller(least, cost_dispatch_s(c, bytes, copies, groups, pick, &g, true));
    }
    return least;
}
