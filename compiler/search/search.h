#ifndef LLMC_SEARCH_H
#define LLMC_SEARCH_H

/* Search over legal decisions: space.c enumerates what wishes, job and cluster allow; search.c bounds and ranks. */

#include "compiler/cost/cost.h"

struct candidate {
    struct decision decision;
    struct estimate estimate;
    bool emittable;
    const char *cannot; /* what the lowering lacks, if not emittable */
};
struct search_result {
    uint64_t space, evaluated, pruned, infeasible_memory, illegal;
    uint32_t ncandidates; /* best first, at most `top` */
    struct candidate *candidates;
    /* when nothing fits: the closest miss, and the constraint that removed most candidates */
    bool has_closest;
    struct candidate closest;
    uint64_t memory_limit_bytes;
    double gap; /* 0: everything better than the best is ruled out; else (best - bound of the rest) / best */
    double seconds;
};
/* Best first by the job's objective.  budget: evaluations, 0 = enough for about a second.  Where nothing is found,
 * ncandidates is 0 and one error in d says why and what would help.  emit_only: rank only what the lowering can emit
 * (llmc plan); false for llmc estimate. */
struct search_result *search(struct arena *a, struct diag *d, const struct job *job, const struct topo *topo, uint32_t top,
                             uint64_t budget, bool emit_only);

#endif
