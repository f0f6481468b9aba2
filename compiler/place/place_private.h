#ifndef LLMC_PLACE_PRIVATE_H
#define LLMC_PLACE_PRIVATE_H

/* Inside of placement: parts, their lives, and items, which get an offset each.
 *
 * A part is a buffer of the step on the device, or a slot of such a ring.  A life of a part is a set of accesses that starts
 * with a write while nothing in the part is read any more, and ends with the last access before the next such write. */

#include "compiler/place/place.h"

struct part {
    uint32_t buffer, slot;
    uint64_t bytes;
};

/* On the clock of the compute queue its instruction k runs at time 2 k + 1, and a life is an interval.  Accesses by other queues
 * begin at 2 n, where the first n compute instructions are known to be done when they start, and end at 2 k, where k is the first
 * instruction that knows them to be done; the queue's end if none does.  If one life ends before another one begins, all of it
 * happens before all of the other. */
struct life {
    uint32_t part, lo, hi;
    uint32_t first, last;       /* instructions that it begins and ends with */
    uint32_t same;              /* the life, perhaps this one, whose contents these are */
    uint32_t sure_lo, sure_end; /* compute instructions [lo, end) that it is live at in any run, if any */
};
struct lives {
    uint32_t nparts, nlives;
    struct part *parts;
    uint32_t *first_part; /* by buffer; parts of a buffer follow one another */
    struct life *lives;   /* part by part, in the order of the program; behind them those of the step's check */
    uint32_t *first_life; /* by part; those of the check are not among them */
    uint32_t length;      /* of the clock */
};

#define PLACE_ALIGN 256u
static inline uint64_t place_align(uint64_t x)
{
    return (x + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

/* cells.c: what the operands of a part's buffer touch, as sets of its cells */
struct use {
    uint32_t buffer; /* NONE: of no part */
    uint32_t slot;
    uint64_t touches, covers; /* sets; covers: all bytes of which it touches */
};
struct use *place_uses(struct arena *a, const struct program *p); /* by operand */

/* lives.c */
struct lives *place_lives(struct arena *a, const struct program *p);

/* items.c: what gets a place of its own: buffers, parts, or lives */
struct items {
    uint32_t n, *of;  /* by life */
    uint64_t *bytes;  /* by item */
    uint32_t *start;  /* on the clock: the first time that it is live */
    uint64_t *length; /* how long it is, in sum */
};
struct items *place_buffers_whole(struct arena *a, const struct lives *l, const struct program *p);
struct items *place_parts_apart(struct arena *a, const struct lives *l);
struct items *place_lives_apart(struct arena *a, const struct lives *l, uint64_t live); /* live: bytes at a time */

/* conflicts.c: items that may be live at the same time; a symmetric matrix of bits, `words` 64-bit words a row */
struct conflicts {
    uint32_t n, words;
    uint64_t *bits;
};
struct conflicts *place_conflicts(struct arena *a, const struct lives *l, const struct items *items);

/* pack.c: offsets from 0 on, by item; the end of the last byte.  `thorough`: worth about ten times the time; `bound`: nothing can
 * end before it; `enough`: what ends no higher need not be improved on. */
uint64_t place_pack(struct arena *a, const struct conflicts *c, const struct items *items, bool thorough, uint64_t bound,
                    uint64_t enough, uint64_t *offset);

/* settle.c: the program with items where they were packed, from `floor` on */
void place_settle_buffers(struct program *p, const struct lives *l, const uint64_t *offset, uint64_t floor);
void place_settle_lives(struct arena *a, struct program *p, const struct lives *l, const struct items *items,
                        const uint64_t *offset, uint64_t floor);

#endif
