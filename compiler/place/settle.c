/* Writes offsets into the program.
 *
 * A buffer whose parts each have one offset stays a ring, contiguous or scattered.  A buffer with a part that lies
 * at several offsets, one after the other, becomes a scattered ring of the same class, with a slot per offset; which
 * slot an instruction uses follows from the life that it belongs to, so its operands are changed to that slot.
 * Instructions that shared one list of operands may then differ, so they get lists of their own first and share
 * again afterwards. */

#include "compiler/place/place_private.h"

#include "runtime/program_share.h"

#include <string.h>

void place_settle_buffers(struct program *p, const struct lives *l, const uint64_t *offset, uint64_t floor)
{
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (l->first_part[b] < l->first_part[b + 1])
            p->buffers[b].offset = floor + offset[b];
}

struct settling {
    struct program *p;
    const struct lives *l;
    /* by life: its slot among the offsets of its buffer; NONE: each part of the buffer has one offset */
    uint32_t *slot;
    uint64_t *place; /* by slot of the current buffer: its offset */
    uint32_t nplaces;
};

static uint32_t slot_of(struct settling *s, uint64_t place)
{
    uint32_t k = 0;
    while (k < s->nplaces && s->place[k] != place)
        k++;
    s->place[k] = place;
    s->nplaces += k == s->nplaces;
    return k;
}

/* does any part of the buffer lie at several offsets? */
static bool moves(const struct lives *l, const struct items *items, const uint64_t *offset, uint32_t buffer)
{
    for (uint32_t k = l->first_part[buffer]; k < l->first_part[buffer + 1]; k++)
        for (uint32_t i = l->first_life[k] + 1; i < l->first_life[k + 1]; i++)
            if (offset[items->of[i]] != offset[items->of[i - 1]])
                return true;
    return false;
}

static void set_places(struct settling *s, struct buffer *x)
{
    struct program *p = s->p;
    x->offset = s->place[0];
    x->scattered = false;
    for (uint32_t k = 1; k < s->nplaces && !x->scattered; k++)
        x->scattered = s->place[k] != s->place[0] + k * x->stride;
    x->place = x->scattered ? p->nplaces : 0;
    for (uint32_t k = 0; x->scattered && k < s->nplaces; k++)
        program_add_place(p, s->place[k]);
}

static void settle_buffer(struct settling *s, const struct items *items, const uint64_t *offset, uint64_t floor,
                          uint32_t b)
{
    const struct lives *l = s->l;
    struct buffer *x = &s->p->buffers[b];
    s->nplaces = 0;
    if (!moves(l, items, offset, b)) {
        for (uint32_t k = l->first_part[b]; k < l->first_part[b + 1]; k++) {
            uint32_t i = l->first_life[k];
            s->place[s->nplaces++] = floor + (i < l->first_life[k + 1] ? offset[items->of[i]] : 0);
        }
        set_places(s, x);
        return;
    }
    for (uint32_t k = l->first_part[b]; k < l->first_part[b + 1]; k++)
        for (uint32_t i = l->first_life[k]; i < l->first_life[k + 1]; i++)
            s->slot[i] = slot_of(s, floor + offset[items->of[i]]);
    struct ring class = {.name = "temporaries"};
    if (x->ring != NONE)
        class = s->p->rings[x->ring];
    x->ring = program_ring(s->p, class.name, s->nplaces);
    x->bytes = s->nplaces * x->stride;
    set_places(s, x);
}

/* Points every operand at the slot of the life that its instruction belongs to. */
static void move_operands(struct arena *a, struct settling *s)
{
    struct program *p = s->p;
    const struct lives *l = s->l;
    uint32_t *at = ARENA_ARRAY(a, uint32_t, l->nparts + 1u);
    memcpy(at, l->first_life, l->nparts * sizeof *at);
    program_unshare(p);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct isa_info *info = isa_info(p->insns[i].op);
        for (struct operand *o = p->operands + p->insns[i].operand, *end = o + info->noperands; o < end; o++) {
            if (o->buffer == NONE || l->first_part[o->buffer] == l->first_part[o->buffer + 1])
                continue;
            uint64_t stride = p->buffers[o->buffer].stride;
            uint32_t part = l->first_part[o->buffer] + (uint32_t)(o->offset / stride);
            while (at[part] + 1 < l->first_life[part + 1] && l->lives[at[part] + 1].first <= i)
                at[part]++;
            if (s->slot[at[part]] != NONE)
                o->offset = s->slot[at[part]] * stride + o->offset % stride;
        }
    }
    struct program_bodies *bodies = program_bodies_new();
    program_share(p, bodies, 0);
    program_bodies_free(bodies);
    program_trim(p);
}

void place_settle_lives(struct arena *a, struct program *p, const struct lives *l, const struct items *items,
                        const uint64_t *offset, uint64_t floor)
{
    struct settling s = {.p = p, .l = l};
    uint32_t nrings = p->nrings;
    s.slot = ARENA_ARRAY(a, uint32_t, l->nlives + 1u);
    s.place = ARENA_ARRAY(a, uint64_t, (size_t)l->nlives + l->nparts + 1);
    memset(s.slot, 0xff, l->nlives * sizeof *s.slot);
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (l->first_part[b] < l->first_part[b + 1])
            settle_buffer(&s, items, offset, floor, b);
    if (p->nrings > nrings)
        move_operands(a, &s);
}
