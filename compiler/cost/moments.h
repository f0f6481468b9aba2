#ifndef LLMC_COST_MOMENTS_H
#define LLMC_COST_MOMENTS_H

/* The fullest moment of a pipeline rank's order, of bytes that its stages hold and that its actions take. */

#include "compiler/model/decision.h"

/* Blocks of a stage that follow one another: what an action takes in the first and in the last of them, as in moments_stage; the
 * time that an action spends in all of them. */
#define MOMENTS_RUNS 4
struct moments_run {
    double forward_s, backward_s;
    double forward[2], backward[2], first_backward[2];
};
/* Of one stage of a rank.  What a microbatch leaves from F to B (or I), from I to W; gradients that the first B or W leaves, of
 * them those that the first I does. */
struct moments_stage {
    double keep, left, gradients, early;
    /* the most of an action while it runs, with what it finds of its microbatch and what it leaves; first: of the step, with the
     * gradients that it has made by then */
    double forward, backward, input, weight;
    double first_backward, first_input, first_weight; /* B and W: of all blocks but the last one, */
    double last_backward, last_weight;                /* whose comes first */
    double turns; /* of B, while microbatches in flight take turns with slots: all blocks' are taken then */
    /* the same of a rank's last B or I, less what its first blocks find no longer gathered ahead of them */
    struct {
        double backward, first_backward, last_backward, input, first_input;
    } closing;
    double front_backward[2], front_weight[2]; /* of the first blocks, which come last; of the first such action, less what they
                                                * then lack of gradients */
    uint32_t nruns;
    struct moments_run runs[MOMENTS_RUNS]; /* front to back; where two actions run beside one another */
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
    double gathered; /* places for parameters: until the last F, B or I is over */
    double fetched; /* state that the last action's end finds */
};
/* stages: as a rank has them (cost_rank_stage()), in DualPipe the one nearer to the entry of its copy's pipeline... */
struct moments pipeline_moments(const struct decision *d, uint32_t rank, const struct moments_stage *stages,
                                const struct moments_shards *shards);

#endif
