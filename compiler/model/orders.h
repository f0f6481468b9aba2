#ifndef LLMC_ORDERS_H
#define LLMC_ORDERS_H

/* The rows of schedule.def, and the order functions of the rows that are defined by an order of actions alone. */

#include "compiler/model/decision.h"

enum schedule_trait { SCHEDULE_SPLITS = 1, SCHEDULE_PAIRS = 2, SCHEDULE_SKEWS = 4 };
bool schedule_has(enum schedule_kind k, enum schedule_trait trait);

/* Receives the next action of a rank: F, B, I or W (kind) of its j-th stage.  Microbatches of one kind and stage
 * come in ascending order. */
typedef void order_take(void *to, char kind, uint32_t j);
/* Passes all of a rank's actions to `take`, in order; they depend on the decision's pp, vpp and microbatches alone. */
typedef void order_function(const struct decision *d, uint32_t rank, order_take *take, void *to);

/* One prototype per ORDERED row; the functions are in compiler/schedule/, and the program does not link without
 * them. */
#define SCHEDULE(KIND, word, arguments, stages, traits)
#define ORDERED(KIND, word, arguments, stages, traits) order_function order_##KIND;
#include "compiler/model/schedule.def"

/* the schedule's order function; NULL where its row is not ORDERED */
order_function *order_of(enum schedule_kind k);

#endif
