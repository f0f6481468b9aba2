/* Rings by how long their buffers are needed, and the slot of every operand.
 *
 * The microbatch of an instruction owns a slot of every ring that it accesses, the same in all buffers of the ring
 * (cells.c).  Until here a list of operands (program_share.h) is the same for all microbatches; afterwards there is
 * one per combination of slots that occurs, found in a hash table. */

#include "compiler/lower/order.h"

#include "runtime/program_share.h"

#include <stdlib.h>

/* What W reads is kept longer than the rest of a ring, which I reads last.  Where a ring has both, what W reads
 * moves to a ring of its own, "kept"; otherwise a slot would be occupied until W although half empty. */
void lower_split_rings(struct arena *a, struct program *p)
{
    struct arena_mark mark = arena_mark(a);
    bool *late = ARENA_ARRAY(a, bool, p->nbuffers + 1u);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        for (uint32_t k = n->operand; n->action == 'W' && k < n->operand + isa_info(n->op)->noperands; k++)
            if (p->operands[k].buffer != NONE)
                late[p->operands[k].buffer] = true;
    }
    uint32_t nrings = p->nrings;
    for (uint32_t g = 0; g < nrings; g++) {
        uint32_t n[2] = {0};
        for (uint32_t b = 0; b < p->nbuffers; b++)
            n[late[b]] += p->buffers[b].ring == g;
        if (!n[0] || !n[1])
            continue;
        char name[sizeof p->rings->name];
        snprintf(name, sizeof name, "kept%s", p->rings[g].name + strcspn(p->rings[g].name, "."));
        uint32_t kept = program_ring(p, name, 1);
        for (uint32_t b = 0; b < p->nbuffers; b++)
            if (late[b] && p->buffers[b].ring == g)
                p->buffers[b].ring = kept;
    }
    arena_reset(a, mark);
}

/* rings that the operands of each list are in, by first operand: n of them, in `list` from there on */
struct body_rings {
    uint8_t *n;
    uint32_t *list;
};

static struct body_rings find_rings(struct arena *a, const struct program *p)
{
    struct body_rings b = {ARENA_ARRAY(a, uint8_t, p->noperands + 1u), ARENA_ARRAY(a, uint32_t, p->noperands + 1u)};
    bool *seen = ARENA_ARRAY(a, bool, p->noperands + 1u);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        uint32_t first = p->insns[i].operand, count = isa_info(p->insns[i].op)->noperands;
        for (uint32_t k = first; !seen[first] && k < first + count; k++) {
            uint32_t ring = p->operands[k].buffer == NONE ? NONE : p->buffers[p->operands[k].buffer].ring, x = 0;
            while (x < b.n[first] && b.list[first + x] != ring)
                x++;
            if (ring != NONE && x == b.n[first])
                b.list[first + b.n[first]++] = ring;
        }
        seen[first] = true;
    }
    return b;
}

static void size_rings(struct arena *a, struct role *r, const struct body_rings *rings)
{
    struct program *p = r->p;
    struct arena_mark mark = arena_mark(a);
    struct ring_life *life = ARENA_ARRAY(a, struct ring_life, (size_t)p->nrings * r->microbatches + 1);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        if (n->microbatch == NONE)
            continue;
        struct ring_life use = {r->start[i], r->end[i], r->end[i], n->seq, n->seq, n->action, true};
        for (uint32_t k = 0; k < rings->n[n->operand]; k++)
            ring_life_join(&life[(size_t)rings->list[n->operand + k] * r->microbatches + n->microbatch], &use);
    }
    lower_take_cells(a, r, life);
    arena_reset(a, mark);
}

/* a list of operands with the slots filled in */
struct folded {
    uint32_t body, operand; /* first operand before and after; body NONE: an empty place of the table */
    uint64_t slots;         /* the slots of its rings as one number in mixed radix */
};
struct folding {
    struct arena *arena;
    struct program *p;
    const struct role *role;
    const struct body_rings *rings;
    struct operand *operands; /* new */
    uint32_t noperands, operands_room, n, room;
    struct folded *table;
};

static uint32_t find_folded(const struct folded *table, uint32_t room, uint32_t body, uint64_t slots)
{
    uint64_t h = (slots + 1) * 0x9e3779b97f4a7c15u ^ body * 0xff51afd7ed558ccdu;
    uint32_t i = (uint32_t)(h ^ h >> 32) & (room - 1);
    while (table[i].body != NONE && (table[i].body != body || table[i].slots != slots))
        i = (i + 1) & (room - 1);
    return i;
}

static void widen(struct folding *f)
{
    uint32_t room = f->room ? 2 * f->room : 1024;
    struct folded *table = ARENA_ARRAY(f->arena, struct folded, room);
    memset(table, 0xff, room * sizeof *table);
    for (uint32_t k = 0; k < f->room; k++)
        if (f->table[k].body != NONE)
            table[find_folded(table, room, f->table[k].body, f->table[k].slots)] = f->table[k];
    f->table = table;
    f->room = room;
}

/* Appends the list of operands with this instruction's slots; returns its first operand. */
static uint32_t fold_operands(struct folding *f, const struct insn *n)
{
    uint32_t count = isa_info(n->op)->noperands, first = f->noperands;
    if (first + count > f->operands_room) {
        f->operands_room = f->operands_room ? 2 * f->operands_room : 4096;
        f->operands = program_alloc(f->operands, f->operands_room, sizeof *f->operands);
    }
    for (uint32_t k = 0; k < count; k++) {
        struct operand *o = &f->operands[f->noperands++];
        *o = f->p->operands[n->operand + k];
        uint32_t ring = o->buffer == NONE ? NONE : f->p->buffers[o->buffer].ring;
        if (ring != NONE)
            o->offset += (uint64_t)slot_of(f->role, ring, n->microbatch) * f->p->buffers[o->buffer].stride;
    }
    return first;
}

static void fold_insn(struct folding *f, struct insn *n)
{
    const uint32_t *ring = f->rings->list + n->operand;
    uint64_t slots = 0;
    bool wide = false;
    for (uint32_t k = 0; k < f->rings->n[n->operand]; k++) {
        wide |= __builtin_mul_overflow(slots, (uint64_t)f->role->depth[ring[k]], &slots);
        slots += slot_of(f->role, ring[k], n->microbatch);
    }
    if (wide || slots == UINT64_MAX) { /* the number would overflow: it gets a list of its own */
        n->operand = fold_operands(f, n);
        return;
    }
    uint32_t at = find_folded(f->table, f->room, n->operand, slots);
    if (f->table[at].body == NONE) {
        f->table[at] = (struct folded){n->operand, fold_operands(f, n), slots};
        n->operand = f->table[at].operand;
        if (4 * ++f->n > 3 * f->room)
            widen(f);
        return;
    }
    n->operand = f->table[at].operand;
}

void lower_fold_rings(struct arena *a, struct role *r)
{
    struct program *p = r->p;
    struct arena_mark mark = arena_mark(a);
    struct body_rings rings = find_rings(a, p);
    size_rings(a, r, &rings);
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (p->buffers[b].ring != NONE)
            p->buffers[b].bytes = p->buffers[b].stride * r->depth[p->buffers[b].ring];
    struct folding f = {.arena = a, .p = p, .role = r, .rings = &rings};
    widen(&f);
    for (uint32_t i = 0; i < p->ninsns; i++)
        fold_insn(&f, &p->insns[i]);
    free(p->operands);
    p->operands = f.operands;
    p->noperands = f.noperands;
    program_trim(p);
    arena_reset(a, mark);
}
