/* Placement by exact live ranges.
 *
 * A buffer that is written whole, used and written whole again has several lives; each is an interval on the clock of the
 * compute queue: from the number of compute instructions known to be done when its first writer starts, to the first compute
 * instruction that knows its last user to be done.  Two lives are apart if one ends before the other begins on that clock.
 * Buffers are placed largest first at the lowest offset that is free of all buffers whose lives meet theirs
 * (greedy by size; Pisarchyk and Lee 2020).  Rings live as one.  Cost: O(buffers^2 lives).
 *
 * What a step's check needs outlives the next step's early part: it has a life there too. */

#include "compiler/place/place.h"

#include "compiler/support/vec.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 256u
#define FOREVER UINT32_MAX

struct life {
    uint32_t lo, hi;
};
struct lives {
    VEC(struct life) v;
};

static uint64_t align_up(uint64_t x)
{
    return (x + ALIGN - 1) / ALIGN * ALIGN;
}

struct ranges {
    uint32_t *lo, *hi; /* per instruction */
};

struct clock {
    uint32_t done[NQUEUES];
};

/* lo: compute instructions known done at its start; hi: first compute instruction that knows it done */
static struct ranges find_ranges(struct arena *a, const struct program *p)
{
    struct ranges r = {ARENA_ARRAY(a, uint32_t, p->ninsns), ARENA_ARRAY(a, uint32_t, p->ninsns)};
    struct clock *after = ARENA_ARRAY(a, struct clock, p->ninsns);
    uint32_t *at[NQUEUES], count[NQUEUES], seen[NQUEUES] = {0}, known[NQUEUES] = {0};
    uint32_t *position = ARENA_ARRAY(a, uint32_t, p->ninsns);
    program_positions(p, position, count);
    for (uint32_t q = 0; q < NQUEUES; q++)
        at[q] = ARENA_ARRAY(a, uint32_t, count[q]);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        struct clock now = seen[n->queue] ? after[at[n->queue][seen[n->queue] - 1]] : (struct clock){{0}};
        for (uint32_t w = n->wait; w < n->wait + n->nwaits; w++) {
            const struct clock *c = &after[at[p->waits[w].queue][p->waits[w].position]];
            for (uint32_t q = 0; q < NQUEUES; q++)
                now.done[q] = c->done[q] > now.done[q] ? c->done[q] : now.done[q];
        }
        r.lo[i] = now.done[QUEUE_COMPUTE];
        r.hi[i] = n->queue == QUEUE_COMPUTE ? position[i] : FOREVER;
        if (n->queue == QUEUE_COMPUTE)
            for (uint32_t q = 0; q < NQUEUES; q++)
                for (; q != QUEUE_COMPUTE && known[q] < now.done[q]; known[q]++)
                    r.hi[at[q][known[q]]] = position[i];
        at[n->queue][seen[n->queue]++] = i;
        now.done[n->queue] = seen[n->queue];
        after[i] = now;
    }
    return r;
}

/* bytes of buffer b that instruction i writes without reading any of it; 0 if it reads it too */
static uint64_t overwritten(const struct program *p, const struct insn *n, uint32_t b)
{
    uint64_t bytes = 0;
    for (uint32_t k = n->operand; k < n->operand + isa_info((enum op)n->op)->noperands; k++) {
        const struct operand *o = &p->operands[k];
        if (o->buffer != b)
            continue;
        if (o->mark != MARK_WRITE)
            return 0;
        bytes += (uint64_t)o->rows * o->cols * isa_dtype_bytes((enum dtype)o->dtype);
    }
    return bytes;
}

/* bytes of every buffer up to the last one that anything touches: sizes are rounded up */
static uint64_t *find_used(struct arena *a, const struct program *p)
{
    uint64_t *used = ARENA_ARRAY(a, uint64_t, p->nbuffers + 1u);
    for (uint32_t k = 0; k < p->noperands; k++) {
        const struct operand *o = &p->operands[k];
        if (o->buffer == NONE)
            continue;
        uint64_t span = o->slot == UINT16_MAX ? 0 : (uint64_t)p->slots[o->slot].most * o->slot_stride;
        uint64_t end = o->offset + span + ((uint64_t)(o->rows - 1) * o->ld + o->cols) * isa_dtype_bytes((enum dtype)o->dtype);
        used[o->buffer] = end > used[o->buffer] ? end : used[o->buffer];
    }
    return used;
}

static void live_early(struct arena *a, struct lives *l, uint32_t end)
{
    if (l->v.n && l->v.at[0].lo <= end) {
        l->v.at[0].lo = 0;
        l->v.at[0].hi = end > l->v.at[0].hi ? end : l->v.at[0].hi;
        return;
    }
    vec_push(a, &l->v, (struct life){0});
    memmove(l->v.at + 1, l->v.at, (l->v.n - 1) * sizeof *l->v.at);
    l->v.at[0] = (struct life){0, end};
}

