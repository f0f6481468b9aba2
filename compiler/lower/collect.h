#ifndef LLMC_LOWER_COLLECT_H
#define LLMC_LOWER_COLLECT_H

/* Private to the lowering: transfers between ranks of a group, and between stages. */

#include "compiler/lower/state.h"

/* collect.c: layout conversions and boundaries */
struct mat lower_gather(struct lower *l, const char *name, struct mat m);    /* TOKENS -> all rows */
void lower_reduce_into(struct lower *l, struct mat partial, struct mat out); /* partial sums over tp -> TOKENS */
/* one of l->cuts blocks of those rows */
void lower_reduce_cut(struct lower *l, struct mat partial, struct mat out, uint32_t cut);
struct mat lower_partial(struct lower *l, struct mat out); /* where to write those partial sums */
/* queue of data-parallel collectives among ranks of one role; tied copies use QUEUE_DP */
enum queue lower_dp_queue(const struct lower *l);
void lower_collective(struct lower *l, enum op op, enum queue q, uint32_t mask, struct mat x, struct mat y);
/* maximum over the group's ranks, in place */
void lower_maximum(struct lower *l, enum queue q, uint32_t mask, struct mat x);
/* channel: a number common to the SENDs and RECVs that match each other; those of a channel match in program order */
void lower_send(struct lower *l, struct mat m, uint32_t peer, uint32_t channel);
void lower_receive(struct lower *l, struct mat m, uint32_t peer, uint32_t channel);

#endif
