#ifndef LLMC_SEARCH_H
#define LLMC_SEARCH_H

/* Search over legal decisions: space.c enumerates what wishes, job and cluster allow; search.c bounds and
 * ranks; neighbours.c asks what would be if one thing were different; blame.c says why nothing was found. */

#include "compiler/cost/cost.h"

struct candidate {
    struct decision decision;
    struct estimate estimate;
    bool emittable;
    const char *cannot; /* what the lowering lacks, if not emittable */
    uint64_t placed_bytes; /* of the fullest arena, where the candidate was compiled; else 0 */
    double simulated_s;    /* of a step, where that arena fits; else 0 */
};

/* What cuts parts off the space.  Counted are branches, each of one configuration to very many: not the unit of `space`,
 * `evaluated` and `pruned`. */
enum removal {
    REMOVED_BOUND,  /* can't be faster than what was found: not looked at */
    REMOVED_MEMORY, /* don't fit */
    REMOVED_KEEP,   /* meshes that a 'keep' forbids, or that the nodes can't hold in one piece */
    REMOVED_TIME,   /* slower than 'step_time' or 'finish' */
    REMOVED_EMIT,   /* fit, but can't be emitted (emit_only) */
    REMOVED_SAME,   /* axis orders that cost the same as one already there: meshes */
    NREMOVALS
};
extern const char *const removal_names[NREMOVALS]; /* "memory" ... */

struct search_result {
    /* configurations: of the space (count.c; 0 from a search for neighbours); looked at one by one; ruled out without that,
     * which leaves those that the budget did not reach */
    uint64_t space, evaluated, pruned;
    uint64_t budget, spent; /* work, by about what an evaluation in closed form takes */
    uint64_t illegal;
    uint64_t simulated;          /* candidates whose schedule was run action by action */
    uint64_t removed[NREMOVALS]; /* branches, by enum removal */
    uint32_t ncandidates;        /* best first, at most `top` */
    struct candidate *candidates;
    /* when nothing fits: the closest miss, and the constraint that removed most candidates */
    bool has_closest;
    struct candidate closest;
    uint64_t memory_limit_bytes;
    /* 0: everything better than the best is ruled out; else (best - bound of the rest) / best.  Of it given_up is known:
     * `fastest` is faster by that share, and not first, for the first is plainer. */
    double gap, given_up;
    struct candidate fastest;
    double least; /* no decision's objective is less, in seconds or GPU-seconds; by estimates, and of what was compiled */
    double seconds;
};
#define SEARCH_BUDGET 3000000 /* work of about twenty seconds */
#define SEARCH_FIRST 1000
#define SEARCH_MORE 4 /* times the budget: what to try where one ended before the space */
/* Best first by the job's objective.  budget: the work after which the search ends, ten times a twentieth of it while nothing
 * has been found; 0 = SEARCH_BUDGET.  After a twentieth of it, and SEARCH_FIRST, a gap of a percent is good enough, after a
 * quarter one of 2.5.  An evaluation or a bound counts 1, a schedule that is simulated 1 for every 32 actions, a stage's cut 1
 * for each of its layers; so the answer depends on no clock.  Where nothing is found, ncandidates is 0 and one error in d says
 * why and what would help.  emit_only: rank only what the lowering can emit (llmc plan); false for llmc estimate. */
struct search_result *search(struct arena *a, struct diag *d, const struct job *job, const struct topo *topo,
                             uint32_t top, uint64_t budget, bool emit_only);

/* GPUs needed for a deadline: the plan on the fewest that keeps 'step_time' and 'finish' (as far as a usual
 * budget sees); false if there is none or no limit is stated. */
bool search_gpus_needed(struct arena *a, const struct job *job, const struct topo *topo, bool emit_only,
                        struct candidate *out);

/* What a decision chooses, one by one.  A neighbour differs in one of them: it takes its best other value
 * while the others keep theirs; dp makes up for the number of GPUs, microbatches and shard follow, and stages
 * are cut anew. */
enum dimension {
    DIM_TP,
    DIM_SP,
    DIM_CP,
    DIM_CONTEXT,
    DIM_PP,
    DIM_VPP,
    DIM_EP,
    DIM_ETP,
    DIM_ZERO,
    DIM_SHARD,
    DIM_MICROBATCH,
    DIM_RECOMPUTE,
    DIM_SCHEDULE,
    DIM_ORDER,
    DIM_GPUS,
    NDIMENSIONS
};
extern const char *const dimension_names[NDIMENSIONS]; /* "tp" ... */

struct neighbour {
    enum dimension dimension;
    bool found;  /* false: no other value exists, fits or is allowed by the wishes */
    bool memory; /* !found: other values exist but the best of them does not fit: candidate is the closest */
    bool wished; /* the wishes leave no other value */
    struct candidate candidate;
    double
        slower; /* objective of the candidate / the winner's - 1; below 0 only where wishes were given up */
};
/* out[NDIMENSIONS], by dimension.  Wishes hold, save that the dimension itself is free where the wishes pin
 * it (`wished`). */
void search_neighbours(struct arena *a, const struct job *job, const struct topo *topo,
                       const struct candidate *winner, bool emit_only, struct neighbour *out);

/* What dropping one stated wish would change: the best plan without it.  Returns an arena array by line of
 * the file. */
struct relaxation {
    const char *wish; /* "tp", "keep", "memory" ... */
    struct span span;
    bool found;
    struct candidate candidate;
};
uint32_t search_relaxations(struct arena *a, const struct job *job, const struct topo *topo, bool emit_only,
                            uint64_t budget, struct relaxation **out);

/* Single changes of a decision that does not fit, evaluated: what each would save and cost, those that fit
 * first. */
struct remedy {
    const char *name; /* "recompute full", "pp 32" */
    struct candidate candidate;
    uint64_t saves_bytes;
    double slower; /* step time against the decision's - 1 */
    bool fits;
};
uint32_t search_remedies(struct arena *a, const struct job *job, const struct topo *topo,
                         const struct candidate *miss, uint64_t limit_bytes, bool emit_only,
                         struct remedy **out);

#endif
