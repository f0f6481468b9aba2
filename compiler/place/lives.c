/* When the parts of a program are live: lives from what instructions touch, and their intervals on the clock of every queue.
 *
 * Backwards over the accesses of a part goes the set of its cells that are still to be read: what an access covers leaves it,
 * what it reads joins it.  Where the set is empty in front of an access, a life begins with that.  Program order will do for
 * that, since accesses that it matters for are ordered (no race).
 *
 * Clocks: before[q] of an instruction is the number of q's instructions known to be done when it starts, by its queue's order
 * and by waits (Fidge 1988, Mattern 1989); after[q] is the first of q's instructions that knows it to be done.
 *
 * What a step's check needs outlives the next step's early part: it has a life there too.
 *
 * Cost: linear in instructions times queues, and in operands. */

#include "compiler/place/place_private.h"

#include <string.h>

struct clocks {
    uint32_t *before[NQUEUES], *after[NQUEUES]; /* by instruction; NULL: nothing runs on the queue */
    uint32_t *position, count[NQUEUES];
};

static struct clocks find_clocks(struct arena *a, const struct program *p)
{
    struct clocks c = {.position = ARENA_ARRAY(a, uint32_t, p->ninsns + 1u)};
    uint32_t *at[NQUEUES], seen[NQUEUES] = {0}, known[NQUEUES][NQUEUES] = {{0}};
    program_positions(p, c.position, c.count);
    for (uint32_t q = 0; q < NQUEUES; q++) {
        at[q] = ARENA_ARRAY(a, uint32_t, c.count[q] + 1u);
        if (!c.count[q])
            continue;
        c.before[q] = ARENA_ARRAY(a, uint32_t, p->ninsns);
        c.after[q] = ARENA_ARRAY(a, uint32_t, p->ninsns);
        for (uint32_t i = 0; i < p->ninsns; i++)
            c.after[q][i] = c.count[q];
    }
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        uint32_t now[NQUEUES] = {0}, own = n->queue;
        for (uint32_t q = 0; seen[own] && q < NQUEUES; q++)
            now[q] = c.count[q] ? c.before[q][at[own][seen[own] - 1]] : 0;
        now[own] = seen[own];
        for (uint32_t w = n->wait; w < n->wait + n->nwaits; w++) {
            uint32_t from = at[p->waits[w].queue][p->waits[w].position];
            for (uint32_t q = 0; q < NQUEUES; q++) {
                uint32_t done = !c.count[q] ? 0 : q == p->waits[w].queue ? p->waits[w].position + 1 : c.before[q][from];
                now[q] = done > now[q] ? done : now[q];
            }
        }
        for (uint32_t q = 0; q < NQUEUES; q++) {
            if (c.count[q])
                c.before[q][i] = now[q];
            for (; q != own && known[own][q] < now[q]; known[own][q]++)
                c.after[own][at[q][known[own][q]]] = c.position[i];
        }
        c.after[own][i] = c.position[i];
        at[own][seen[own]++] = i;
    }
    return c;
}

/* an instruction's use of a part */
struct access {
    uint32_t insn;
    uint64_t reads, covers;
    bool begins; /* a life */
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

static void note_access(struct accesses *c, uint32_t part, uint32_t insn, const struct operand *o, const struct use *u)
{
    struct access *last = c->n[part] ? &c->list[c->first[part] + c->n[part] - 1] : NULL;
    if (!last || last->insn != insn) {
        last = &c->list[c->first[part] + c->n[part]++];
        *last = (struct access){.insn = insn};
    }
    if (o->mark == MARK_WRITE)
        last->covers |= u->covers;
    else
        last->reads |= u->touches;
}

static struct accesses find_accesses(struct arena *a, const struct lives *l, const struct program *p)
{
    const struct use *uses = place_uses(a, p);
    struct accesses c = {ARENA_ARRAY(a, uint32_t, l->nparts + 1u), ARENA_ARRAY(a, uint32_t, l->nparts + 1u), NULL};
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < p->ninsns; i++) {
            const struct insn *n = &p->insns[i];
            for (uint32_t k = n->operand; k < n->operand + isa_info((enum op)n->op)->noperands; k++) {
                uint32_t part = part_of(l, &uses[k]);
                if (part == NONE)
                    continue;
                if (turn)
                    note_access(&c, part, i, &p->operands[k], &uses[k]);
                else
                    c.first[part + 1]++;
            }
        }
        for (uint32_t k = 0; !turn && k < l->nparts; k++)
            c.first[k + 1] += c.first[k];
        if (!turn)
            c.list = ARENA_ARRAY(a, struct access, c.first[l->nparts] + 1u);
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

static uint32_t new_life(struct lives *l, uint32_t part)
{
    uint32_t i = l->nlives++;
    l->part[i] = part;
    for (uint32_t q = 0; q < NQUEUES; q++)
        if (l->lo[q]) {
            l->lo[q][i] = UINT32_MAX;
            l->hi[q][i] = 0;
        }
    l->sure_lo[i] = UINT32_MAX;
    return i;
}

static void extend_life(struct lives *l, uint32_t i, const struct clocks *c, const struct insn *n, uint32_t insn)
{
    for (uint32_t q = 0; q < NQUEUES; q++) {
        if (!l->lo[q])
            continue;
        l->lo[q][i] = c->before[q][insn] < l->lo[q][i] ? c->before[q][insn] : l->lo[q][i];
        l->hi[q][i] = c->after[q][insn] > l->hi[q][i] ? c->after[q][insn] : l->hi[q][i];
    }
    if (!c->count[QUEUE_COMPUTE])
        return;
    uint32_t done = c->after[QUEUE_COMPUTE][insn], before = c->before[QUEUE_COMPUTE][insn];
    uint32_t end = n->queue == QUEUE_COMPUTE ? c->position[insn] + 1 : before;
    l->sure_lo[i] = done < l->sure_lo[i] ? done : l->sure_lo[i];
    l->sure_end[i] = end > l->sure_end[i] ? end : l->sure_end[i];
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
        uint32_t i = new_life(l, part);
        for (uint32_t q = 0; q < NQUEUES; q++)
            if (l->lo[q]) {
                l->lo[q][i] = 0;
                l->hi[q][i] = at[PHASE_BODY][q];
            }
    }
}

struct lives *place_lives(struct arena *a, const struct program *p)
{
    struct lives *l = ARENA_NEW(a, struct lives);
    find_parts(a, l, p);
    struct clocks c = find_clocks(a, p);
    struct accesses accesses = find_accesses(a, l, p);
    uint32_t n = find_begins(&accesses, l->nparts) + l->nparts + 1;
    memcpy(l->count, c.count, sizeof l->count);
    l->part = ARENA_ARRAY(a, uint32_t, n);
    l->sure_lo = ARENA_ARRAY(a, uint32_t, n);
    l->sure_end = ARENA_ARRAY(a, uint32_t, n);
    for (uint32_t q = 0; q < NQUEUES; q++)
        if (c.count[q]) {
            l->lo[q] = ARENA_ARRAY(a, uint32_t, n);
            l->hi[q] = ARENA_ARRAY(a, uint32_t, n);
        }
    for (uint32_t part = 0; part < l->nparts; part++)
        for (uint32_t k = 0, life = 0; k < accesses.n[part]; k++) {
            const struct access *x = &accesses.list[accesses.first[part] + k];
            life = x->begins ? new_life(l, part) : life;
            extend_life(l, life, &c, &p->insns[x->insn], x->insn);
        }
    keep_for_check(l, p, &accesses);
    return l;
}
