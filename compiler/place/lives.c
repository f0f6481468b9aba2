/* When the parts of a program are live: lives from what instructions access, as intervals on the compute queue's
 * clock.
 *
 * The program is walked backward with, for every part, the set of its cells that are still to be read: cells that a
 * write covers leave the set, cells that an access reads join it.  Where the set is empty before an access, a life
 * begins with that access. Program order suffices, since all accesses for which the order matters are ordered by
 * happens-before (there are no races).
 *
 * Clocks: `before` an instruction is the number of compute instructions known to be done when it starts, by its
 * queue's order and by waits (vector clocks: Fidge 1988, Mattern 1989); `after` it is the first compute instruction
 * that knows it to be done.
 *
 * Buffers that a step's check reads must outlive the next step's early phase, so they have a life there, too.
 *
 * Cost: linear in instructions times queues, and in operands. */

#include "compiler/place/place_private.h"

#include "compiler/support/vec.h"

#include <string.h>

/* done: vector clock by queue; before, after: on the clock of the compute queue */
struct clocks {
    uint32_t (*done)[NQUEUES], *before, *after;
    uint32_t *position, count[NQUEUES];
};

static struct clocks find_clocks(struct arena *a, const struct program *p)
{
    struct clocks c = {arena_grow(a, NULL, 0, p->ninsns + 1u, sizeof *c.done),
                       ARENA_ARRAY(a, uint32_t, p->ninsns + 1u),
                       ARENA_ARRAY(a, uint32_t, p->ninsns + 1u),
                       ARENA_ARRAY(a, uint32_t, p->ninsns + 1u),
                       {0}};
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

static struct life new_life(uint32_t part)
{
    return (struct life){.part = part, .lo = UINT32_MAX, .sure_lo = UINT32_MAX, .last = NONE};
}

static void extend_life(struct life *l, const struct clocks *c, const struct insn *n, uint32_t insn)
{
    uint32_t before = c->before[insn], after = c->after[insn], end = n->queue == QUEUE_COMPUTE ? after + 1 : before;
    uint32_t runs = n->queue == QUEUE_COMPUTE, lo = 2 * before + runs, hi = 2 * after + runs;
    l->lo = lo < l->lo ? lo : l->lo;
    l->hi = hi > l->hi ? hi : l->hi;
    l->first = insn;
    l->last = l->last == NONE ? insn : l->last;
    l->sure_lo = after < l->sure_lo ? after : l->sure_lo;
    l->sure_end = end > l->sure_end ? end : l->sure_end;
}

/* State of a part during the backward walk: the current access, the cells read after it, and the life that it
 * belongs to. */
struct walked {
    uint32_t insn, nlives; /* insn: instruction of the current access; NONE until the part's last access is reached */
    uint64_t reads, covers, wanted;
    struct life life;
};
struct walk {
    struct arena *arena;
    struct walked *parts;
    VEC(struct life) lives; /* in reverse order within a part */
};

static void end_life(struct walk *w, struct walked *x)
{
    vec_push(w->arena, &w->lives, x->life);
    x->nlives++;
    x->life = new_life(x->life.part);
}

/* Moves to the access of an earlier instruction; ends the life if nothing is still to be read. */
static void next_access(struct walk *w, struct walked *x, uint32_t insn)
{
    if (x->insn != NONE) {
        x->wanted = (x->wanted & ~x->covers) | x->reads;
        if (!x->wanted)
            end_life(w, x);
    }
    x->insn = insn;
    x->reads = x->covers = 0;
}

static void walk_back(struct walk *w, const struct lives *l, const struct program *p, const struct clocks *c)
{
    const struct use *uses = place_uses(w->arena, p);
    w->parts = ARENA_ARRAY(w->arena, struct walked, l->nparts + 1u);
    for (uint32_t part = 0; part < l->nparts; part++)
        w->parts[part] = (struct walked){.insn = NONE, .life = new_life(part)};
    for (uint32_t i = p->ninsns; i-- > 0;) {
        const struct insn *n = &p->insns[i];
        for (uint32_t k = n->operand; k < n->operand + isa_info(n->op)->noperands; k++) {
            uint32_t part = part_of(l, &uses[k]);
            if (part == NONE)
                continue;
            struct walked *x = &w->parts[part];
            if (x->insn != i) {
                next_access(w, x, i);
                extend_life(&x->life, c, n, i);
            }
            if (p->operands[k].mark == MARK_WRITE)
                x->covers |= uses[k].covers;
            else
                x->reads |= uses[k].touches;
        }
    }
    for (uint32_t part = 0; part < l->nparts; part++)
        if (w->parts[part].insn != NONE)
            end_life(w, &w->parts[part]);
}

/* A life that reaches into the check is also live from the beginning of the step to the end of its early phase. */
static void keep_for_check(struct lives *l, const struct program *p)
{
    uint32_t phase[NPHASES + 1], at[NPHASES + 1][NQUEUES];
    if (!program_phases(p, phase) || !program_phase_positions(p, at))
        return;
    for (uint32_t i = 0, n = l->nlives; i < n; i++) {
        if (l->lives[i].last < phase[PHASE_CHECK])
            continue;
        struct life *x = &l->lives[l->nlives++];
        *x = new_life(l->lives[i].part);
        x->same = i;
        x->first = l->lives[i].first;
        x->lo = 0;
        x->hi = 2 * at[PHASE_BODY][QUEUE_COMPUTE] + 1;
    }
}

struct lives *place_lives(struct arena *a, const struct program *p)
{
    struct arena *scratch = arena_new(); /* many times what is kept */
    struct lives *l = ARENA_NEW(a, struct lives);
    find_parts(a, l, p);
    struct clocks c = find_clocks(scratch, p);
    struct walk w = {.arena = scratch};
    walk_back(&w, l, p, &c);
    l->length = 2 * c.count[QUEUE_COMPUTE];
    l->nlives = (uint32_t)w.lives.n;
    l->lives = ARENA_ARRAY(a, struct life, 2 * w.lives.n + 1);
    l->first_life = ARENA_ARRAY(a, uint32_t, l->nparts + 1u);
    for (uint32_t part = 0, sum = 0; part < l->nparts; part++)
        l->first_life[part] = sum += w.parts[part].nlives;
    l->first_life[l->nparts] = l->nlives;
    for (size_t i = 0; i < w.lives.n; i++)
        l->lives[--l->first_life[w.lives.at[i].part]] = w.lives.at[i];
    for (uint32_t i = 0; i < l->nlives; i++)
        l->lives[i].same = i;
    keep_for_check(l, p);
    arena_free(scratch);
    return l;
}
