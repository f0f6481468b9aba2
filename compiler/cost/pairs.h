#ifndef LLMC_PAIRS_H
#define LLMC_PAIRS_H

/* Seconds of two actions that run together: a forward pass of one of a decision's stages and a backward pass of
 * another. */

#include "compiler/support/arena.h"

#include <stdint.h>

struct cost;
struct cost_shape;
struct pipeline_moves;
struct cost_pairs; /* for one decision; results are cached */

/* Seconds from the start of the pair until the output of each pass is available, and until both have ended. */
struct cost_pair {
    double forward_s, backward_s, end_s;
};

/* c, s and a must stay unchanged as long as the result is used.  Returns NULL where no two actions run together, or
 * where neither hides anything of the other.  turns: NULL or, by stage, the transfers that run in turn on the queue
 * of kernels, beside which pairs can hide more. */
struct cost_pairs *cost_pairs_new(struct arena *a, const struct cost *c, const struct cost_shape *s,
                                  const struct pipeline_moves *turns);
/* The times of a stage's F and another stage's B, which alone take forward_s and backward_s and hide hidden_s of
 * each other; p NULL: exactly that.  The pair never takes less than that (with turns: including these), and neither
 * output is available earlier than it would be alone; the bounds on schedules depend on this. */
struct cost_pair cost_pair(struct cost_pairs *p, uint32_t forward, uint32_t backward, double forward_s,
                           double backward_s, double hidden_s);

#endif
