#ifndef LLMC_COST_MOMENTS_H
#define LLMC_COST_MOMENTS_H

/* The fullest moment of a pipeline rank's order, of bytes that its stages hold and that its actions take. */

#include "compiler/model/decision.h"

/* Of one stage of a rank.  What a microbatch leaves from F to B (or I), from I to W; gradients that the first B or W leaves, of
 * them those that the first I does. */
struct moments_stage {
    double keep, left, gradients, early;
    /* the most of an action while it runs, with what it finds of its microbatch and what it leaves; first: of the step, with the
     * gradients that it has made by then */
    double forward, backward, input, weight, pair; /* pair: of a forward beside a backward */
    double first_backward, first_input, first_weight;
    double last_backward, last_weight; /* of first_backward, first_weight: the stage's last block, whose come first */
};
struct moments {
    double bytes;     /* at the fullest moment, of all below */
    double kept;      /* what lies there for other actions; */
    double gradients;
};
/* Gradients on their way to the ranks that share them: while a rank makes those of its first block, of the others in its first
 * such action, from then on, and while it makes any.  foretold: of all stages, which the first `early` forwards of a step find. */
struct moments_shards {
    double first, next, then, beside;
    double foretold;
    uint32_t early;
};
/* stages: as a rank has them (cost_rank_stage()), in DualPipe the one nearer to the entry of its copy's pipeline... */
struct moments pipeline_moments(const struct decision *d, uint32_t rank, const struct moments_stage *stages,
                                const struct moments_shards *shards);

#endif
