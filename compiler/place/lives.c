/* When the parts of a program are live: lives from what instructions touch, and their intervals on the compute queue's clock.
 *
 * Backwards over the accesses of a part goes the set of its cells that are still to be read: what an access covers leaves it,
 * what it reads joins it.  Where the set is empty in front of an access, a life begins with that.  Program order will do for
 * that, since accesses that it matters for are ordered (no race).
 *
 * Clocks: before an instruction is the number of compute instructions known to be done when it starts, by its queue's order and
 * by waits (Fidge 1988, Mattern 1989); after it is the first compute instruction that knows it to be done.
 *
 * What a step's check needs outlives the next step's early part: it has a life there too.
 *
 * Cost: linear in instructions times queues, and in operands. */

#include "compiler/place/place_private.h"

#include <string.h>

/* done: by queue.  before, after: on the clock of the compute queue. */
struct clocks {
    uint32_t (*done)[NQUEUES], *before, *after;
    uint32_t *position, count[NQUEUES];
};

static struct clocks find_clocks(struct arena *a, const struct program *p)
{
    struct clocks c = {arena_grow(a, NULL, 0, p->ninsns + 1u, sizeof *c.done), ARENA_ARRAY(a, uint32_t, p->ninsns + 1u),
                       ARENA_ARRAY(a, uint32_t, p->ninsns + 1u), ARENA_ARRAY(a, uint32_t, p->ninsns + 1u), {0}};
    uint32_t *at[NQUEUES], seen[NQUEUES] = {0}, known[NQUEUES] = {0};
    program_positions(p, c.position, c.count);
    for (uint32_t q = 0; q < NQUEUES; q++)
        at[q] = ARENA_ARRAY(a, uint32_t, c.count[q] + 1u);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        uint32_t own = n->queue, *now = c.done[i];
        if (seen[own])
            memcpy(now, c.done[at[own][seen[own] - 1]], sizeof *c.done);
        else
            memset(now, 0, sizeof *c.done);
        now[own] = seen[own];
        for (uint32_t w = n->wait; w < n->wait + n->nwaits; w++) {
            uint32_t from = p->waits[w].queue, done = p->waits[w].position + 1;
            const uint32_t *other = c.done[at[from][done - 1]];
            for (uint32_t q = 0; q < NQUEUES; q++)
                now[q] = other[q] > now[q] ? other[q] : now[q];
            now[from] = done > now[from] ? done : now[from];
        }
        c.before[i] = now[QUEUE_COMPUTE];
        c.after[i] = own == QUEUE_COMPUTE ? c.position[i] : c.count[QUEUE_COMPUTE];
        for (uint32_t q = 0; own == QUEUE_COMPUTE && q < NQUEUES; q++)
            for (; q != own && known[q] < now[q]; known[q]++)
                c.after[at[q][known[q]]] = c.position[i];
        at[own][seen[own]++] = i;
    }
    return c;
}

/* an instruction's use of a part; before, after: by the clocks */
struct access {
    uint32_t insn, before, after;
    bool computes, begins; /* begins: a life */
    uint64_t reads, covers;
};
struct accesses {
    uint32_t *first; /* by part, and of one behind the last */
    uint32_t *n;     /* by part */
    struct access *list;
};

static uint32_t part_of(const struct lives *l, const struct use *u)
{
    return u->buffer == NONE ? NONE : l->first_part[u->buffer] + u->slot;
}

static void find_parts(struct arena *a, struct lives *l, const struct program *p)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        n += p->buffers[b].ring == NONE ? 1 : p->rings[p->buffers[b].ring].depth;
    l->parts = ARENA_ARRAY(a, struct part, n + 1u);
    l->first_part = ARENA_ARRAY(a, uint32_t, p->nbuffers + 1u);
    for (uint32_t b = 0; b < p->nbuffers; b++) {
        const struct buffer *x = &p->buffers[b];
        l->first_part[b] = l->nparts;
        if (x->kind != BUFFER_STEP || x->host)
            continue;
        uint32_t depth = x->ring == NONE ? 1 : p->rings[x->ring].depth;
        for (uint32_t k = 0; k < depth; k++)
            l->parts[l->nparts++] = (struct part){b, k, x->stride};
    }
    l->first_part[p->nbuffers] = l->nparts;
}

static void note_access(struct accesses *c, uint32_t part, const struct access *own, const struct operand *o, const struct use *u)
{
    struct access *last = c->n[part] ? &c->list[c->first[part] + c->n[part] - 1] : NULL;
    if (!last || last->insn != own->insn) {
        last = &c->list[c->first[part] + c->n[part]++];
        *last = *own;
    }
    if (o->mark == MARK_WRITE)
        last->covers |= u->covers;
    else
        last->reads |= u->touches;
}

