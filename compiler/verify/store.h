#ifndef LLMC_STORE_H
#define LLMC_STORE_H

/* What the arena of one rank holds while its program is interpreted: for every buffer (or slot of a ring) a list of
 * disjoint pieces, each a rectangle of bytes with an abstract value.
 *
 * A write removes its rectangle from the pieces that it overlaps, and drops the pieces of other buffers that
 * placement put on the same bytes.  Where what remains of a piece is not rectangular, the whole piece is dropped: a
 * later read of it is then reported, never believed.  An operand at a slot-dependent offset is this rank's part of
 * the range that all values of the slot cover together; writing it makes the other parts unknown. */

#include "compiler/verify/prove.h"
#include "compiler/verify/value.h"

struct piece {
    uint64_t at, rows, width, pitch; /* bytes, relative to its cell; rows = 1: one run */
    uint32_t writer;                 /* instruction that wrote it; NONE: there from the start */
    uint8_t dtype;
    bool own; /* only this rank's part of it is known, whose index is the number formed by the digits of `mask` */
    uint8_t mask;
    struct value value;
};
struct cell {
    uint64_t start, end;      /* range in the arena, bytes */
    uint32_t n, room, losses; /* losses: how often a piece has been removed */
    struct piece *pieces;
    uint32_t near, nnear;
};
struct store {
    struct arena *arena;
    const struct program *program;
    const struct mesh *mesh;
    uint32_t ncells;
    struct cell *cells;
    uint32_t *first;           /* first cell of every buffer */
    uint32_t *near;            /* cells that share bytes */
    bool *holds;               /* by cell: it may hold pieces */
    struct store_place *place; /* by operand of the program: its place */
};
/* An operand's place.  While its cell has no further losses, bytes that were defined there stay defined. */
struct store_place {
    struct region region; /* relative to the cell */
    uint32_t cell;
    uint32_t hint; /* index of the piece that it last was */
};

/* a part of an operand that comes from one piece: a rectangle in elements of the operand */
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
/* Reads an operand without slot as parts, by row, then column.  false: some of it is unknown. */
bool store_read(struct store *s, const struct operand *o, struct parts *out);
/* Brings into the cache what an access to the program's operand k will look at.  Programs are long, so almost every
 * access is the first to its cache line for a while. */
static inline void store_expect_place(const struct store *s, uint32_t k)
{
    __builtin_prefetch(&s->place[k]);
    __builtin_prefetch(&s->program->operands[k]);
}
static inline void store_expect_cell(const struct store *s, uint32_t k)
{
    __builtin_prefetch(&s->cells[s->place[k].cell]);
}
static inline void store_expect_piece(const struct store *s, uint32_t k)
{
    const struct cell *c = &s->cells[s->place[k].cell];
    __builtin_prefetch(&s->near[c->near]);
    if (!c->n)
        return;
    const char *piece = (const char *)&c->pieces[s->place[k].hint < c->n ? s->place[k].hint : 0];
    __builtin_prefetch(piece);
    __builtin_prefetch(piece + 64);
    __builtin_prefetch(piece + 128);
}
/* The piece that is exactly an operand without slot; NULL if there is none.  Valid until the next write. */
const struct piece *store_whole(struct store *s, const struct operand *o);
/* writes one rectangle of an operand */
void store_write(struct store *s, const struct operand *o, const struct part *part, uint32_t writer);
/* writes the whole operand */
void store_write_whole(struct store *s, const struct operand *o, const struct value *v, uint32_t writer);

/* Reads an operand as a flat list of elements: of all its own bytes or, at a slot, of the range that all values of
 * the slot cover. *mask: 0, or the operand is the part of `out` whose index is the number formed by the digits in
 * *mask.  false: unknown. */
bool store_read_flat(struct store *s, const struct operand *o, struct whole *out, uint32_t *mask);
/* The same for writing; the stretches must tile `w`. */
bool store_write_flat(struct store *s, const struct operand *o, const struct whole *w, uint32_t mask, uint32_t writer);
/* number of bytes of an operand that nothing has defined (property 5) */
uint64_t store_missing(struct store *s, const struct operand *o);
/* marks them as defined, with VALUE_BYTES */
void store_define(struct store *s, const struct operand *o, uint32_t writer);

struct store_place store_find_place(const struct store *s, const struct operand *o);
/* Drops what other buffers hold on these bytes, as a write does. */
void store_drop_near(struct store *s, const struct store_place *at);

/* the last instruction that wrote into the operand's bytes, or NONE */
uint32_t store_writer(const struct store *s, const struct operand *o);
/* the digits of an operand's slot if that is a coordinate and selects one of equal dense parts; else 0 */
uint32_t store_part(const struct program *p, const struct operand *o);

#endif
