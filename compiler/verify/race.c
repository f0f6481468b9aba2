/* Property 4, no race: of two accesses to overlapping bytes, one of them a write, one happens before the
 * other.
 *
 * Accesses are grouped by the exact region of the arena that they touch (few thousand regions in a program of
 * any length), overlaps between regions are found once by a sweep over addresses, and one pass in program
 * order keeps per region the last write and the last read on each queue.  An access is compared with the
 * state of every region that overlaps its own; clocks (prove.h) decide in O(1).  Keeping only the last ones
 * is exact: earlier ones happened before them or were reported.  Addresses, not buffers, are compared, so
 * that reuse by placement is covered, and regions include all values of a slot.  Within one instruction an
 * operand that is written may coincide with another only where its row of the table allows it.  Cost:
 * accesses times overlapping regions. */

#include "compiler/verify/store.h"

#include "compiler/support/vec.h"

#include <stdlib.h>

#define MOST_OVERLAPS (64u << 20)

struct place {
    struct region region;
    uint32_t first, n; /* overlapping places, itself included, in race.near */
};
/* The last accesses to a place, as positions on their queues + 1; 0 = none.  Reads before the last write are not among
 * them where that comes after them: what comes after it does too. */
struct last {
    uint32_t read[NQUEUES], write;
    uint8_t write_queue, readers; /* readers: queues that have read, as bits */
};

struct race {
    struct arena *arena, *scratch;
    const struct plan *plan;
    const struct program *program;
    struct verdict *verdict;
    struct site site;
    const struct clocks *clocks;
    VEC(struct place) places;
    struct last *last;     /* of every place */
    uint32_t *table, room; /* hash table of places, room a power of two */
    uint32_t *of;          /* place of every operand, NONE = none yet */
    uint32_t *near;
    bool *within; /* by first operand: its overlaps have been looked at (program_share.h) */
};

