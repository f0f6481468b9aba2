#ifndef LLMC_LLMC_H
#define LLMC_LLMC_H

/* All passes in order, from a checked job and cluster to a verified plan in memory. */

#include "compiler/emit/plan.h"
#include "compiler/search/search.h"
#include "compiler/verify/verify.h"

enum { COMPILE_TOP = 16 }; /* candidates that are kept where nobody says how many */

struct compile_options {
    uint64_t top, budget;
    uint64_t near; /* instructions up to which candidates that only come near the best are compiled, too; 0: as usual */
    bool full;     /* verify with all ranks unfolded */
    bool progress; /* one line per pass on stderr */
    bool unit;     /* unit costs instead of the cost model, for tests of schedules */
    struct cost_unit costs;
};

/* The best plan that fits.  STATUS_NO_PLAN after diagnostics when nothing satisfies the constraints; STATUS_BUG and the
 * verdict when what was lowered does not verify. */
enum status compile_job(struct arena *a, struct diag *d, struct job *job, struct topo *topo, const struct compile_options *o,
                        struct plan **plan, struct verdict **verdict);

/* The same without the proofs: what a plan of these inputs and bounds is.  found: NULL, or the search that it comes from, also
 * where no plan did (STATUS_NO_PLAN). */
enum status compile_best(struct arena *a, struct diag *d, struct job *job, struct topo *topo,
                         const struct compile_options *o, struct plan **plan, struct search_result **found);
/* The figures of the search that p comes from, which kept `top` candidates.  Its gap is the plan's: between its simulated
 * step and the least that the search's bounds leave to any other decision. */
struct plan_search compile_found(const struct plan *p, const struct search_result *found, uint32_t top);

/* The passes behind the search, for one decision: lower, place, simulate.  Not verified yet. */
struct plan *compile_decision(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                              const struct compile_options *o, const char **why);

/* The first of them: programs whose buffers have no places yet, of a plan that has neither ranks nor times yet; without the
 * evaluation's where only the training step's memory is asked for. */
struct plan *compile_lowered(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                             const struct compile_options *o, bool training_alone, struct cost **costs);

#endif
