#ifndef LLMC_CUT_H
#define LLMC_CUT_H

/* Geometry of regions (prove.h): the parts of one that lie in another, in rows and bytes of both. */

#include "compiler/verify/prove.h"

/* a rectangle on the grid of a region: rows, and bytes within a row; from: row and byte of the piece where it
 * starts */
struct cut {
    uint64_t row, rows, col, width;
    uint64_t from_row, from_col;
};
struct cuts {
    uint32_t n;
    struct cut at[4];
};

/* Parts of a piece that lie in a region that it overlaps.  uniform: all its bytes mean the same, so that it
 * has no rows of its own if it is one run.  false: it can't be said in a few rectangles. */
bool cut_piece(const struct region *p, bool uniform, const struct region *r, struct cuts *out);

static inline bool cut_one_run(uint64_t rows, uint64_t width, uint64_t pitch)
{
    return rows == 1 || width == pitch;
}
static inline uint64_t cut_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t cut_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
