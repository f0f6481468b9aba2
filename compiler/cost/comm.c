/* Seconds of transfers and collectives: of the fastest of a group's ways for the size, or by its measured curve.
 *
 * The ways are linear in bytes and sqrt(bytes), tuned per group (nccl.c); a call takes the fastest of at most eight.
 * Measured curves of the cluster file replace all of this for their group: time is interpolated in log(size), and
 * extrapolated with the last point's bandwidth above and the first point's time below.
 *
 * Contention that is known beforehand is included: the groups of one mask share links, NICs and uplinks evenly.
 * Transfers that overlap in time on one NIC (gradients and a pipeline's activations) are for the caller to add up,
 * with cost_wire_s(). */

#include "compiler/cost/cost_private.h"
#include "compiler/support/real.h"
#include "compiler/support/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    double x = real_log(bytes / p[i - 1].bytes) / real_log(p[i].bytes / p[i - 1].bytes);
    return p[i - 1].seconds + x * (p[i].seconds - p[i - 1].seconds);
}

static enum cost_move move_of(enum op op)
{
    if (op == OP_ALL_REDUCE)
        return MOVE_ALL_REDUCE;
    if (op == OP_ALL_GATHER || op == OP_REDUCE_SCATTER)
        return MOVE_GATHER;
    return op == OP_ALL_TO_ALL ? MOVE_EXCHANGE : MOVE_BROADCAST;
}

/* The fastest line for a size; NULL: the group was not tuned for the move. */
static const struct cost_line *fastest(const struct cost_group *g, enum cost_move move, double bytes, double *seconds)
{
    const struct cost_line *best = NULL;
    double root = sqrt(bytes);
    for (uint32_t i = g->first[move]; i < g->first[move + 1]; i++) {
        const struct cost_line *x = &g->lines[i];
        double s = (double)x->start_s + (double)x->per_byte_s * bytes + (double)x->root_s * root;
        if (!best || s < *seconds) {
            best = x;
            *seconds = s;
        }
    }
    return best;
}

/* The same for any group of several members, tuning it if needed. */
static struct cost_line choose(const struct cost *c, const struct cost_group *g, enum cost_move move, double bytes,
                               double *seconds)
{
    const struct cost_line *line = fastest(g, move, bytes, seconds);
    if (line)
        return *line;
    struct cost_group tuned = *g;
    cost_tune(c, &tuned, 1u << move);
    return *fastest(&tuned, move, bytes, seconds);
}

static const struct topo_measured *curve_of(const struct cost *c, const struct cost_group *g, enum op op)
{
    uint32_t slot = cost_curve_slot(op);
    return slot < 6 && g->curve[slot] ? &c->topo->measured[g->curve[slot] - 1] : NULL;
}

/* The share of a group's seconds for which one of its ranks occupies a core, where the ranks outnumber the cores. */
static double turns(const struct cost *c, const struct cost_group *g)
{
    return c->type->cores && g->n > c->type->cores ? (double)c->type->cores / g->n : 1;
}

double cost_group_s(const struct cost *c, enum op op, double bytes, const struct cost_group *g)
{
    if (g->n < 2)
        return 0;
    const struct topo_measured *t = c->topo->nmeasured ? curve_of(c, g, op) : NULL;
    if (t)
        return turns(c, g) * curve_s(t, bytes);
    double seconds;
    enum cost_move move = move_of(op);
    if (!fastest(g, move, bytes, &seconds))
        choose(c, g, move, bytes, &seconds);
    return turns(c, g) * seconds;
}

double cost_collective_s(const struct cost *c, enum op op, double bytes, uint32_t mask)
{
    return cost_group_s(c, op, bytes, mask & GROUP_TIE ? &c->tie : &c->group[mask & AXES_WORLD]);
}

double cost_digits_s(const struct cost *c, enum op op, double bytes, uint32_t mask)
{
    if (!c->digits || mask & GROUP_TIE)
        return cost_collective_s(c, op, bytes, mask);
    return cost_group_s(c, op, bytes, &c->digits[mask & ((1u << NDIGITS) - 1)]);
}

