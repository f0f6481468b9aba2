#ifndef LLMC_PAIRS_H
#define LLMC_PAIRS_H

/* Seconds of two actions that run together, of a decision's stages: a forward pass of one and a backward pass of
 * another. */

#include "compiler/support/arena.h"

#include <stdint.h>

struct cost;
struct cost_shape;
struct pipeline_moves;
struct cost_pairs; /* of one decision; what is asked for is remembered */

/* from the pair's begin to where each one's output is there, and to the end of both */
struct cost_pair {
    double forward_s, backward_s, end_s;
};

/* c, s and a must stay as they are as long as it is used.  NULL where no two actions run together, or one hides nothing
 * of the other.  turns: NULL; or by stage what the kernels' queue carries between them, which pairs then hide more
 * beside. */
struct cost_pairs *cost_pairs_new(struct arena *a, const struct cost *c, const struct cost_shape *s,
                                  const struct pipeline_moves *turns);
/* of a stage's F and another's B, which take so much alone; p NULL: they hide so much of each other.  Never less than
 * that (with turns: together with these), and neither one's output is there before it would be alone: what bounds on
 * schedules build on. */
struct cost_pair cost_pair(struct cost_pairs *p, uint32_t forward, uint32_t backward, double forward_s,
                           double backward_s, double hidden_s);

#endif
