#ifndef LLMC_SEARCH_H
#define LLMC_SEARCH_H

/* Search over legal decisions: space.c enumerates what wishes, job and cluster allow; search.c bounds and ranks;
 * neighbours.c answers what would happen if one thing were different, beyond.c what with another target; blame.c
 * explains why nothing was found. */

#include "compiler/cost/cost.h"

struct candidate {
    struct decision decision;
    struct estimate estimate;
    bool emittable;
    const char *cannot;    /* what the lowering cannot emit, if not emittable */
    uint64_t placed_bytes; /* bytes of the fullest arena, if the candidate was compiled; else 0 */
    double simulated_s;    /* simulated seconds of a step, if that arena fits; else 0 */
};

/* Reasons for which parts of the space are cut off.  What is counted are branches, each of one to very many
 * configurations, not the unit of `space`, `evaluated` and `pruned`. */
enum removal {
    REMOVED_BOUND,  /* cannot be faster than what was found: not opened */
    REMOVED_MEMORY, /* do not fit in memory */
    REMOVED_KEEP,   /* meshes that a 'keep' forbids, or that the nodes cannot hold in one piece */
    REMOVED_TIME,   /* slower than 'step_time' or 'finish' */
    REMOVED_EMIT,   /* fit in memory but cannot be emitted (emit_only) */
    REMOVED_SAME,   /* meshes: orders of axes that cost the same as another one */
    NREMOVALS
};
extern const char *const removal_names[NREMOVALS]; /* "memory" ... */

struct search_result {
    /* Configurations: in the space (count.c; 0 in a search for neighbours); evaluated one by one; ruled out without
     * evaluation.  The rest is what the budget did not reach. */
    uint64_t space, evaluated, pruned;
    uint64_t budget, spent; /* work allowed and done, in units of about one evaluation in closed form */
    uint64_t illegal;
    uint64_t simulated;          /* candidates whose schedule was simulated action by action */
    uint64_t removed[NREMOVALS]; /* branches, by enum removal */
    uint32_t ncandidates;        /* best first, at most `top` */
    struct candidate *candidates;
    /* if nothing fits: the decision that exceeds the memory by the least */
    bool has_closest;
    struct candidate closest;
    uint64_t memory_limit_bytes;
    /* gap: 0: no decision of the space is better than the best candidate; else (best - bound of the rest) / best.
     * given_up: the part of it that is known: the candidate `fastest` is faster by that share but not first, since
     * the first is simpler. */
    double gap, given_up;
    struct candidate fastest;
    /* search() with emit_only: of the decisions that fit but cannot be emitted the best one that was met, if it is
     * better than all candidates */
    bool has_refused;
    struct candidate refused;
    /* lower bound on the objective of any decision, in seconds or GPU-seconds, by estimates and of what was compiled */
    double least;
    double seconds;
};
#define SEARCH_BUDGET 3000000 /* about half a minute of work */
#define SEARCH_FIRST 1000
#define SEARCH_MORE 4 /* factor on the budget to suggest where it ended the search early */
/* Returns candidates best first by the job's objective.
 *
 * budget: the work after which the search ends; 0 = SEARCH_BUDGET.  After a twentieth of it, and at least
 * SEARCH_FIRST, a gap of one percent is good enough, after a quarter one of 2.5 %; while nothing has been found the
 * search goes on for ten times a twentieth. An evaluation or a bound counts 1, a simulated schedule 1 per 32
 * actions, cutting a stage 1 per layer, so the result depends on no clock.  Where nothing is found, ncandidates is 0
 * and one error in d says why and what would help.  emit_only: rank only what the lowering can emit (llmc plan);
 * false for llmc estimate. */
struct search_result *search(struct arena *a, struct diag *d, const struct job *job, const struct topo *topo,
                             uint32_t top, uint64_t budget, bool emit_only);

/* Finds the plan on the fewest GPUs that keeps 'step_time' and 'finish' (as far as a default budget tells); false if
 * there is none or no limit is stated. */
bool search_gpus_needed(struct arena *a, const struct job *job, const struct topo *topo, bool emit_only,
                        struct candidate *out);

/* Finds the best decision that the job's target has not all means for, by its own figures and with so much work; false
 * where the best of all is one that it has.  *lacks: what it has not, as "schedule zb_v". */
bool search_beyond(struct arena *a, const struct job *job, const struct topo *topo, uint64_t budget,
                   struct candidate *x, const char **lacks);
/* The best decision for each target, by its own figures; returns how many targets there are. */
struct target_best {
    const struct job *job; /* with this target */
    bool found;
    struct candidate candidate;
    const char *why; /* there is none, or NULL */
};
uint32_t search_targets(struct arena *a, const struct job *job, const struct topo *topo, uint64_t budget,
                        struct target_best **out);

/* The choices that make up a decision.  A neighbour differs from the winner in one of them: it has the best other
 * value while the others keep theirs; dp makes up for the number of GPUs, microbatches and shard follow, and stages
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
    bool found;  /* false: no other value exists, fits in memory or is allowed by the wishes */
    bool memory; /* if !found: other values exist but none fits; candidate is the closest miss */
    bool wished; /* the wishes allow no other value, so the neighbour ignores them in this dimension */
    struct candidate candidate;
    double slower; /* objective of the candidate / the winner's - 1; negative only where wishes were ignored */
};
/* Fills out[NDIMENSIONS], by dimension.  Wishes hold, except that the dimension itself is free where the wishes pin
 * it (`wished`). */
void search_neighbours(struct arena *a, const struct job *job, const struct topo *topo, const struct candidate *winner,
                       bool emit_only, struct neighbour *out);

/* The best plan without one of the stated wishes.  search_relaxations() returns how many there are, in *out by line
 * of the file; budget: work per wish, 0: a default. */
struct relaxation {
    const char *wish; /* "tp", "keep", "memory" ... */
    struct span span;
    bool found;
    struct candidate candidate;
};
uint32_t search_relaxations(struct arena *a, const struct job *job, const struct topo *topo, bool emit_only,
                            uint64_t budget, struct relaxation **out);

/* Single changes of a decision that does not fit, evaluated: what each would save and cost; those that fit come
 * first. */
struct remedy {
    const char *name; /* "recompute full", "pp 32" */
    struct candidate candidate;
    uint64_t saves_bytes;
    double slower; /* step time / the decision's - 1 */
    bool fits;
};
uint32_t search_remedies(struct arena *a, const struct job *job, const struct topo *topo, const struct candidate *miss,
                         uint64_t limit_bytes, bool emit_only, struct remedy **out);

#endif
