#ifndef LLMC_COMPILE_H
#define LLMC_COMPILE_H

/* The passes behind the search, for one decision: from a checked job and cluster to programs in memory. */

#include "compiler/cost/cost.h"
#include "compiler/emit/plan.h"

struct compile_options {
    uint64_t top, budget;
    uint64_t near; /* instructions up to which candidates that only come near the best are compiled, too; 0: as usual */
    bool full;     /* verify with all ranks unfolded */
    bool progress; /* one line per pass on stderr */
    bool unit;     /* unit costs instead of the cost model, for tests of schedules */
    struct cost_unit costs;
};

/* one line on stderr that the next one takes the place of, where progress is wanted */
void compile_progress(const struct compile_options *o, const char *pass);

/* All of them: lower, place, simulate.  Not verified yet; NULL and a sentence where the lowered step gets stuck. */
struct plan *compile_decision(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                              const struct compile_options *o, const char **why);

/* The first of them: programs whose buffers have no places yet, of a plan that has neither ranks nor times yet; without the
 * evaluation's where only the training step's memory is asked for. */
struct plan *compile_lowered(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                             const struct compile_options *o, bool training_alone, struct cost **costs);

#endif