/* buffers of the check are also used from the step's begin to the end of its early part */
static void keep_for_check(struct arena *a, const struct program *p, struct lives *lives)
{
    uint32_t phase[NPHASES + 1], at[NPHASES + 1][NQUEUES];
    if (!program_phases(p, phase) || !program_phase_positions(p, at))
        return;
    uint32_t end = at[PHASE_BODY][QUEUE_COMPUTE];
    for (uint32_t i = phase[PHASE_CHECK]; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        for (uint32_t k = n->operand; k < n->operand + isa_info((enum op)n->op)->noperands; k++) {
            uint32_t b = p->operands[k].buffer;
            if (b != NONE && p->buffers[b].kind == BUFFER_STEP)
                live_early(a, &lives[b], end);
        }
    }
}

static struct lives *find_lives(struct arena *a, const struct program *p)
{
    struct ranges r = find_ranges(a, p);
    const uint64_t *used = find_used(a, p);
    struct lives *lives = ARENA_ARRAY(a, struct lives, p->nbuffers);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        for (uint32_t k = n->operand; k < n->operand + isa_info((enum op)n->op)->noperands; k++) {
            uint32_t b = p->operands[k].buffer;
            if (b == NONE || p->buffers[b].kind != BUFFER_STEP)
                continue;
            struct lives *l = &lives[b];
            bool fresh = p->buffers[b].ring == NONE && overwritten(p, n, b) >= used[b];
            struct life *last = l->v.n ? &l->v.at[l->v.n - 1] : NULL;
            if (!last || (fresh && last->hi < r.lo[i])) {
                vec_push(a, &l->v, (struct life){r.lo[i], r.hi[i]});
            } else {
                last->lo = r.lo[i] < last->lo ? r.lo[i] : last->lo;
                last->hi = r.hi[i] > last->hi ? r.hi[i] : last->hi;
            }
        }
    }
    keep_for_check(a, p, lives);
    return lives;
}

static bool meet(const struct lives *x, const struct lives *y)
{
    for (size_t i = 0, j = 0; i < x->v.n && j < y->v.n;) {
        struct life a = x->v.at[i], b = y->v.at[j];
        if (a.hi < b.lo)
            i++;
        else if (b.hi < a.lo)
            j++;
        else
            return true;
    }
    return false;
}

static int by_size(const void *x, const void *y)
{
    const struct buffer *const *a = x, *const *b = y;
    if ((*a)->bytes != (*b)->bytes)
        return (*a)->bytes > (*b)->bytes ? -1 : 1;
    return *a < *b ? -1 : 1;
}

static int by_offset(const void *x, const void *y)
{
    const struct buffer *const *a = x, *const *b = y;
    return (*a)->offset < (*b)->offset ? -1 : (*a)->offset > (*b)->offset;
}

static void place_one(struct program *p, const struct lives *lives, struct buffer *b, struct buffer **placed, uint32_t n,
                      struct buffer **scratch, uint64_t floor)
{
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++)
        if (meet(&lives[b - p->buffers], &lives[placed[i] - p->buffers]))
            scratch[m++] = placed[i];
    qsort(scratch, m, sizeof *scratch, by_offset);
    uint64_t at = floor;
    for (uint32_t i = 0; i < m; i++) {
        if (scratch[i]->offset >= at + b->bytes)
            break;
        uint64_t end = align_up(scratch[i]->offset + scratch[i]->bytes);
        at = end > at ? end : at;
    }
    b->offset = at;
}

void place_program(struct arena *a, struct program *p, uint64_t host_bytes)
{
    struct arena_mark mark = arena_mark(a);
    struct lives *lives = find_lives(a, p);
    struct buffer **step = ARENA_ARRAY(a, struct buffer *, p->nbuffers), **scratch = ARENA_ARRAY(a, struct buffer *, p->nbuffers);
    uint64_t top = 0;
    uint32_t n = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++) /* host memory comes first, where both programs of a rank find it */
        if (p->buffers[b].host) {
            p->buffers[b].offset = top;
            top = align_up(top + p->buffers[b].bytes);
        }
    top = top > host_bytes ? top : host_bytes;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (p->buffers[b].host) {
            continue;
        } else if (p->buffers[b].kind != BUFFER_STEP) {
            p->buffers[b].offset = top;
            top = align_up(top + p->buffers[b].bytes);
        } else {
            step[n++] = &p->buffers[b];
        }
    uint64_t floor = top;
    qsort(step, n, sizeof *step, by_size);
    for (uint32_t i = 0; i < n; i++) {
        place_one(p, lives, step[i], step, i, scratch, floor);
        uint64_t end = align_up(step[i]->offset + step[i]->bytes);
        top = end > top ? end : top;
    }
    p->arena_bytes = top;
    arena_reset(a, mark);
}
