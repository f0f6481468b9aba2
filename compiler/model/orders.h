#ifndef LLMC_ORDERS_H
#define LLMC_ORDERS_H

/* The rows of schedule.def, and the orders of those that are an order and nothing else. */

#include "compiler/model/decision.h"

enum schedule_trait { SCHEDULE_SPLITS = 1, SCHEDULE_PAIRS = 2, SCHEDULE_SKEWS = 4 };
bool schedule_has(enum schedule_kind k, enum schedule_trait trait);

/* Takes the next action of a rank: F, B, I or W of its j-th stage.  Microbatches of a kind and a stage come in turn. */
typedef void order_take(void *to, char kind, uint32_t j);
/* All of a rank's actions, in their order; it depends on pp, vpp and the microbatches of the decision alone. */
typedef void order_function(const struct decision *d, uint32_t rank, order_take *take, void *to);

/* one prototype per row that is ORDERED; the functions are in compiler/schedule/, and without one nothing links */
#define SCHEDULE(KIND, word, arguments, stages, traits)
#define ORDERED(KIND, word, arguments, stages, traits) order_function order_##KIND;
#include "compiler/model/schedule.def"

/* NULL: the row is not ORDERED */
order_function *order_of(enum schedule_kind k);

#endif
