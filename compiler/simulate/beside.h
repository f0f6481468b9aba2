#ifndef LLMC_SIMULATE_BESIDE_H
#define LLMC_SIMULATE_BESIDE_H

/* Transfers of parameters and gradients beside a rank's actions (struct pipeline_moves): a queue of transfers, in
 * the order in which lower/shard.c emits them, and how long a rank's pieces wait for it. */

#include "compiler/cost/pipeline.h"
#include "compiler/schedule/schedule.h"

struct beside;
struct beside *beside_new(struct arena *a, const struct schedule *s, const struct pipeline_times *t, uint32_t rank);
/* Begins a step at begin_s; returns when its first action may start. */
double beside_begin(struct beside *b, double begin_s);
/* Runs the rank's k-th action, which takes takes_s without transfers, on a rank that is free at free_s; the input
 * from other ranks arrives at start_s.  Returns when the rank is done, and by how much the output that others wait
 * for is delayed (for each action of a pair). */
struct beside_end {
    double end_s, late_s[2];
};
struct beside_end beside_action(struct beside *b, uint32_t k, double start_s, double free_s, double takes_s);
/* The same for a pair, the k-th action and the next one, each with its share of the pair's time. */
struct beside_end beside_pair(struct beside *b, uint32_t k, double start_s, double free_s, double first_s,
                              double second_s);
double beside_wire_s(const struct beside *b);   /* when all transfers queued so far are done */
double beside_copies_s(const struct beside *b); /* when all copies to and from host memory queued so far are done */
/* Ends the step, after all actions of all ranks: sums gradients that two ranks share, in order of ranks; then stores
 * in whole_s when each rank's gradients are complete.  ended_s: when each rank's kernels have ended. */
void beside_settle(struct beside *const *all, uint32_t nranks, const double *ended_s, double *whole_s);

#endif
