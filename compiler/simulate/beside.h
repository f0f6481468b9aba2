#ifndef LLMC_SIMULATE_BESIDE_H
#define LLMC_SIMULATE_BESIDE_H

/* Parameters and gradients on their way beside a rank's actions (struct pipeline_moves): a queue of transfers, in the order
 * that lower/shard.c writes them in, and what its pieces wait for it. */

#include "compiler/cost/pipeline.h"
#include "compiler/schedule/schedule.h"

struct beside;
struct beside *beside_new(struct arena *a, const struct schedule *s, const struct pipeline_times *t, uint32_t rank);
/* the step begins; when its first action may */
double beside_begin(struct beside *b, double begin_s);
/* the rank's k-th action, of takes_s by itself, on a rank that is free at free_s, what it needs there at start_s: when the rank
 * is through, and how much later than by itself others have what they wait for, of each of a pair */
struct beside_end {
    double end_s, late_s[2];
};
struct beside_end beside_action(struct beside *b, uint32_t k, double start_s, double free_s, double takes_s);
/* the same of the k-th and the one behind it together, of the time of both so much each */
struct beside_end beside_pair(struct beside *b, uint32_t k, double start_s, double free_s, double first_s, double second_s);
double beside_wire_s(const struct beside *b);   /* when all that is on its queue so far is through */
double beside_copies_s(const struct beside *b); /* when its queue of copies to host memory and back is through */
/* Behind all actions of all ranks: sums over two ranks, by rank; then when each rank's gradients are whole, kernels of the
 * rank ended_s. */
void beside_settle(struct beside *const *all, uint32_t nranks, const double *ended_s, double *whole_s);

#endif
