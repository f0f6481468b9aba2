/* Brute force for order and races; see oracle.h.  Quadratic in instructions of all ranks, for plans of a few
 * thousand. */

#include "tests/compiler/verify/oracle.h"

#include <stdlib.h>
#include <string.h>

struct graph {
    const struct plan *plan;
    bool evaluation;
    uint32_t nranks, n, words;
    uint32_t *first;  /* first node of a rank */
    uint32_t *event;  /* node -> the event it takes part in: the smallest node of its rendezvous */
    uint64_t *before; /* [event * words]: bits of events that happen before it */
};

static const struct program *program_of(const struct graph *g, uint32_t rank)
{
    uint32_t role = g->plan->ranks->ranks[rank].role;
    return g->evaluation ? g->plan->eval[role] : g->plan->train[role];
}

static uint64_t slot_of(const struct graph *g, uint32_t rank, uint32_t insn, bool *p2p, bool *collective)
{
    const struct program *p = program_of(g, rank);
    const struct isa_info *info = isa_info(p->insns[insn].op);
    *p2p = info->unit == UNIT_P2P;
    *collective = info->unit == UNIT_COLLECTIVE;
    for (uint32_t k = 0; k < info->nattrs; k++)
        if (info->attr[k].kind == ATTR_PEER || info->attr[k].kind == ATTR_GROUP)
            return g->plan->ranks
                ->values[g->plan->ranks->ranks[rank].slot + p->attrs[p->insns[insn].attr + k].slot];
    return 0;
}

/* the k-th instruction of a rank that meets the same partner in the same way; NONE */
static uint32_t find_partner(const struct graph *g, uint32_t rank, enum op op, uint8_t queue, uint64_t value,
                             uint32_t k)
{
    const struct program *p = program_of(g, rank);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        bool p2p, collective;
        uint64_t v = slot_of(g, rank, i, &p2p, &collective);
        bool alike =
            op == OP_SEND || op == OP_RECV ? p->insns[i].op == op : collective && p->insns[i].queue == queue;
        if (alike && v == value && k-- == 0)
            return i;
    }
    return NONE;
}

static const char *meet(struct arena *a, struct graph *g, uint32_t rank, uint32_t insn)
{
    const struct program *p = program_of(g, rank);
    bool p2p, collective;
    uint64_t value = slot_of(g, rank, insn, &p2p, &collective);
    uint32_t k = 0;
    for (uint32_t i = 0; i < insn; i++) {
        bool x, y;
        uint64_t v = slot_of(g, rank, i, &x, &y);
        k += p2p ? p->insns[i].op == p->insns[insn].op && v == value
                 : y && p->insns[i].queue == p->insns[insn].queue && v == value;
    }
    uint32_t *event = &g->event[g->first[rank] + insn];
    if (p2p) {
        uint32_t other =
            find_partner(g, (uint32_t)value, p->insns[insn].op == OP_SEND ? OP_RECV : OP_SEND, 0, rank, k);
        if (other == NONE)
            return arena_printf(a, "rank %u instruction %u has no partner", rank, insn);
        uint32_t node = g->first[value] + other;
        *event = node < *event ? node : *event;
    } else if (collective) {
        const struct group *group = &g->plan->ranks->groups[value];
        for (uint32_t m = 0; m < group_size(group); m++) {
            uint32_t r = group_rank(group, m),
                     other = find_partner(g, r, OP_ALL_REDUCE, p->insns[insn].queue, value, k);
            if (other == NONE)
                return arena_printf(a, "rank %u instruction %u: member %u does not come", rank, insn, r);
            *event = g->first[r] + other < *event ? g->first[r] + other : *event;
        }
    }
    return NULL;
}

static bool has(const struct graph *g, uint32_t event, uint32_t other)
{
    return g->before[(size_t)event * g->words + other / 64] >> other % 64 & 1;
}

/* x before y, with all that is before x */
static bool add_before(struct graph *g, uint32_t x, uint32_t y)
{
    bool changed = false;
    uint64_t *to = &g->before[(size_t)y * g->words];
    const uint64_t *from = &g->before[(size_t)x * g->words];
    for (uint32_t w = 0; w < g->words; w++) {
        uint64_t bits = to[w] | from[w] | (w == x / 64 ? (uint64_t)1 << x % 64 : 0);
        changed |= bits != to[w];
        to[w] = bits;
    }
    return changed;
}