/* room for every operand of every instruction; those that share their lists (program_share.h) are counted together */
static void make_room(struct arena *a, struct accesses *c, const struct lives *l, const struct program *p, const struct use *uses)
{
    uint32_t *times = ARENA_ARRAY(a, uint32_t, p->noperands + 1u);
    for (uint32_t i = 0; i < p->ninsns; i++)
        times[p->insns[i].operand]++;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        for (uint32_t k = 0; times[n->operand] && k < isa_info((enum op)n->op)->noperands; k++) {
            uint32_t part = part_of(l, &uses[n->operand + k]);
            if (part != NONE)
                c->first[part + 1] += times[n->operand];
        }
        times[n->operand] = 0;
    }
    for (uint32_t k = 0; k < l->nparts; k++)
        c->first[k + 1] += c->first[k];
    c->list = arena_grow(a, NULL, 0, c->first[l->nparts] + 1u, sizeof *c->list);
}

static struct accesses find_accesses(struct arena *a, const struct lives *l, const struct program *p, const struct clocks *clocks)
{
    const struct use *uses = place_uses(a, p);
    struct accesses c = {ARENA_ARRAY(a, uint32_t, l->nparts + 1u), ARENA_ARRAY(a, uint32_t, l->nparts + 1u), NULL};
    make_room(a, &c, l, p, uses);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        struct access own = {i, clocks->before[i], clocks->after[i], n->queue == QUEUE_COMPUTE, false, 0, 0};
        for (uint32_t k = n->operand; k < n->operand + isa_info((enum op)n->op)->noperands; k++) {
            uint32_t part = part_of(l, &uses[k]);
            if (part != NONE)
                note_access(&c, part, &own, &p->operands[k], &uses[k]);
        }
    }
    return c;
}

/* the number of lives */
static uint32_t find_begins(struct accesses *c, uint32_t nparts)
{
    uint32_t n = 0;
    for (uint32_t part = 0; part < nparts; part++) {
        uint64_t wanted = 0;
        for (uint32_t k = c->n[part]; k-- > 0;) {
            struct access *x = &c->list[c->first[part] + k];
            wanted = (wanted & ~x->covers) | x->reads;
            x->begins = !wanted || !k;
            n += x->begins;
        }
    }
    return n;
}

static struct life *new_life(struct lives *l, uint32_t part)
{
    struct life *x = &l->lives[l->nlives++];
    *x = (struct life){.part = part, .lo = UINT32_MAX, .sure_lo = UINT32_MAX};
    return x;
}

static void extend_life(struct life *l, const struct access *x)
{
    uint32_t end = x->computes ? x->after + 1 : x->before;
    l->lo = x->before < l->lo ? x->before : l->lo;
    l->hi = x->after > l->hi ? x->after : l->hi;
    l->sure_lo = x->after < l->sure_lo ? x->after : l->sure_lo;
    l->sure_end = end > l->sure_end ? end : l->sure_end;
}

/* parts of the check are also used from the step's begin to the end of its early part */
static void keep_for_check(struct lives *l, const struct program *p, const struct accesses *c)
{
    uint32_t phase[NPHASES + 1], at[NPHASES + 1][NQUEUES];
    if (!program_phases(p, phase) || !program_phase_positions(p, at))
        return;
    for (uint32_t part = 0; part < l->nparts; part++) {
        if (!c->n[part] || c->list[c->first[part] + c->n[part] - 1].insn < phase[PHASE_CHECK])
            continue;
        struct life *x = new_life(l, part);
        x->lo = 0;
        x->hi = at[PHASE_BODY][QUEUE_COMPUTE];
    }
}

struct lives *place_lives(struct arena *a, const struct program *p)
{
    struct lives *l = ARENA_NEW(a, struct lives);
    find_parts(a, l, p);
    struct clocks c = find_clocks(a, p);
    struct accesses accesses = find_accesses(a, l, p, &c);
    uint32_t n = find_begins(&accesses, l->nparts) + l->nparts + 1;
    l->length = c.count[QUEUE_COMPUTE];
    l->lives = ARENA_ARRAY(a, struct life, n);
    for (uint32_t part = 0; part < l->nparts; part++) {
        struct life *life = NULL;
        for (uint32_t k = 0; k < accesses.n[part]; k++) {
            const struct access *x = &accesses.list[accesses.first[part] + k];
            life = x->begins ? new_life(l, part) : life;
            extend_life(life, x);
        }
    }
    keep_for_check(l, p, &accesses);
    return l;
}
