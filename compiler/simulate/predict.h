#ifndef LLMC_PREDICT_H
#define LLMC_PREDICT_H

/* The estimate of a decision with its real schedule run, action by action, instead of the closed form of its pipeline. */

#include "compiler/cost/cost.h"

/* c->decision: legal.  Items add up as cost_estimate()'s do.  false: the schedule has too many actions to run, or cannot
 * be made, and *e is cost_estimate()'s. */
bool predict(struct arena *a, const struct cost *c, struct estimate *e);

#endif
