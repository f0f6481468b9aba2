#ifndef LLMC_SHRINK_H
#define LLMC_SHRINK_H

/* A plan's structure at dimensions small enough to execute anywhere: at most 16 ranks, widths of a few elements.
 *
 * Kept: schedule and chunks per rank (a listed schedule itself where it is short, else one synthesised for the small
 * shape), sequence parallelism, ZeRO stage and whether state is split partly, recomputation, context kind, expert
 * groups, order of dimensions, kinds of layers at both ends of every stage, ties, biases, norms, precision.  Each
 * degree above 1 stays above 1 as long as 16 ranks allow. */

#include "compiler/emit/plan.h"

#define SHRINK_MOST_RANKS 16

struct shrunk {
    struct job job;
    struct decision decision, alone; /* alone: one rank */
};
/* NULL and *why where nothing small enough is legal */
struct shrunk *shrink_plan(struct arena *a, const struct plan *p, const char **why);

/* a schedule for the decision's pp, vpp, microbatches and placement, made by synthesis for stages of uneven times that
 * the seed draws; NULL where there is none */
const struct schedule *shrink_schedule(struct arena *a, const struct decision *d, uint64_t seed);

#endif
