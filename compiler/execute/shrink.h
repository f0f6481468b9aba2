#ifndef LLMC_SHRINK_H
#define LLMC_SHRINK_H

/* A plan's structure at dimensions small enough to execute anywhere: at most 16 ranks, and widths of a few elements.
 *
 * Preserved: the schedule and the chunks per rank (a schedule that is a list itself where it is short, otherwise one
 * synthesised for the small shape), sequence parallelism, the ZeRO stage and whether state is split over only some
 * of the replicas, recomputation, the kind of context parallelism, expert groups, the order of dimensions, the kinds
 * of layers at both ends of every stage, ties, biases, norms, precision.  Every degree above 1 stays above 1 as far
 * as 16 ranks allow. */

#include "compiler/emit/plan.h"

#define SHRINK_MOST_RANKS 16

struct shrunk {
    struct job job;
    struct decision decision, alone; /* alone: for a single rank */
};
/* Returns NULL, and sets *why, where no small enough dimensions are legal. */
struct shrunk *shrink_plan(struct arena *a, const struct plan *p, const char **why);

/* Synthesises a schedule for the decision's pp, vpp, microbatches and placement, for stages of uneven times drawn
 * from the seed; NULL where there is none. */
const struct schedule *shrink_schedule(struct arena *a, const struct decision *d, uint64_t seed);

#endif
