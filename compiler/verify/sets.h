#ifndef LLMC_SETS_H
#define LLMC_SETS_H

/* Sets of contributions (extent.h) with memoisation: every layer of a microbatch sums over the same tokens, so
 * almost every union has been computed before, and its result is shared. */

#include "compiler/verify/extent.h"

struct sets;
struct sets *sets_new(struct arena *a);
/* a set of one block, which lives as long as the arena */
struct blocks sets_one(struct sets *s, const struct block *b);
/* memoised blocks_union() and blocks_reduce() */
bool sets_union(struct sets *s, const struct blocks *x, const struct blocks *y, struct blocks *out);
bool sets_reduce(struct sets *s, const struct blocks *x, uint32_t digit, int64_t size, struct blocks *out);

#endif
