#ifndef LLMC_EXTENT_H
#define LLMC_EXTENT_H

/* Intervals of rows, columns or contributions that are affine in a rank's coordinates, so that one of them
 * speaks for all ranks of a role. */

#include "compiler/support/arena.h"
#include "compiler/topology/mesh.h"

/* lo + sum step[a] * digit[a], and len elements from there; step is 0 on digits of one rank */
struct extent {
    int64_t lo, len, step[NDIGITS];
    /* After `turn` shifts round a ring of `members`, those of the digits in `ring`: its number is that of the rank as many
     * places before.  0: the own one. */
    uint16_t turn, members;
    uint32_t ring;
};
/* add stride * the number that the digits of a mask make */
void extent_move(struct extent *x, const struct mesh *m, uint32_t mask, int64_t stride);
struct extent extent_new(int64_t lo, int64_t len);
bool extent_same(const struct extent *x, const struct extent *y);
/* the elements at .. at + len of it */
struct extent extent_part(const struct extent *x, int64_t at, int64_t len);
/* times multiply / divide, which must be whole */
struct extent extent_scaled(const struct extent *x, int64_t multiply, int64_t divide);
bool extent_whole(const struct extent *x, int64_t size); /* 0 .. size or more, on every rank */

/* Contributions: for k < count the elements of extent + k * stride; and only on ranks whose coordinates of
 * the digits in `first` are all 0 */
struct block {
    struct extent extent;
    int64_t count, stride;
    uint32_t first;
    uint32_t turns; /* and of so many further turns, from extent's on */
};
bool blocks_same(const struct block *x, const struct block *y);
struct blocks {
    uint32_t n;
    const struct block *at;
};
/* disjoint union of two sets on the same rank; false: they (may) share elements */
bool blocks_union(struct arena *a, const struct blocks *x, const struct blocks *y, struct blocks *out);
/* union over all values of a digit of `size`; false: an element would be counted twice */
bool blocks_reduce(struct arena *a, const struct blocks *x, uint32_t digit, int64_t size, struct blocks *out);
bool blocks_equal(const struct blocks *x, const struct blocks *y);
/* are they all of 0 .. size, on every rank */
bool blocks_whole(const struct blocks *x, int64_t size);
/* "[0, 64) + 32 tp" */
char *blocks_text(struct arena *a, const struct blocks *x);
char *extent_text(struct arena *a, const struct extent *x);

#endif
