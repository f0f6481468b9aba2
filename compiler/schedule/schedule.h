#ifndef LLMC_SCHEDULE_H
#define LLMC_SCHEDULE_H

/* Schedules: made by formula, synthesised for given costs, read from a file; checked, ordered, printed.  What one is:
 * model/actions.h. */

#include "compiler/model/actions.h"
#include "compiler/model/decision.h"

/* NULL, or a sentence on why schedule_new() cannot make the decision's schedule; of 'auto' and 'file' it is the
 * decision's `listed` */
const char *schedule_unsupported(struct arena *a, const struct decision *d);
/* the decision's schedule; O is appended to every rank; NULL where schedule_unsupported() says so */
struct schedule *schedule_new(struct arena *a, const struct decision *d);
/* which pipeline rank runs a stage */
uint32_t schedule_rank(const struct schedule *s, uint32_t stage);
/* Forward passes in front of the first seam, where steps follow each other on every rank by itself: a rank that ends its step
 * earlier than the last one begins the next with as many as it may be ahead.  Of one rank's the next one has all, or all but the
 * last, whose SEND stands behind the seam. */
uint32_t schedule_early(const struct schedule *s, uint32_t rank);
/* Forward only, for evaluation: no B and no O, every stage where `train` has it.  Of two copies the first runs all
 * microbatches; the other's stages have a rank but no actions. */
struct schedule *schedule_forward(struct arena *a, const struct schedule *train);

/* What schedule_auto() makes a schedule for.  A rank's activations: of a stage keep_bytes from each F to its I or B,
 * and late_bytes from each I to its W: inputs of products that F kept, and gradients of their outputs. */
struct pipeline_times;
struct schedule_costs {
    const struct pipeline_times *times;
    const double *keep_bytes; /* by stage of the decision; NULL: 1 each */
    const double *late_bytes; /* by stage; NULL: as keep_bytes, all stays until W */
    const double *most_bytes; /* by pipeline rank; NULL: no limit */
    bool folds;               /* two stages per rank: r and 2 pp - 1 - r */
    uint64_t budget;          /* actions run in the search, about; 0: a usual number */
};
/* The fastest schedule found for the decision's pp, vpp and microbatches (its `schedule` is not looked at):
 * never slower in simulate_actions() than any formula's of that placement that fits.  Deterministic.  NULL
 * where a rank cannot hold one microbatch of each of its stages.  *step_s: its seconds. */
struct schedule *schedule_auto(struct arena *a, const struct decision *d, const struct schedule_costs *c,
                               double *step_s);
/* Seconds that no schedule of the placement without overlapped pairs goes below; closely: a bound that takes up
 * to seconds to find, otherwise microseconds. */
double schedule_auto_bound_s(struct arena *a, const struct decision *d, const struct schedule_costs *c,
                             bool closely);

/* Complete, on the right rank, F before B, I before W, and free of cycles; false and one sentence if not. */
bool schedule_check(struct arena *a, const struct schedule *s, const char **why);
/* All actions in an order in which they can run: on a rank as listed, behind what they depend on; the order
 * does not depend on durations.  NULL and a sentence naming the blocked actions when there is none.  Linear
 * time. */
struct schedule_step {
    uint32_t rank, index; /* actions[rank][index] */
};
const struct schedule_step *schedule_order(struct arena *a, const struct schedule *s, uint32_t *nsteps,
                                           const char **why);

/* torch's pipeline CSV ("compute only"): one row per rank, cells such as 0F3, 0I3, (0F5;7B3)OVERLAP_F_B;
 * empty cells are idle ticks; O is not written.  parse is the inverse: it adds O where there are backward
 * actions.  NULL and a sentence naming row and cell; the result is complete and can run (it went through
 * schedule_check()).  A CSV has one copy. */
void schedule_print(const struct schedule *s, FILE *out);
struct schedule *schedule_parse(struct arena *a, const char *text, size_t size, const char **why);

#endif
