#ifndef LLMC_PIPELINE_H
#define LLMC_PIPELINE_H

/* Pipelines in closed form: how long a schedule takes with uneven stages and transfers that cost something,
 * and how many microbatches' activations a rank holds.  The truth is simulate_actions() on the schedule
 * itself; what is here costs a few operations per stage and is called a hundred thousand times a second by
 * the search. */

#include "compiler/cost/pairs.h"
#include "compiler/model/decision.h"

/* One stage and one microbatch.  A schedule that splits the backward runs input_s, then some time weight_s;
 * one that does not runs backward_s. */
struct pipeline_stage {
    double forward_s, backward_s, input_s, weight_s;
    double next_s, back_s; /* transfers: of activations to the next stage, of gradients to the stage before */
    /* of its forward and fused backward: what hides behind the other action of a pair at most */
    double forward_hidden_s, backward_hidden_s;
    double lead_s; /* of a backward: what it does before it needs the gradient from the next stage */
    double kept_s; /* of a forward: what stages that recompute may leave out */
};
/* A value that a layer keeps in host memory: where its copies lie, of the places that values of its name have; seconds
 * to go or come, and to come for gradients of weights alone, 0: it does not; shares of F at which its kernel begins and
 * has made it; of B, I and W, at which it is first needed and last read, if it is. */
struct pipeline_copy_read {
    bool reads;
    double need, done;
};
struct pipeline_copy {
    uint32_t place;
    double copy_s, fetch_s, begun, made;
    struct pipeline_copy_read read[3];
};
/* Equal pieces of a stage in a row (layers, the embedding, the head), and what of their parameters and gradients
 * travels between the ranks that share them. */
struct pipeline_piece {
    uint32_t count;
    double forward, backward, input, weight; /* shares of the stage's actions, of one piece */
    double gather_s;                         /* parameters: at the step's begin, or at every use */
    double sum_s;                            /* gradients: after the last microbatch, or after each */
    double add_s;                            /* where after each: the kernel that adds what came to the sum */
    double convert_s, back_s;      /* the kernels that convert gradients in front of those sums; what came of the
                                      first microbatch, where none adds it */
    double finish_s;               /* after the last one, what is left: sums over replicas */
    bool gathers, scatters, reads; /* every use, every microbatch; does backward read its parameters? */
    bool exchanges;                /* rows with experts' ranks */
    bool ties;                     /* completes the table that both ends of the pipeline have */
    bool early;                    /* all that it sums was made by the stage's last I: the sum need not wait for W */
    double free_forward, free_backward; /* shares of its passes before the first of them */
    /* of F, B, I and W, with blocks: exposed transfers of other kinds that run beside what is gathered and summed in
     * turn */
    double beside[4];
    bool waits;             /* its passes have such transfers */
    double park_s, fetch_s; /* copies of what it keeps to host memory, or back; back for its weights alone */
    const struct pipeline_copy *copies; /* of which: one value each, in the order in which they go and come */
    uint32_t ncopies;
};
struct pipeline_moves {
    uint32_t npieces;
    const struct pipeline_piece *pieces; /* in the model's order */
    double gather_s, sum_s;              /* of its vectors, once a step */
    double late_s;                       /* sums that come after all else, together with the mirror rank */
    double tie_s;                        /* with blocks: in front of them, as soon as both ends' tables are complete */
};
/* by pipeline rank: the optimizer's update, which the next step begins behind, and the norm that it waits for */
struct pipeline_update {
    double update_s, norm_s, last_norm_s; /* last: of the last bucket */
    double ahead_s,
        first_s; /* of state in host memory: copies of what comes before the norm is known; the first update */
};
struct pipeline_times {
    const struct pipeline_stage *stages; /* by stage of the decision */
    struct cost_pairs *pairs;            /* of its stages; NULL: two actions that run together hide what they can */
    /* NULL: actions alone.  Otherwise a step is what lies between two updates of all ranks: with parameters and
     * gradients on a queue of their own beside the actions, or with `blocks` between them. */
    const struct pipeline_moves *moves;
    const struct pipeline_update *updates;
    uint32_t prefetch;    /* uses ahead that pieces are gathered */
    uint32_t nplaces;     /* of copies */
    bool blocks, crowded; /* crowded: rows travel to experts on that queue, too */
    double agree_s;       /* what all ranks sum of the norm */
    double seam_s;        /* what else passes where they meet, of a profile's stack; no part of a step here */
    bool skewed;    /* schedules that are meant for it: every rank's optimizer step follows its own last action.  The
                       emitted programs clip by a norm that all ranks must know first. */
    bool validated; /* so, and what a rank does behind schedule_early() waits until the step before is known to be good
                     */
    double held;    /* share of a transfer that the sender computes nothing in: 0 = overlapped, 1 = blocking */
    double jitter;  /* simulation only: every duration is off by a random share, uniform within +-jitter, from
                       `seed` */
    uint64_t seed;
};

/* Seconds of a step, from the first forward to the last action or as a period, never above
 * simulate_actions(): the longest of some paths through the schedule's actions.  On random uneven stages with
 * transfers it is, in the median, 0.995 of the makespan or more for 1F1B, interleaved, ZB-H and ZB-V, exact
 * for GPipe, 0.98 for V-Half and pairs, 0.94 for V-Min. */
double pipeline_bound_s(const struct decision *d, const struct pipeline_times *t);
/* The same of stages some of which take longer in their backward passes, as far as paths are known that have all of a
 * rank's: longer_s, by rank, of a microbatch in all its stages. */
double pipeline_longer_s(const struct decision *d, const struct pipeline_times *t, const double *longer_s);

/* Most bytes of activations on a pipeline rank at a time, exactly as the schedule's order has it.  keep: what
 * one microbatch leaves from its forward to its (weight) backward on the rank's j-th stage, vpp of them; in
 * DualPipe two, of stage `rank` and of the other copy's stage pp - 1 - rank. */
double pipeline_live_bytes(const struct decision *d, uint32_t rank, const double *keep);

/* Most microbatches between I and W on the rank's j-th stage, j as above; 0 where the backward is not split. */
uint32_t pipeline_late(const struct decision *d, uint32_t rank, uint32_t j);

/* placement: V-shaped schedules fold the second half of the stages back onto the ranks */
bool pipeline_folds(enum schedule_kind k);
/* ZB-H2 and ZB-V leave no rank idle between its own first and last action, but ranks start and end one after
 * the other. They are meant with each rank's optimizer step behind its own last action, and with what the
 * whole model must agree on, the norm of the gradient, checked afterwards (Qi et al. 2023, section 4:
 * post-validation).  A step's seconds are then the period of steps that follow each other. */
bool pipeline_skews(enum schedule_kind k);
/* does the schedule run input and weight gradients apart? */
bool pipeline_splits(enum schedule_kind k);

/* V-Half and V-Min repeat one block of six slots on every rank: when F, I and W of its first and of its
 * second stage stand in it for microbatch 0; microbatch i comes 6 i later. */
enum pipeline_slot { SLOT_F, SLOT_F2, SLOT_I2, SLOT_W2, SLOT_I, SLOT_W, NSLOTS };
void pipeline_block(enum schedule_kind k, uint32_t nranks, uint32_t rank, uint32_t at[NSLOTS]);

#endif
