#ifndef LLMC_LOWER_H
#define LLMC_LOWER_H

/* From a decision to every role's instructions: actions are lowered operator by operator, transfers and collectives get
 * their order, waits and sequence numbers.  Buffers are not placed yet (place/place.h).
 *
 * Requires decision_emittable().  Training and evaluation programs have the same persistent buffers in the same order. */

#include "compiler/emit/plan.h"

/* fills p->train, p->eval, p->nroles; the programs are malloc'ed and belong to the plan */
void lower_plan(struct arena *a, const struct cost *c, struct plan *p);
/* the same without evaluation programs: those of p->eval are NULL */
void lower_training(struct arena *a, const struct cost *c, struct plan *p);

#endif
