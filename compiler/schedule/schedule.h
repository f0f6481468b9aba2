#ifndef LLMC_SCHEDULE_H
#define LLMC_SCHEDULE_H

/* Schedules: made by formula, synthesised for given costs, or read from a file; checked, ordered, printed.
 * model/actions.h defines what a schedule is. */

#include "compiler/model/actions.h"
#include "compiler/model/decision.h"

/* Returns NULL, or a sentence on why schedule_new() cannot make the decision's schedule.  The schedule of 'auto' and
 * 'file' is the decision's `listed`. */
const char *schedule_unsupported(struct arena *a, const struct decision *d);
/* Returns the decision's schedule, with O as every rank's last action; NULL where schedule_unsupported() gives a
 * reason. */
struct schedule *schedule_new(struct arena *a, const struct decision *d);
/* Number of forward passes at the beginning of a rank's step that come before the first seam.  For skewed schedules,
 * in which each rank starts its next step by itself: a rank that ends a step earlier than the last rank starts as
 * many forwards of the next step as it may be ahead.  The next rank starts the same ones, or all but the last, whose
 * SEND comes after the seam. */
uint32_t schedule_early(const struct schedule *s, uint32_t rank);
/* A forward-only schedule for evaluation: no B and no O, every stage on the rank where `train` has it.  With two
 * copies of the model (DualPipe) the first runs all microbatches; the other's stages have a rank but no actions. */
struct schedule *schedule_forward(struct arena *a, const struct schedule *train);

/* What schedule_auto() optimises for.  Each stage holds keep_bytes of activations per microbatch from F to I or B,
 * and late_bytes from I to W: the inputs of matrix products that F kept, and the gradients of their outputs. */
struct pipeline_times;
struct schedule_costs {
    const struct pipeline_times *times;
    const double *keep_bytes; /* by stage of the decision; NULL: 1 each */
    const double *late_bytes; /* by stage; NULL: as keep_bytes, everything is held until W */
    const double *most_bytes; /* memory budget by pipeline rank; NULL: no limit */
    bool folds;               /* two stages per rank: r and 2 pp - 1 - r */
    uint64_t budget;          /* approximate number of actions run by the search; 0: a default */
};
/* Returns the fastest schedule found for the decision's pp, vpp and microbatches (its `schedule` is ignored).  By
 * simulate_actions() it is never slower than any formula of that placement that fits in memory.  Deterministic.
 * NULL where a rank cannot hold one microbatch of each of its stages.  *step_s: seconds of its step. */
struct schedule *schedule_auto(struct arena *a, const struct decision *d, const struct schedule_costs *c,
                               double *step_s);
/* Returns a lower bound, in seconds, on the step of every schedule of the placement without overlapped pairs.
 * closely: a bound that takes up to seconds to compute instead of microseconds. */
double schedule_auto_bound_s(struct arena *a, const struct decision *d, const struct schedule_costs *c, bool closely);

/* Is the schedule complete, with every action on the right rank, F before B, I before W, and without cycles?  false,
 * with a sentence in *why, if not. */
bool schedule_check(struct arena *a, const struct schedule *s, const char **why);
/* Returns all actions in an order in which they can run: each rank's as listed, each action after those that it
 * depends on.  The order does not depend on durations.  NULL, with a sentence in *why that names the blocked
 * actions, if there is none.  Linear time. */
struct schedule_step {
    uint32_t rank, index; /* actions[rank][index] */
};
const struct schedule_step *schedule_order(struct arena *a, const struct schedule *s, uint32_t *nsteps,
                                           const char **why);

/* torch's pipeline CSV ("compute only"): one row per rank, cells such as 0F3, 0I3, (0F5;7B3)OVERLAP_F_B; empty cells
 * are idle ticks; O is not written.  schedule_parse() is the inverse and adds O where there are backward actions.
 * It returns NULL, with a sentence in *why that names row and cell, or a schedule that has passed schedule_check().
 * A CSV describes one copy of the model. */
void schedule_print(const struct schedule *s, FILE *out);
struct schedule *schedule_parse(struct arena *a, const char *text, size_t size, const char **why);

#endif
