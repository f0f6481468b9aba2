#ifndef LLMC_STORE_PIECES_H
#define LLMC_STORE_PIECES_H

/* The pieces of a cell: made, and taken out where something else is written.  Private to store*.c. */

#include "compiler/verify/cut.h"
#include "compiler/verify/store.h"

/* all its bytes mean the same */
static inline bool piece_uniform(const struct value *v)
{
    return v->kind == VALUE_ZERO || v->kind == VALUE_BYTES;
}

/* rows with experts, and weights of several, are no interval of rows: a part of them is nothing that has a
 * name */
static inline bool piece_own_rows(const struct value *v, uint64_t from, uint64_t rows, uint64_t all)
{
    return (v->routed || v->member.len) && (from || rows != all);
}

static inline uint64_t piece_end(const struct piece *p)
{
    return p->at + (p->rows - 1) * p->pitch + p->width;
}

/* a piece more, to be written by the caller; pieces of the cell found before may have moved */
struct piece *pieces_add(struct store *s, struct cell *c);
/* other buffers on the same bytes lose what they held there */
void pieces_drop_near(struct store *s, uint32_t cell, const struct region *r);
/* make room for a write; a piece of exactly that shape is returned for reuse */
struct piece *pieces_clear(struct store *s, uint32_t cell, const struct region *r);

#endif
