#ifndef LLMC_PIPELINE_H
#define LLMC_PIPELINE_H

/* Pipelines in closed form: how long a schedule takes with uneven stages and with transfers that take time, and how
 * many microbatches' activations a rank holds.  simulate_actions() on the schedule itself is exact; the functions
 * here cost a few operations per stage, and a search calls them a hundred thousand times a second. */

#include "compiler/cost/pairs.h"
#include "compiler/model/decision.h"

/* Seconds of one stage for one microbatch.  A schedule that splits the backward pass runs input_s and, some time
 * later, weight_s; one that does not runs backward_s. */
struct pipeline_stage {
    double forward_s, backward_s, input_s, weight_s;
    double next_s, back_s; /* transfers: of activations to the next stage, of gradients to the previous stage */
    /* of forward_s and backward_s: the most that is hidden behind the other action of a pair */
    double forward_hidden_s, backward_hidden_s;
    double lead_s; /* of a backward pass: what it does before it needs the gradient from the next stage */
    double kept_s; /* of forward_s: what stages that recompute may skip */
};
/* A value that a layer keeps in host memory.  place: index of the place on the device that values of its name share;
 * copy_s, fetch_s: seconds of copying it out, and of copying it back for weight gradients alone (0: not needed);
 * begun, made: the fractions of F at which its kernel begins and ends; read: for B, I and W, whether the pass reads
 * it, and the fractions at which it is first needed and last read. */
struct pipeline_copy_read {
    bool reads;
    double need, done;
};
struct pipeline_copy {
    uint32_t place;
    double copy_s, fetch_s, begun, made;
    struct pipeline_copy_read read[3];
};
/* Consecutive equal pieces of a stage (layers, the embedding, the head), and the transfers of their parameters and
 * gradients between the ranks that share them. */
struct pipeline_piece {
    uint32_t count;
    double forward, backward, input, weight; /* one piece's share of the stage's actions */
    double gather_s;                         /* seconds of the all-gather of its parameters, at the start of the step
                                              * or at every use */
    double sum_s;                            /* seconds of the reduction of its gradients, after the last microbatch
                                              * or after each */
    double add_s;                            /* seconds, where after each: of the kernel that adds what arrived to
                                              * the sum */
    double convert_s, back_s;      /* seconds of the kernels that convert gradients before that reduction; of those
                                    * that convert the first microbatch's sums back, to which nothing is added */
    double finish_s;               /* seconds of what remains after the last microbatch: reductions over replicas */
    bool gathers, scatters, reads; /* gathers: at every use; scatters: for every microbatch; reads: the backward pass
                                    * reads its parameters */
    bool exchanges;                /* exchanges rows with the ranks of its experts */
    bool ties;                     /* completes the table that both ends of the pipeline hold */
    bool early;                    /* all that it reduces was made by the stage's last I, so the reduction need not
                                    * wait for W */
    double free_forward, free_backward; /* fractions of its passes before the first such exchange */
    /* of F, B, I and W, where transfers do not overlap (`blocks`): seconds of exposed transfers of other kinds that
     * run beside its gathers and reductions */
    double beside[4];
    bool waits;             /* its passes have such transfers */
    double park_s, fetch_s; /* seconds of copying what it keeps to host memory, or back; fetch_s: back for weight
                             * gradients alone */
    const struct pipeline_copy *copies; /* the same value by value, in the order in which they are copied */
    uint32_t ncopies;
};
struct pipeline_moves {
    uint32_t npieces;
    const struct pipeline_piece *pieces; /* in the model's order */
    double gather_s, sum_s;              /* seconds of the gather and the reduction of its vectors, once a step */
    double late_s;                       /* seconds of the reductions that come after everything else, together with
                                          * the mirror rank */
    double tie_s;                        /* where `blocks`: seconds of the reduction before these, as soon as the
                                          * tables of both ends are complete */
};
/* By pipeline rank: seconds of the optimizer's update, after which the next step begins, and of the gradient norm
 * that it waits for. */
