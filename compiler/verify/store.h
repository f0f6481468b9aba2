#ifndef LLMC_STORE_H
#define LLMC_STORE_H

/* What the arena of one rank holds while its program is interpreted: per buffer (or slot of a ring) a list of
 * disjoint pieces, each a rectangle of bytes with a value.
 *
 * A write takes its rectangle out of the pieces it overlaps, and drops the pieces of other buffers that
 * placement put on the same bytes.  Where a remainder can't be said as rectangles, the whole piece is
 * dropped: a later read of it is then reported, never believed.  An operand at a slot-dependent offset is the
 * rank's own part of the range that all values of the slot cover together; writing it leaves nothing known of
 * the other parts. */

#include "compiler/verify/prove.h"
#include "compiler/verify/value.h"

struct piece {
    uint64_t at, rows, width, pitch; /* bytes in the cell; rows = 1 is one run */
    uint32_t writer;                 /* instruction; NONE = there from the start */
    uint8_t dtype;
    bool own; /* only the rank's own part of it, by its number in the digits of `mask` */
    uint8_t mask;
    struct value value;
};
struct cell {
    uint64_t start, end; /* arena */
    uint32_t n, room, losses; /* losses: how often a piece has been taken away */
    struct piece *pieces;
    uint32_t near, nnear;
};
struct store {
    struct arena *arena;
    const struct program *program;
    const struct mesh *mesh;
    uint32_t ncells;
    struct cell *cells;
    uint32_t *first; /* first cell of every buffer */
    uint32_t *near;  /* cells that share bytes */
    bool *holds;     /* by cell: it may have pieces */
    struct store_place *place; /* by operand of the program: where it lies */
    uint32_t *hint;            /* likewise: the piece that it has last been */
};
/* where an operand lies.  As long as its cell has no further losses, bytes that were defined there stay so. */
struct store_place {
    struct region region; /* in the cell */
    uint32_t cell;
};

/* part of an operand that one piece gives: rectangle in elements of the operand */
struct part {
    uint32_t row, rows, col, cols;
    uint32_t writer;
    struct value value; /* of that rectangle */
};
#define MOST_PARTS 512
struct parts {
    uint32_t n;
    struct part at[MOST_PARTS];
};

struct store *store_new(struct arena *a, const struct program *p, const struct mesh *m);
/* The parts of an operand without slot, in row, then column order.  false: some of it is not known. */
bool store_read(struct store *s, const struct operand *o, struct parts *out);
/* the one piece that an operand without slot is; NULL if it is none.  Until the next write. */
const struct piece *store_whole(struct store *s, const struct operand *o);
/* write one rectangle of an operand */
void store_write(struct store *s, const struct operand *o, const struct part *part, uint32_t writer);
/* write all of it */
void store_write_whole(struct store *s, const struct operand *o, const struct value *v, uint32_t writer);

/* The operand as a flat run of elements: of all its own bytes, or, at a slot, of the range that all values
 * cover. *mask: 0, or the operand is the part of `out` that the rank's digits in *mask number.
 * false: unknown. */
bool store_read_flat(struct store *s, const struct operand *o, struct whole *out, uint32_t *mask);
/* the same for writing; value pieces must tile `w` */
bool store_write_flat(struct store *s, const struct operand *o, const struct whole *w, uint32_t mask,
                      uint32_t writer);
/* bytes of an operand that nothing has defined (property 5) */
uint64_t store_missing(struct store *s, const struct operand *o);
/* define them, with VALUE_BYTES */
void store_define(struct store *s, const struct operand *o, uint32_t writer);

struct store_place store_find_place(const struct store *s, const struct operand *o);
/* what else lies on these bytes is lost, as by a write */
void store_drop_near(struct store *s, const struct store_place *at);

/* last instruction that wrote into the operand's bytes, NONE = none */
uint32_t store_writer(const struct store *s, const struct operand *o);
/* the digits of an operand's slot if it is a coordinate and the operand one of equal dense parts; 0 if not */
uint32_t store_part(const struct program *p, const struct operand *o);

#endif
