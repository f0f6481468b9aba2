#ifndef LLMC_PLACE_PRIVATE_H
#define LLMC_PLACE_PRIVATE_H

/* Private to placement: parts, their live ranges (lives), and items, each of which gets an offset.
 *
 * A part is a step buffer on the device that is no ring, or one slot of a ring.  A life of a part is a set of
 * accesses that starts with a write when nothing in the part will be read any more, and ends with the last access
 * before the next such write. */

#include "compiler/place/place.h"

struct part {
    uint32_t buffer, slot;
    uint64_t bytes;
};

/* On the clock of the compute queue, its instruction k runs at time 2 k + 1, and a life is an interval.  An access
 * by another queue begins at 2 n, where n compute instructions are known to be done when it starts, and ends at 2 k,
 * where k is the first compute instruction that knows it to be done, or the queue's end if none does.  If one life
 * ends before another begins on this clock, all of it happens before all of the other. */
struct life {
    uint32_t part, lo, hi;
    uint32_t first, last; /* first and last instruction of the life */
    /* the life whose contents this one holds: itself, except for lives of the step's check */
    uint32_t same;
    uint32_t sure_lo, sure_end; /* compute instructions [lo, end) at which it is live in every run, if any */
};
struct lives {
    uint32_t nparts, nlives;
    struct part *parts;
    uint32_t *first_part; /* by buffer: index of its first part; the parts of a buffer are consecutive */
    struct life *lives;   /* part by part, in program order; then those that the step's check adds */
    uint32_t *first_life; /* by part: index of its first life; lives of the check are not among them */
    uint32_t length;      /* end of the clock */
};

#define PLACE_ALIGN 256u
static inline uint64_t place_align(uint64_t x)
{
    return (x + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

/* cells.c: which bytes of a part each operand touches, as a set of cells */
struct use {
    uint32_t buffer; /* NONE: the operand is in no part */
    uint32_t slot;
    /* sets of cells: touches: of which it accesses any byte; covers: of which it accesses every byte */
    uint64_t touches, covers;
};
struct use *place_uses(struct arena *a, const struct program *p); /* by operand */

/* lives.c */
struct lives *place_lives(struct arena *a, const struct program *p);

/* items.c: what gets an offset of its own: whole buffers, parts, or lives */
struct items {
    uint32_t n, *of;  /* of: the item of each life */
    uint64_t *bytes;  /* by item */
    uint32_t *start;  /* by item: first time on the clock at which it is live */
    uint64_t *length; /* by item: total time on the clock for which it is live */
};
struct items *place_buffers_whole(struct arena *a, const struct lives *l, const struct program *p);
struct items *place_parts_apart(struct arena *a, const struct lives *l);
/* live: most bytes live at a time */
struct items *place_lives_apart(struct arena *a, const struct lives *l, uint64_t live);

/* conflicts.c: which items may be live at the same time: a symmetric matrix of bits with `words` 64-bit words per
 * row */
struct conflicts {
    uint32_t n, words;
    uint64_t *bits;
};
struct conflicts *place_conflicts(struct arena *a, const struct lives *l, const struct items *items);

/* pack.c: chooses the items' offsets, from 0; returns the end of the last byte.  `thorough`: worth about ten times
 * the time; `bound`: no packing ends lower; `enough`: a packing that ends no higher need not be improved. */
uint64_t place_pack(struct arena *a, const struct conflicts *c, const struct items *items, bool thorough,
                    uint64_t bound, uint64_t enough, uint64_t *offset);

/* settle.c: writes the offsets, counted from `floor`, into the program */
void place_settle_buffers(struct program *p, const struct lives *l, const uint64_t *offset, uint64_t floor);
void place_settle_lives(struct arena *a, struct program *p, const struct lives *l, const struct items *items,
                        const uint64_t *offset, uint64_t floor);

#endif
