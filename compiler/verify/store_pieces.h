#ifndef LLMC_STORE_PIECES_H
#define LLMC_STORE_PIECES_H

/* The pieces of a cell: made, and removed where something else is written.  Private to store*.c. */

#include "compiler/verify/cut.h"
#include "compiler/verify/store.h"

/* do all its bytes have the same meaning? */
static inline bool piece_uniform(const struct value *v)
{
    return v->kind == VALUE_ZERO || v->kind == VALUE_BYTES;
}

/* Would a part of the piece have no name?  Rows at experts, and stacked weights of several experts, are no interval
 * of rows. */
static inline bool piece_own_rows(const struct value *v, uint64_t from, uint64_t rows, uint64_t all)
{
    return (v->routed || v->member.len) && (from || rows != all);
}

static inline uint64_t piece_end(const struct piece *p)
{
    return p->at + (p->rows - 1) * p->pitch + p->width;
}

/* Adds a piece, which the caller fills in; pointers to pieces of the cell become invalid. */
struct piece *pieces_add(struct store *s, struct cell *c);
/* Drops what other buffers hold on the same bytes. */
void pieces_drop_near(struct store *s, uint32_t cell, const struct region *r);
/* Removes what a write overlaps; returns a piece of exactly that shape to be reused. */
struct piece *pieces_clear(struct store *s, uint32_t cell, const struct region *r);

#endif
