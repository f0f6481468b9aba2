#ifndef LLMC_LOWER_H
#define LLMC_LOWER_H

/* From a decision to the instructions of every role: actions are lowered operator by operator; transfers and
 * collectives get their order, waits and sequence numbers.  Buffers have no offsets yet (place/place.h).
 *
 * Requires decision_emittable().  Training and evaluation programs have the same persistent buffers in the same
 * order. */

#include "compiler/emit/plan.h"

/* Fills in p->train, p->eval and p->nroles.  The programs are malloc'ed and belong to the plan. */
void lower_plan(struct arena *a, const struct cost *c, struct plan *p);
/* The same without evaluation programs: every entry of p->eval is NULL. */
void lower_training(struct arena *a, const struct cost *c, struct plan *p);

#endif