double cost_shift_s(const struct cost *c, double bytes, uint32_t mask)
{
    double n = c->digits ? c->digits[mask & ((1u << NDIGITS) - 1)].n : c->group[mask & AXES_WORLD].n;
    return n > 1 ? cost_digits_s(c, OP_ALL_GATHER, bytes * n, mask) / (n - 1) : 0;
}

double cost_transfer_s(const struct cost *c, double bytes)
{
    return cost_group_s(c, OP_SEND, bytes, &c->next);
}

double cost_wire_s(const struct cost *c, enum op op, double bytes, const struct cost_group *g)
{
    if (g->n < 2 || g->level == 0)
        return 0;
    double n = g->n, together = g->below[0], moved = 0;
    switch (move_of(op)) {
    case MOVE_ALL_REDUCE:
        moved = 2 * (n - 1) / n / together;
        break;
    case MOVE_GATHER:
        moved = (n - 1) / n / together;
        break;
    case MOVE_BROADCAST:
        moved = 1 / together;
        break;
    case MOVE_EXCHANGE:
        moved = (n - together) / n;
        break;
    case NMOVES:
        break;
    }
    return moved * bytes / c->net.bytes_s[1];
}

double cost_dispatch_s(const struct cost *c, double bytes, uint32_t copies, uint32_t groups, uint32_t pick,
                       const struct cost_group *g, bool once_per_node)
{
    if (g->n < 2)
        return 0;
    if (!once_per_node)
        return cost_group_s(c, OP_ALL_TO_ALL, bytes * copies, g);
    if (g->level == COST_FLOOR)
        return cost_floor_dispatch_s(c, bytes, copies, groups, pick, g->n);
    double n = g->n, together = g->below[0], nodes = g->level ? ceil(n / together) : 1;
    double inside = model_sets_met(n, copies, groups, pick) * (together - 1) / together;
    double across = nodes > 1 ? model_sets_met(nodes, copies, groups, pick) * (nodes - 1) / nodes : 0;
    double link_s = together > 1 ? bytes * inside / cost_link_bytes_s(c, g, true) : 0;
    double net_s = g->level ? bytes * across / (c->net.bytes_s[g->level] * DIRECT_NET) : 0;
    /* forwarding inside a node overlaps the arrival of the next tokens; a tenth of the shorter part stays exposed
     * (fitted) */
    return 50e-6 + fmax(link_s, net_s) + 0.1 * fmin(link_s, net_s);
}

/* The factor of bus bandwidth as nccl-tests defines it. */
static double bus_factor(enum cost_move move, double n)
{
    return move == MOVE_ALL_REDUCE ? 2 * (n - 1) / n : move == MOVE_BROADCAST ? 1 : (n - 1) / n;
}

void cost_collective_why(const struct cost *c, enum op op, double bytes, const struct cost_group *g, char *text,
                         size_t size)
{
    if (g->n < 2) {
        snprintf(text, size, "one member");
        return;
    }
    enum cost_move move = move_of(op);
    const struct topo_measured *t = c->topo->nmeasured ? curve_of(c, g, op) : NULL;
    double seconds = cost_group_s(c, op, bytes, g), bus = bytes * bus_factor(move, g->n) / seconds / 1e9;
    const char *where = topo_level_name(c->topo, g->level);
    if (t) {
        bool outside = bytes < t->points[0].bytes || bytes > t->points[t->npoints - 1].bytes;
        snprintf(text, size, "curve%s%s measured%s over %u, %s: %.0fGB/s", *t->date ? " of " : "", t->date,
                 outside ? ", continued beyond its points," : "", g->n, where, bus);
        return;
    }
    struct cost_line line = choose(c, g, move, bytes, &seconds);
    int used = snprintf(text, size, "%s over %u", op == OP_SEND || op == OP_RECV ? "send" : cost_way_name(line.way),
                        g->n);
    if (used >= 0 && (size_t)used < size && g->level)
        used += snprintf(text + used, size - (size_t)used, ", %u a domain", g->below[0]);
    if (used >= 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, ", %s: %.0fGB/s, of %s %s is latency", where, bus,
                 units_show_seconds(seconds).s, units_show_seconds((double)line.start_s).s);
}
