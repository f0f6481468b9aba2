#ifndef LLMC_PREDICT_H
#define LLMC_PREDICT_H

/* The estimate of a decision with its actual schedule simulated, action by action, instead of the closed form of its
 * pipeline. */

#include "compiler/cost/cost.h"

/* Requires a legal c->decision.  The items of *e add up as cost_estimate()'s do.  false: the schedule has too many
 * actions to run, or cannot be made, and *e is cost_estimate()'s. */
bool predict(struct arena *a, const struct cost *c, struct estimate *e);
/* The same for the step's time alone, given the decision's shape.  Requires that its schedule can be made.  false: the
 * step takes more than most_s seconds, and *e is left as it is. */
struct cost_shape;
bool predict_step(struct arena *a, const struct cost *c, const struct cost_shape *shape, double most_s,
                  struct estimate *e);
/* Stores in runs_s the seconds of the decision's pipeline alone in n runs of its schedule with jitter (struct
 * pipeline_times) and the seeds 1 to n; in *even_s those of a run without jitter.  false where predict() returns
 * false. */
bool predict_jitter(struct arena *a, const struct cost *c, double jitter, uint32_t n, double *even_s, double *runs_s);

#endif
