/* Ring depths, and the slot of every operand.
 *
 * The microbatch of an instruction owns the slot of every ring buffer that it touches.  A body (program_share.h) is one for
 * all microbatches until here; behind it there is one per combination of slots that occurs, found in a hash table. */

#include "compiler/lower/order.h"

#include "runtime/program_share.h"

#include <stdlib.h>

struct life {
    int64_t start, end;
    uint32_t first, last; /* seq */
    bool used;
};

/* rings that a body's operands lie in */
struct body_rings {
    uint32_t n, ring[ISA_MAX_OPERANDS];
};

static struct body_rings rings_of(const struct program *p, const struct insn *n)
{
    struct body_rings b = {0};
    for (uint32_t k = n->operand; k < n->operand + isa_info((enum op)n->op)->noperands; k++) {
        uint32_t ring = p->operands[k].buffer == NONE ? NONE : p->buffers[p->operands[k].buffer].ring, i = 0;
        while (i < b.n && b.ring[i] != ring)
            i++;
        if (ring != NONE && i == b.n)
            b.ring[b.n++] = ring;
    }
    return b;
}

static void extend(struct life *l, const struct role *r, uint32_t i)
{
    uint32_t seq = r->p->insns[i].seq;
    if (!l->used || seq < l->first) {
        l->first = seq;
        l->start = r->start[i];
    }
    if (!l->used || r->end[i] > l->end)
        l->end = r->end[i];
    if (!l->used || seq > l->last)
        l->last = seq;
    l->used = true;
}

static uint32_t least_depth(const struct life *life, uint32_t microbatches)
{
    uint32_t depth = 1;
    for (bool fits = false; !fits; depth += !fits) {
        fits = true;
        for (uint32_t i = depth; i < microbatches && fits; i++)
            fits = !life[i].used || (life[i - depth].end <= life[i].start && life[i - depth].last < life[i].first);
    }
    return depth;
}

static void size_rings(struct arena *a, struct role *r, uint32_t microbatches)
{
    struct program *p = r->p;
    struct arena_mark mark = arena_mark(a);
    struct life *life = ARENA_ARRAY(a, struct life, (size_t)p->nrings * microbatches + 1);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        if (p->insns[i].microbatch == NONE)
            continue;
        struct body_rings b = rings_of(p, &p->insns[i]);
        for (uint32_t k = 0; k < b.n; k++)
            extend(&life[(size_t)b.ring[k] * microbatches + p->insns[i].microbatch], r, i);
    }
    for (uint32_t g = 0; g < p->nrings; g++)
        r->depth[g] = p->rings[g].depth = least_depth(&life[(size_t)g * microbatches], microbatches);
    arena_reset(a, mark);
}

/* bodies in their slots */
struct folded {
    uint32_t body, operand; /* before and after; body NONE = an empty place of the table */
    uint64_t slots;         /* slot of each ring, mixed radix */
};
struct folding {
    struct arena *arena;
    struct program *p;
    const uint32_t *depth;
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

/* a list of operands for this instruction's slots */
static uint32_t fold_operands(struct folding *f, const struct insn *n)
{
    uint32_t count = isa_info((enum op)n->op)->noperands, first = f->noperands;
    if (first + count > f->operands_room) {
        f->operands_room = f->operands_room ? 2 * f->operands_room : 4096;
        f->operands = program_alloc(f->operands, f->operands_room, sizeof *f->operands);
    }
    for (uint32_t k = 0; k < count; k++) {
        struct operand *o = &f->operands[f->noperands++];
        *o = f->p->operands[n->operand + k];
        uint32_t ring = o->buffer == NONE ? NONE : f->p->buffers[o->buffer].ring;
        if (ring != NONE)
            o->offset += (uint64_t)(n->microbatch % f->depth[ring]) * f->p->buffers[o->buffer].stride;
    }
    return first;
}

static void fold_insn(struct folding *f, struct insn *n)
{
    struct body_rings b = rings_of(f->p, n);
    uint64_t slots = 0;
    bool wide = false;
    for (uint32_t k = 0; k < b.n; k++) {
        wide |= __builtin_mul_overflow(slots, (uint64_t)f->depth[b.ring[k]], &slots);
        slots += n->microbatch % f->depth[b.ring[k]];
    }
    if (wide || slots == UINT64_MAX) { /* no number for them: its own list */
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

void lower_fold_rings(struct arena *a, struct role *r, uint32_t microbatches)
{
    struct program *p = r->p;
    size_rings(a, r, microbatches);
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (p->buffers[b].ring != NONE)
            p->buffers[b].bytes = p->buffers[b].stride * r->depth[p->buffers[b].ring];
    struct arena_mark mark = arena_mark(a);
    struct folding f = {.arena = a, .p = p, .depth = r->depth};
    widen(&f);
    for (uint32_t i = 0; i < p->ninsns; i++)
        fold_insn(&f, &p->insns[i]);
    free(p->operands);
    p->operands = f.operands;
    p->noperands = f.noperands;
    program_trim(p);
    arena_reset(a, mark);
}