static bool relax_rank(struct graph *g, uint32_t rank)
{
    const struct program *p = program_of(g, rank);
    uint32_t last[NQUEUES], *at[NQUEUES], count[NQUEUES] = {0};
    bool changed = false;
    memset(last, 0xff, sizeof last);
    for (int q = 0; q < NQUEUES; q++)
        at[q] = calloc(p->ninsns + 1u, sizeof *at[q]);
    for (uint32_t i = 0; i < p->ninsns; i++)
        at[p->insns[i].queue][count[p->insns[i].queue]++] = i;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *in = &p->insns[i];
        uint32_t me = g->event[g->first[rank] + i];
        if (last[in->queue] != NONE)
            changed |= add_before(g, g->event[g->first[rank] + last[in->queue]], me);
        for (uint32_t w = 0; w < in->nwaits; w++) {
            const struct wait *x = &p->waits[in->wait + w];
            changed |= add_before(g, g->event[g->first[rank] + at[x->queue][x->position]], me);
        }
        last[in->queue] = i;
    }
    for (int q = 0; q < NQUEUES; q++)
        free(at[q]);
    return changed;
}

struct bytes {
    uint64_t at, rows, width, pitch;
    uint32_t insn;
    bool writes;
};

static bool touch(const struct bytes *x, const struct bytes *y)
{
    if (x->at >= y->at + (y->rows - 1) * y->pitch + y->width ||
        y->at >= x->at + (x->rows - 1) * x->pitch + x->width)
        return false;
    for (uint64_t i = 0; i < x->rows; i++)
        for (uint64_t j = 0; j < y->rows; j++) {
            uint64_t s = x->at + i * x->pitch, t = y->at + j * y->pitch;
            if (s < t + y->width && t < s + x->width)
                return true;
        }
    return false;
}

static const char *races(struct arena *a, const struct graph *g, uint32_t rank)
{
    const struct program *p = program_of(g, rank);
    struct bytes *all = calloc(p->noperands + 1u, sizeof *all);
    const char *why = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->ninsns; i++)
        for (uint32_t k = 0; k < isa_info(p->insns[i].op)->noperands; k++) {
            const struct operand *o = &p->operands[p->insns[i].operand + k];
            uint64_t size = isa_dtype_bytes((enum dtype)o->dtype), slot = 0;
            if (o->buffer == NONE)
                continue;
            if (o->slot != UINT16_MAX)
                slot = g->plan->ranks->values[g->plan->ranks->ranks[rank].slot + o->slot] * o->slot_stride;
            all[n++] = (struct bytes){program_operand_offset(p, o) + slot,
                                      o->rows,
                                      o->cols * size,
                                      o->ld * size,
                                      i,
                                      o->mark != MARK_READ};
        }
    for (uint32_t x = 0; x < n && !why; x++)
        for (uint32_t y = 0; y < x && !why; y++) {
            if ((!all[x].writes && !all[y].writes) || all[x].insn == all[y].insn || !touch(&all[x], &all[y]))
                continue;
            uint32_t e = g->event[g->first[rank] + all[x].insn], f = g->event[g->first[rank] + all[y].insn];
            if (!has(g, e, f) && !has(g, f, e))
                why = arena_printf(a, "rank %u: instructions %u and %u race", rank, all[y].insn, all[x].insn);
        }
    free(all);
    return why;
}

const char *oracle_order(struct arena *a, const struct plan *p, bool evaluation)
{
    struct graph g = {.plan = p, .evaluation = evaluation, .nranks = p->ranks->nranks};
    const char *why = NULL;
    g.first = calloc(g.nranks + 1u, sizeof *g.first);
    for (uint32_t r = 0; r < g.nranks; r++) {
        g.first[r] = g.n;
        g.n += program_of(&g, r)->ninsns;
    }
    g.words = g.n / 64 + 1;
    g.event = calloc(g.n + 1u, sizeof *g.event);
    g.before = calloc((size_t)g.n * g.words + 1, sizeof *g.before);
    for (uint32_t i = 0; i < g.n; i++)
        g.event[i] = i;
    for (uint32_t r = 0; r < g.nranks && !why; r++)
        for (uint32_t i = 0; i < program_of(&g, r)->ninsns && !why; i++)
            why = meet(a, &g, r, i);
    for (bool changed = !why; changed;) {
        changed = false;
        for (uint32_t r = 0; r < g.nranks; r++)
            changed |= relax_rank(&g, r);
    }
    for (uint32_t i = 0; i < g.n && !why; i++)
        if (g.event[i] == i && has(&g, i, i))
            why = arena_printf(a, "event %u waits for itself", i);
    for (uint32_t r = 0; r < g.nranks && !why; r++)
        why = races(a, &g, r);
    free(g.first);
    free(g.event);
    free(g.before);
    return why;
}
