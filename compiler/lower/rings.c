/* Ring depths, and the slot of every operand.
 *
 * The microbatch of an instruction owns a slot of every ring that it touches, the same of all buffers of the ring.  A body (program_share.h) is one for
 * all microbatches until here; behind it there is one per combination of slots that occurs, found in a hash table. */

#include "compiler/lower/order.h"

#include "runtime/program_share.h"

#include <stdlib.h>

/* of a microbatch in a ring: its uses, in time and seq, and the end of those in F */
struct life {
    int64_t start, end, grown;
    uint32_t first, last;
    bool used, grows;
};

/* What W reads is kept longer than the rest of a ring, which I is the last to read: where a ring has both, that is a ring of its
 * own, "kept".  A slot would else be taken until W, and lie half empty. */
void lower_split_rings(struct arena *a, struct program *p)
{
    struct arena_mark mark = arena_mark(a);
    bool *late = ARENA_ARRAY(a, bool, p->nbuffers + 1u);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        for (uint32_t k = n->operand; n->action == 'W' && k < n->operand + isa_info((enum op)n->op)->noperands; k++)
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

static void join_lives(struct life *l, const struct life *x)
{
    if (!l->used) {
        *l = *x;
        return;
    }
    if (x->first < l->first) {
        l->first = x->first;
        l->start = x->start;
    }
    l->last = x->last > l->last ? x->last : l->last;
    l->end = x->end > l->end ? x->end : l->end;
    l->grown = x->grows && x->grown > l->grown ? x->grown : l->grown;
}

static struct life life_of(const struct role *r, uint32_t i)
{
    const struct insn *n = &r->p->insns[i];
    return (struct life){r->start[i], r->end[i], n->action == 'F' ? r->end[i] : r->start[i], n->seq, n->seq, true,
                         n->action == 'F'};
}

static bool ends_before(const struct life *x, const struct life *y)
{
    return !x || (x->end <= y->start && x->last < y->first);
}

/* F that makes a microbatch's values, and a little longer */
static int64_t growth_end(const struct life *l)
{
    return l->grown + (l->grown - l->start) / 8;
}

/* microbatches of the rings of one kind, one ring per chunk, by first use */
struct user {
    uint32_t first, ring, microbatch;
};

static int by_first(const void *x, const void *y)
{
    const struct user *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

/* Memory for what one microbatch leaves in a chunk has two faces, for placement to lay out one against the other: an F that
 * runs beside the B that empties a cell fills its other face. */
struct cell {
    const struct life *last[2]; /* users of the faces */
    uint32_t face;              /* of the later one */
};

/* A user takes the lowest cell that is empty when it starts, else the one that is emptied first while it grows, else a new
 * one; twice the number of cells.  So what is behind the first cells is used only while all of those are, and chunks take
 * turns: placement finds the slots of one free where others' are not. */
static uint32_t take_cells(struct arena *a, struct role *r, const struct life *life, const struct user *users, uint32_t n)
{
    struct arena_mark mark = arena_mark(a);
    struct cell *cells = ARENA_ARRAY(a, struct cell, n + 1u);
    uint32_t ncells = 0;
    int64_t soonest = 0; /* end of a cell's last user: none is earlier */
    for (uint32_t i = 0; i < n; i++) {
        size_t at = (size_t)users[i].ring * r->microbatches + users[i].microbatch;
        const struct life *l = &life[at];
        uint32_t best = ncells, face = 0;
        for (uint32_t c = 0; c < ncells && soonest <= growth_end(l); c++) {
            const struct cell *x = &cells[c];
            if (ends_before(x->last[x->face], l) && ends_before(x->last[!x->face], l)) {
                best = c;
                face = 0;
                break;
            }
            if (x->last[x->face]->end <= growth_end(l) && ends_before(x->last[!x->face], l) &&
                (best == ncells || x->last[x->face]->end < cells[best].last[cells[best].face]->end)) {
                best = c;
                face = !x->face;
            }
        }
        ncells += best == ncells;
        cells[best].last[face] = l;
        cells[best].face = face;
        r->slots[at] = 2 * best + face;
        soonest = l->end;
        for (uint32_t c = 0; c < ncells; c++)
            soonest = cells[c].last[cells[c].face]->end < soonest ? cells[c].last[cells[c].face]->end : soonest;
    }
    arena_reset(a, mark);
    return 2 * ncells;
}

/* Slots of a ring: the faces that it has taken, in their order. */
static uint32_t number_slots(struct arena *a, struct role *r, uint32_t ring, const struct life *life, uint32_t nfaces)
{
    struct arena_mark mark = arena_mark(a);
    uint32_t *slot = ARENA_ARRAY(a, uint32_t, nfaces + 1u), depth = 0;
    size_t first = (size_t)ring * r->microbatches;
    for (uint32_t m = 0; m < r->microbatches; m++)
        if (life[first + m].used)
            slot[r->slots[first + m]] = 1;
    for (uint32_t k = 0; k < nfaces; k++)
        slot[k] = slot[k] ? depth++ : 0;
    for (uint32_t m = 0; m < r->microbatches; m++)
        r->slots[first + m] = life[first + m].used ? slot[r->slots[first + m]] : 0;
    arena_reset(a, mark);
    return depth ? depth : 1;
}

/* Names of rings are a kind and a chunk, "act.s3".  What a microbatch leaves in a chunk from F to B or W is one kind. */
static bool is_left(const struct ring *r)
{
    size_t n = strcspn(r->name, ".");
    return (n == 3 && !memcmp(r->name, "act", n)) || (n == 4 && (!memcmp(r->name, "kept", n) || !memcmp(r->name, "late", n)));
}

static bool one_kind(const struct ring *x, const struct ring *y)
{
    size_t n = strcspn(x->name, ".");
    return (is_left(x) && is_left(y)) || (n == strcspn(y->name, ".") && !memcmp(x->name, y->name, n));
}

static bool one_chunk(const struct ring *x, const struct ring *y)
{
    return !strcmp(x->name + strcspn(x->name, "."), y->name + strcspn(y->name, "."));
}

/* Rings of one kind and chunk take one cell for a microbatch: the lives of it in all of them are one. */
static void size_kind(struct arena *a, struct role *r, uint32_t first, const struct life *life)
{
    struct program *p = r->p;
    struct arena_mark mark = arena_mark(a);
    uint32_t n = 0, m = r->microbatches, *lead = ARENA_ARRAY(a, uint32_t, p->nrings);
    struct life *joined = ARENA_ARRAY(a, struct life, (size_t)p->nrings * m + 1);
    struct user *users = ARENA_ARRAY(a, struct user, (size_t)p->nrings * m + 1);
    for (uint32_t g = first; g < p->nrings; g++) {
        if (!one_kind(&p->rings[first], &p->rings[g]))
            continue;
        lead[g] = first;
        while (!one_kind(&p->rings[g], &p->rings[lead[g]]) || !one_chunk(&p->rings[g], &p->rings[lead[g]]))
            lead[g]++;
        for (uint32_t k = 0; k < m; k++)
            if (life[(size_t)g * m + k].used)
                join_lives(&joined[(size_t)lead[g] * m + k], &life[(size_t)g * m + k]);
    }
    for (uint32_t g = first; g < p->nrings; g++)
        for (uint32_t k = 0; k < m; k++)
            if (joined[(size_t)g * m + k].used)
                users[n++] = (struct user){joined[(size_t)g * m + k].first, g, k};
    qsort(users, n, sizeof *users, by_first);
    uint32_t nfaces = take_cells(a, r, joined, users, n);
    for (uint32_t g = p->nrings; g-- > first;) { /* a ring's lead is in front of it */
        if (!one_kind(&p->rings[first], &p->rings[g]))
            continue;
        memmove(r->slots + (size_t)g * m, r->slots + (size_t)lead[g] * m, m * sizeof *r->slots);
        r->depth[g] = p->rings[g].depth = number_slots(a, r, g, life, nfaces);
    }
    arena_reset(a, mark);
}

static void size_rings(struct arena *a, struct role *r)
{
    struct program *p = r->p;
    struct arena_mark mark = arena_mark(a);
    struct life *life = ARENA_ARRAY(a, struct life, (size_t)p->nrings * r->microbatches + 1);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        if (p->insns[i].microbatch == NONE)
            continue;
        struct body_rings b = rings_of(p, &p->insns[i]);
        struct life use = life_of(r, i);
        for (uint32_t k = 0; k < b.n; k++)
            join_lives(&life[(size_t)b.ring[k] * r->microbatches + p->insns[i].microbatch], &use);
    }
    for (uint32_t g = 0; g < p->nrings; g++) {
        bool done = false;
        for (uint32_t h = 0; h < g; h++)
            done |= one_kind(&p->rings[g], &p->rings[h]);
        if (!done)
            size_kind(a, r, g, life);
    }
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
    const struct role *role;
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
            o->offset += (uint64_t)slot_of(f->role, ring, n->microbatch) * f->p->buffers[o->buffer].stride;
    }
    return first;
}

static void fold_insn(struct folding *f, struct insn *n)
{
    struct body_rings b = rings_of(f->p, n);
    uint64_t slots = 0;
    bool wide = false;
    for (uint32_t k = 0; k < b.n; k++) {
        wide |= __builtin_mul_overflow(slots, (uint64_t)f->role->depth[b.ring[k]], &slots);
        slots += slot_of(f->role, b.ring[k], n->microbatch);
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

void lower_fold_rings(struct arena *a, struct role *r)
{
    struct program *p = r->p;
    size_rings(a, r);
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (p->buffers[b].ring != NONE)
            p->buffers[b].bytes = p->buffers[b].stride * r->depth[p->buffers[b].ring];
    struct arena_mark mark = arena_mark(a);
    struct folding f = {.arena = a, .p = p, .role = r};
    widen(&f);
    for (uint32_t i = 0; i < p->ninsns; i++)
        fold_insn(&f, &p->insns[i]);
    free(p->operands);
    p->operands = f.operands;
    p->noperands = f.noperands;
    program_trim(p);
    arena_reset(a, mark);
}
