#ifndef LLMC_PLACE_PRIVATE_H
#define LLMC_PLACE_PRIVATE_H

/* Inside of placement: parts, which get an offset each, and their lives.
 *
 * A part is a buffer of the step on the device, or a slot of such a ring.  A life of a part is a set of accesses that starts
 * with a write while nothing in the part is read any more, and ends with the last access before the next such write. */

#include "compiler/place/place.h"

struct part {
    uint32_t buffer, slot;
    uint64_t bytes;
};

/* On the clock of the compute queue a life is an interval: from the number of its instructions known to be done when the life's
 * first access starts, to the first of its instructions that knows the last access to be done; the queue's length if none does.
 * If one life ends before another one begins, all of it happens before all of the other. */
struct life {
    uint32_t part, lo, hi;
    uint32_t sure_lo, sure_end; /* compute instructions [lo, end) that it is live at in any run, if any */
};
struct lives {
    uint32_t nparts, nlives;
    struct part *parts;
    uint32_t *first_part; /* by buffer; parts of a buffer follow one another */
    struct life *lives;   /* part by part, but for those of the step's check */
    uint32_t length;      /* of the compute queue */
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

/* conflicts.c: parts that may be live at the same time; a symmetric matrix of bits, `words` 64-bit words a row */
struct conflicts {
    uint32_t n, words;
    uint64_t *bits;
};
struct conflicts *place_conflicts(struct arena *a, const struct lives *l);

/* pack.c: offsets from 0 on, by item; the end of the last byte.  `bound`: nothing can end before it; `enough`: what ends no
 * higher need not be improved on. */
uint64_t place_pack(struct arena *a, const struct conflicts *c, const uint64_t *bytes, const uint32_t *start, uint64_t bound,
                    uint64_t enough, uint64_t *offset);

#endif
