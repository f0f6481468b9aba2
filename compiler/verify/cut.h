#ifndef LLMC_CUT_H
#define LLMC_CUT_H

/* Geometry of regions (prove.h): the parts of one region that lie in another, in rows and bytes of both. */

#include "compiler/verify/prove.h"

/* a rectangle in a region: rows, and bytes within a row; from: row and byte of the piece at which it starts */
struct cut {
    uint64_t row, rows, col, width;
    uint64_t from_row, from_col;
};
struct cuts {
    uint32_t n;
    struct cut at[4];
};

/* Finds the parts of a piece that lie in a region that it overlaps.  uniform: all its bytes have the same meaning,
 * so if it is one run it has no rows of its own.  false: the overlap is not a few rectangles. */
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
