#ifndef LLMC_COMPILE_H
#define LLMC_COMPILE_H

/* The passes after the search, for one decision: from a checked job and cluster to programs in memory. */

#include "compiler/cost/cost.h"
#include "compiler/emit/plan.h"

struct compile_options {
    uint64_t top, budget;
    /* budget, in instructions, for also compiling candidates estimated slightly slower than the best; 0: the default */
    uint64_t near;
    bool full;     /* prove matching and the absence of deadlocks for every rank by itself, too, not only by role */
    bool progress; /* one line per pass on stderr */
    bool unit;     /* unit costs instead of the cost model, for tests of schedules */
    struct cost_unit costs;
};

/* Prints the name of a pass on stderr, on a line that the next one overwrites.  Does nothing unless o->progress. */
void compile_progress(const struct compile_options *o, const char *pass);

/* Runs all of them: lower, place, simulate.  The plan is not verified yet.  NULL, with a sentence in *why, where the
 * lowered step deadlocks. */
struct plan *compile_decision(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                              const struct compile_options *o, const char **why);

/* Runs the first of them only: programs whose buffers have no offsets yet, in a plan without ranks and timeline.
 * With training_alone, evaluation programs are not made, for callers that need only the training step's memory. */
struct plan *compile_lowered(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                             const struct compile_options *o, bool training_alone, struct cost **costs);

#endif