struct pipeline_update {
    double update_s, norm_s, last_norm_s; /* last: of the last bucket */
    double ahead_s, first_s; /* for optimizer state in host memory: seconds of the copies made before the norm is known;
                              * of the first update */
};
struct pipeline_times {
    const struct pipeline_stage *stages; /* by stage of the decision */
    struct cost_pairs *pairs;            /* of its stages; NULL: two actions that run together hide as much as they
                                          * can */
    /* NULL: only the actions.  Otherwise a step is what lies between two updates of all ranks, with the transfers of
     * parameters and gradients on a queue of their own beside the actions or, with `blocks`, in between them. */
    const struct pipeline_moves *moves;
    const struct pipeline_update *updates;
    uint32_t prefetch;    /* by how many uses pieces are gathered ahead */
    uint32_t nplaces;     /* number of places of copies */
    bool blocks, crowded; /* blocks: see moves; crowded: rows to experts use that queue too */
    double agree_s;       /* seconds of the all-reduce of the norm over all ranks */
    double seam_s;        /* seconds that a profile's stack adds between two steps; not part of a step here */
    bool skewed;          /* for schedules that are designed for it: every rank's optimizer step follows its own last
                           * action.  The emitted programs clip by a norm that all ranks must know first. */
    bool validated; /* skewed, and what a rank does after schedule_early() waits until the previous step is known to
                     * be valid */
    double held;    /* share of a transfer during which the sender computes nothing: 0 = overlapped, 1 = blocking */
    double jitter;  /* simulation only: every duration is off by a random share, uniform within +-jitter, from
                       `seed` */
    uint64_t seed;
};

/* Lower bound, in seconds, of a step, either from the first forward pass to the last action or as a period: the
 * longest of some paths through the schedule's actions, never above simulate_actions().  On random uneven stages
 * with transfers its median is at least 0.995 of the makespan for 1F1B, interleaved, ZB-H and ZB-V; it is exact for
 * GPipe; 0.98 for V-Half and pairs, 0.94 for V-Min. */
double pipeline_bound_s(const struct decision *d, const struct pipeline_times *t);
/* The same where some stages take longer in their backward passes, using only the paths that contain all of a rank's
 * backward passes.  longer_s: by rank, additional seconds of a microbatch over all its stages. */
double pipeline_longer_s(const struct decision *d, const struct pipeline_times *t, const double *longer_s);

/* Peak bytes of activations on a pipeline rank, exact for the schedule's order.  keep: bytes that one microbatch
 * leaves from its forward to its (weight) backward pass on the rank's j-th stage, vpp entries; in DualPipe two, of
 * stage `rank` and of the other copy's stage pp - 1 - rank. */
double pipeline_live_bytes(const struct decision *d, uint32_t rank, const double *keep);

/* The largest number of microbatches between I and W on the rank's j-th stage, j as above; 0 where the backward pass
 * is not split. */
uint32_t pipeline_late(const struct decision *d, uint32_t rank, uint32_t j);

/* Does the schedule fold the second half of the stages back onto the ranks (V-shaped schedules)? */
bool pipeline_folds(enum schedule_kind k);
/* Does the schedule leave no rank idle between its own first and last action, while ranks start and end one after
 * the other (ZB-H2 and ZB-V)?  Such schedules are designed for an optimizer step of each rank after its own last
 * action, with what the whole model must agree on, the norm of the gradient, checked afterwards (Qi et al. 2023,
 * section 4: post-validation). The seconds of a step are then the period of consecutive steps. */
bool pipeline_skews(enum schedule_kind k);
/* Does the schedule run input gradients and weight gradients separately? */
bool pipeline_splits(enum schedule_kind k);

/* V-Half and V-Min repeat one block of six slots on every rank.  Returns in `at` the positions of F, I and W of the
 * rank's first and second stage for microbatch 0; those of microbatch i are 6 i later. */
enum pipeline_slot { SLOT_F, SLOT_F2, SLOT_I2, SLOT_W2, SLOT_I, SLOT_W, NSLOTS };
void pipeline_block(enum schedule_kind k, uint32_t nranks, uint32_t rank, uint32_t at[NSLOTS]);

#endif