static uint64_t hash_region(const struct region *r)
{
    const uint64_t word[4] = {r->at, r->rows, r->width, r->pitch};
    uint64_t h = 0;
    for (int i = 0; i < 4; i++) {
        h = (h ^ word[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

static uint32_t find_place(struct race *c, const struct region *r)
{
    uint32_t i = (uint32_t)hash_region(r) & (c->room - 1);
    for (; c->table[i] != NONE; i = (i + 1) & (c->room - 1))
        if (!memcmp(&c->places.at[c->table[i]].region, r, sizeof *r))
            return c->table[i];
    struct place p = {.region = *r};
    c->table[i] = (uint32_t)c->places.n;
    vec_push(c->scratch, &c->places, p);
    return c->table[i];
}

static void collect(struct race *c)
{
    const struct program *p = c->program;
    for (c->room = 64; c->room < 2 * (uint64_t)p->noperands + 2;)
        c->room *= 2;
    c->table = ARENA_ARRAY(c->scratch, uint32_t, c->room);
    memset(c->table, 0xff, c->room * sizeof *c->table);
    c->of = ARENA_ARRAY(c->scratch, uint32_t, p->noperands + 1u);
    c->within = ARENA_ARRAY(c->scratch, bool, p->noperands + 1u);
    memset(c->of, 0xff, p->noperands * sizeof *c->of);
    for (uint32_t i = 0; i < p->ninsns; i++)
        for (uint32_t k = 0; k < isa_info(p->insns[i].op)->noperands; k++) {
            const struct operand *o = prove_operand(p, i, k);
            if (o->buffer == NONE || c->of[p->insns[i].operand + k] != NONE)
                continue;
            struct region r = prove_region(p, o);
            c->of[p->insns[i].operand + k] = find_place(c, &r);
        }
    c->last = ARENA_ARRAY(c->scratch, struct last, c->places.n + 1);
}

struct span_of_place {
    uint64_t start, end;
    uint32_t place;
};

static int by_start(const void *x, const void *y)
{
    const struct span_of_place *a = x, *b = y;
    return a->start != b->start ? (a->start < b->start ? -1 : 1) : (a->place > b->place) - (a->place < b->place);
}

/* Overlapping pairs, by a sweep with the list of regions that have not ended.  false: too many to check. */
static bool sweep(struct race *c)
{
    uint32_t n = (uint32_t)c->places.n, nopen = 0;
    struct span_of_place *span = ARENA_ARRAY(c->scratch, struct span_of_place, n + 1u);
    uint32_t *open = ARENA_ARRAY(c->scratch, uint32_t, n + 1u);
    VEC(uint64_t) pairs = {0};
    for (uint32_t i = 0; i < n; i++)
        span[i] = (struct span_of_place){c->places.at[i].region.at, region_end(&c->places.at[i].region), i};
    qsort(span, n, sizeof *span, by_start);
    for (uint32_t s = 0; s < n; s++) {
        uint32_t i = span[s].place, keep = 0;
        for (uint32_t k = 0; k < nopen; k++) {
            uint32_t j = open[k];
            if (region_end(&c->places.at[j].region) <= span[s].start)
                continue;
            open[keep++] = j;
            if (prove_overlap(&c->places.at[i].region, &c->places.at[j].region))
                vec_push(c->scratch, &pairs, (uint64_t)i << 32 | j);
        }
        nopen = keep;
        open[nopen++] = i;
        vec_push(c->scratch, &pairs, (uint64_t)i << 32 | i);
        if (pairs.n > MOST_OVERLAPS)
            return false;
    }
    for (size_t k = 0; k < pairs.n; k++) {
        uint32_t i = (uint32_t)(pairs.at[k] >> 32), j = (uint32_t)pairs.at[k];
        c->places.at[i].n++;
        if (i != j)
            c->places.at[j].n++;
    }
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        c->places.at[i].first = sum;
        sum += c->places.at[i].n;
        c->places.at[i].n = 0;
    }
    c->near = ARENA_ARRAY(c->scratch, uint32_t, sum + 1u);
    for (size_t k = 0; k < pairs.n; k++) {
        struct place *x = &c->places.at[pairs.at[k] >> 32], *y = &c->places.at[(uint32_t)pairs.at[k]];
        c->near[x->first + x->n++] = (uint32_t)pairs.at[k];
        if (x != y)
            c->near[y->first + y->n++] = (uint32_t)(pairs.at[k] >> 32);
    }
    return true;
}

static void report(struct race *c, uint32_t i, uint32_t earlier, bool write, bool other_write, uint32_t operand)
{
    const struct isa_operand *o = &isa_info(c->program->insns[i].op)->operand[operand];
    c->site.insn = i;
    prove_report(c->arena, c->plan, c->verdict, c->site,
                 "it %s %s, which overlaps bytes that %s %s, and nothing orders the two", write ? "writes" : "reads",
                 o->name, prove_insn_text(c->arena, c->program, earlier), other_write ? "writes" : "reads");
}

/* false: it races */
static bool check_access(struct race *c, uint32_t i, uint32_t operand, bool write)
{
    const struct place *mine = &c->places.at[c->of[c->program->insns[i].operand + operand]];
    const uint32_t *before = c->clocks->before[i];
    for (uint32_t k = 0; k < mine->n; k++) {
        const struct last *p = &c->last[c->near[mine->first + k]];
        if (p->write > before[p->write_queue]) {
            report(c, i, c->clocks->insn[p->write_queue][p->write - 1], write, true, operand);
            return false;
        }
        for (uint32_t left = write ? p->readers : 0; left; left &= left - 1) {
            uint32_t q = (uint32_t)__builtin_ctz(left);
            if (p->read[q] > before[q]) {
                report(c, i, c->clocks->insn[q][p->read[q] - 1], true, false, operand);
                return false;
            }
        }
    }
    return true;
}

static void note_access(struct race *c, uint32_t i, uint32_t operand, bool write, bool ordered)
{
    struct last *mine = &c->last[c->of[c->program->insns[i].operand + operand]];
    uint8_t queue = c->program->insns[i].queue;
    if (write) {
        mine->write = c->clocks->position[i] + 1;
        mine->write_queue = queue;
        mine->readers = ordered ? 0 : mine->readers;
    }
    if (prove_operand(c->program, i, operand)->mark != MARK_WRITE) {
        mine->read[queue] = c->clocks->position[i] + 1;
        mine->readers |= (uint8_t)(1u << queue);
    }
}

static bool writes(const struct operand *o)
{
    return o->mark == MARK_WRITE || o->mark == MARK_ADD || o->mark == MARK_UPDATE;
}

/* May output y share its bytes with input x?  Kernels that finish with an element before they write it, and
 * inputs that have y's shape in the table: a table of positions, or a row's sum, is read again for other
 * elements of y. */
static bool in_place(enum op op, size_t y, size_t x)
{
    static const bool elementwise[NOPS] = {
        [OP_ADD] = true,       [OP_COPY] = true,     [OP_ROPE] = true,       [OP_XENT_I] = true, [OP_GELU] = true,
        [OP_GELU_I] = true,    [OP_RELU] = true,     [OP_RELU_I] = true,     [OP_SWIGLU] = true, [OP_SWIGLU_I] = true,
        [OP_GEGLU] = true,     [OP_GEGLU_I] = true,  [OP_POSITION] = true,   [OP_SCALE] = true,  [OP_SOFTCAP] = true,
        [OP_SOFTCAP_I] = true, [OP_HEADNORM] = true, [OP_HEADNORM_I] = true, [OP_SINK] = true};
    const struct isa_operand *o = isa_info(op)->operand;
    return op < NOPS && elementwise[op] && !strcmp(o[y].rows, o[x].rows) && !strcmp(o[y].cols, o[x].cols);
}

/* Of a gather or a scatter: is `part` the member's own part of `all`?  Any other part is another member's,
 * who may still read it, or has written it. */
static bool own_part(const struct race *c, uint32_t i, const struct operand *part, const struct operand *all)
{
    uint32_t mask = prove_mask(&c->plan->mesh, prove_comm_slot(c->program, i)->arg),
             own = prove_mask(&c->plan->mesh, store_part(c->program, part));
    if (part->buffer != all->buffer || part->offset != all->offset || part->dtype != all->dtype ||
        all->slot != UINT16_MAX || (all->rows > 1 && all->ld != all->cols))
        return false;
    return mask == own;
}

static void check_within(struct race *c, uint32_t i)
{
    const struct program *p = c->program;
    const struct isa_info *info = isa_info(p->insns[i].op);
    if (c->within[p->insns[i].operand])
        return;
    c->within[p->insns[i].operand] = true;
    for (uint32_t k = 0; k < info->noperands; k++)
        for (uint32_t j = 0; j < info->noperands; j++) {
            const struct operand *y = prove_operand(p, i, k), *x = prove_operand(p, i, j);
            if (j == k || y->buffer == NONE || x->buffer == NONE || !writes(y) || (writes(x) && j < k))
                continue;
            const struct region *ry = &c->places.at[c->of[p->insns[i].operand + k]].region;
            const struct region *rx = &c->places.at[c->of[p->insns[i].operand + j]].region;
            enum op op = p->insns[i].op;
            if (!prove_overlap(ry, rx) || (!writes(x) && !memcmp(rx, ry, sizeof *rx) && in_place(op, k, j)) ||
                (op == OP_ALL_GATHER && own_part(c, i, x, y)) || (op == OP_REDUCE_SCATTER && own_part(c, i, y, x)))
                continue;
            c->site.insn = i;
            prove_report(c->arena, c->plan, c->verdict, c->site, "its operands %s and %s overlap",
                         info->operand[k].name, info->operand[j].name);
        }
}

static void race_program(struct race *c)
{
    const struct program *p = c->program;
    collect(c);
    if (!sweep(c)) {
        prove_report(c->arena, c->plan, c->verdict, c->site, "more than %u pairs of overlapping operands",
                     MOST_OVERLAPS);
        return;
    }
    for (uint32_t i = 0; i < p->ninsns && prove_count(c->verdict, 4) < 20; i++) {
        uint32_t n = isa_info(p->insns[i].op)->noperands;
        bool ordered[ISA_MAX_OPERANDS];
        check_within(c, i);
        for (uint32_t k = 0; k < n; k++)
            ordered[k] = prove_operand(p, i, k)->buffer == NONE ||
                         check_access(c, i, k, writes(prove_operand(p, i, k)));
        for (uint32_t k = 0; k < n; k++)
            if (prove_operand(p, i, k)->buffer != NONE)
                note_access(c, i, k, writes(prove_operand(p, i, k)), ordered[k]);
    }
}

void verify_race(struct arena *a, const struct plan *p, struct verdict *v)
{
    for (int kind = 0; kind < NPROGRAM_KINDS; kind++)
        for (uint32_t role = 0; role < p->nroles; role++) {
            struct race c = {.arena = a,
                             .scratch = arena_new(),
                             .plan = p,
                             .program = prove_program(p, role, kind),
                             .verdict = v,
                             .site = {4, role, NONE, kind == PROGRAM_EVAL, NONE}};
            if (c.program) {
                c.clocks = prove_clocks(c.scratch, c.program);
                race_program(&c);
            }
            arena_free(c.scratch);
        }
}
