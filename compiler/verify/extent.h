#ifndef LLMC_EXTENT_H
#define LLMC_EXTENT_H

/* Intervals of rows, columns or contributions whose start is affine in a rank's coordinates, so that one interval
 * describes all ranks of a role. */

#include "compiler/support/arena.h"
#include "compiler/topology/mesh.h"

/* len elements from lo + sum step[a] * digit[a]; step is 0 for digits of size 1 */
struct extent {
    int64_t lo, len, step[NDIGITS];
    /* After `turn` shifts round a ring of `members` ranks, given by the digits in `ring`: the interval of the rank
     * that is so many places before this one.  0: this rank's own. */
    uint16_t turn, members;
    uint32_t ring;
};
/* moves an interval by stride * (the number that the digits of a mask form) */
void extent_move(struct extent *x, const struct mesh *m, uint32_t mask, int64_t stride);
struct extent extent_new(int64_t lo, int64_t len);
bool extent_same(const struct extent *x, const struct extent *y);
/* its elements at .. at + len - 1 */
struct extent extent_part(const struct extent *x, int64_t at, int64_t len);
/* scales it by multiply / divide; the results must be integers */
struct extent extent_scaled(const struct extent *x, int64_t multiply, int64_t divide);
bool extent_whole(const struct extent *x, int64_t size); /* does it cover 0 .. size - 1 on every rank? */

/* A set of contributions: for k < count the elements of extent + k * stride; only on ranks whose coordinates of the
 * digits in `first` are all 0. */
struct block {
    struct extent extent;
    int64_t count, stride;
    uint32_t first;
    uint32_t turns; /* and those of so many further turns, following extent's */
};
bool blocks_same(const struct block *x, const struct block *y);
struct blocks {
    uint32_t n;
    const struct block *at;
};
/* disjoint union of two sets on the same rank; false: they (may) share elements */
bool blocks_union(struct arena *a, const struct blocks *x, const struct blocks *y, struct blocks *out);
/* union over all values of a digit of size `size`; false: an element would be counted twice */
bool blocks_reduce(struct arena *a, const struct blocks *x, uint32_t digit, int64_t size, struct blocks *out);
bool blocks_equal(const struct blocks *x, const struct blocks *y);
/* do they cover 0 .. size - 1 on every rank? */
bool blocks_whole(const struct blocks *x, int64_t size);
/* "[0, 64) + 32 tp" */
char *blocks_text(struct arena *a, const struct blocks *x);
char *extent_text(struct arena *a, const struct extent *x);

#endif
