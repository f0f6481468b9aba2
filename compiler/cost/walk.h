#ifndef LLMC_WALK_H
#define LLMC_WALK_H

/* A block's passes as the lowering emits them: kernels in order, and beside them queues of transfers in order.  What
 * a transfer brings is used by the next kernel, by a later one, or at the operator's end.  A transfer that needs
 * nothing of this pass is prefetched as soon as its queue reaches it and its destination, called a room, is free.
 * Where rows are cut into parts that are transferred separately, each part has rooms of its own. */

#include "compiler/support/vec.h"

#include <stdbool.h>
#include <stdint.h>

/* the passes that a step belongs to: B; I; W; F; the part of F that is recomputed at the start of B or I */
enum { WALK_B = 1, WALK_I = 2, WALK_W = 4, WALK_F = 8, WALK_AGAIN = 16 };
/* queues: transfers of tensor parallelism; transfers of gradients; kernels; copies to host memory and back */
enum walk_queue { WALK_TP, WALK_DP, WALK_COMPUTE, WALK_COPY, NWALK_QUEUES, WALK_NONE = NWALK_QUEUES };
enum walk_kind {
    WALK_KERNEL,
    WALK_BLOCK,  /* a transfer of data that is ready, which the next kernel needs */
    WALK_AHEAD,  /* a transfer into a room that needs nothing of this pass */
    WALK_BEHIND, /* a transfer of data that is ready, into a room */
    WALK_USE,    /* the next kernel needs the contents of that room */
    WALK_FREE,   /* nothing needs that room any more */
    WALK_MADE,   /* kernels have made the contents of that room */
    WALK_ONWARD, /* a transfer from a room of the rank's own rows to the corresponding room of whole rows */
    WALK_FETCH,  /* a copy from host memory into a room, requested whenever that is free */
    WALK_TURN    /* transfers on the queue of kernels that no transfer of this pass waits for */
};
#define WALK_CUTS 4 /* the most parts that decision_cuts() makes of a rank's own rows, and of whole rows */
/* In this order: gathered inputs of products; gradients of their outputs; gradients of their inputs; keys with
 * values; sums of their gradients; row counts of experts; gradients of these; what the block above has made; what
 * another rank has sent; what comes from host memory; what goes there; parts of own rows; parts of whole rows. */
enum walk_room {
    WALK_INPUT,
    WALK_OUTPUT,
    WALK_REDUCED,
    WALK_KEYS,
    WALK_SUMS,
    WALK_CHOICES,
    WALK_ROWS,
    WALK_ABOVE,
    WALK_RECEIVED,
    WALK_FETCHED,
    WALK_PARKED,
    WALK_OWN,
    WALK_WHOLE = WALK_OWN + WALK_CUTS,
    NWALK_ROOMS = WALK_WHOLE + WALK_CUTS
};
struct walk_step {
    uint8_t kind, room, passes, queue;
    uint32_t opr;
    double seconds;
};
struct walk {
    struct arena *arena;
    uint32_t opr;          /* the operator whose steps are being added */
    enum walk_queue queue; /* the queue of its transfers */
    /* forward: F and its recomputed part, operators from the first to the last; steps: backward passes, from the
     * last to the first */
    VEC(struct walk_step) forward, steps;
};

void walk_add(struct walk *w, enum walk_kind kind, uint32_t room, uint32_t passes, double seconds);
/* Adds a step of F; again: also to what is recomputed. */
void walk_forward(struct walk *w, enum walk_kind kind, enum walk_room room, double seconds, bool again);
/* Add steps where rows are cut into n parts; the seconds are those of one part.  walk_own(): kernels on a rank's own
 * rows, part by part, or one kernel once all n parts have arrived (at_once).  walk_gathered(): transfers of parts,
 * each followed by a product.  walk_reduced(): a product whose parts are sent off as they are made. */
void walk_own(struct walk *w, uint32_t passes, uint32_t n, bool at_once, double kernel_s);
void walk_gathered(struct walk *w, uint32_t passes, uint32_t n, double transfer_s, double kernel_s);
void walk_reduced(struct walk *w, uint32_t passes, uint32_t n, double kernel_s, double transfer_s);

/* Of two passes that run together, is the left one's next step the next of both?  The step that can start first is
 * next; of two that can start at the same time, the one of the pass that has done less of its time.  So transfers of
 * one pass run under the other's kernels, and neither waits in a queue for something that is not ready. */
static inline bool walk_is_next(double at, double other, double done, double other_done)
{
    return at < other || (!(other < at) && done <= other_done);
}

/* The steps of a pass in order, of one block or of several consecutive ones. */
struct walk_strand {
    const struct walk_step *at;
    size_t n;
    double all_s, kernels_s, turns_s;
};
struct walk_strand walk_strand_new(struct arena *a, const struct walk *w, uint32_t pass);
/* Concatenates parts; their kernels are scaled to take kernels_s in all. */
struct walk_strand walk_strand_join(struct arena *a, const struct walk_strand *parts, size_t n, double kernels_s);
/* The same strand with transfers on the queue of kernels before and after it: the gather of parameters, the
 * reduction of gradients. */
struct walk_strand walk_strand_turns(struct arena *a, const struct walk_strand *x, double front_s, double behind_s);
/* Seconds by which a pass outlasts its kernels and turns; round: directly after another pass like it, else by
 * itself; apart: with the queues of its steps, else with one queue for all transfers. */
double walk_exposed_s(const struct walk_strand *x, bool round, bool apart);
/* Seconds before the first transfer on a queue. */
double walk_before_s(const struct walk_strand *x, enum walk_queue queue);
/* strands.c: The state of a pass that runs beside another.  share: the reciprocal of its total seconds; done: the
 * fraction of them that has been run. */
struct walk_run {
    const struct walk_step *at, *end; /* at: the next kernel or transfer */
    uint32_t queue, asks; /* the queue of that step; the queue that determines when it is requested, or WALK_NONE; the
                           * earliest time at which it can start if that queue is free */
    double start_s;
    double share, done;
    double ready_s; /* the time at which the next kernel's input is available */
    double turned_s;
    double kernels_s, there_s[NWALK_ROOMS], free_s[NWALK_ROOMS];
    bool apart; /* with the queues of its steps, else with one queue for all transfers */
};
/* Moves to the first kernel or transfer of n steps. */
void walk_run_enter(struct walk_run *x, const struct walk_step *at, size_t n);
static inline double walk_later(double a, double b)
{
    return a > b ? a : b;
}
/* Updates the state after a step that ends at end_s. */
void walk_run_settle(struct walk_run *x, const struct walk_step *step, double end_s);
/* Runs the next step; queue_s: the time at which each queue is free, 0 for WALK_NONE. */
static inline void walk_run_next(double *queue_s, struct walk_run *x)
{
    const struct walk_step *step = x->at++;
    double end_s = walk_later(queue_s[x->queue], x->start_s) + step->seconds;
    queue_s[x->queue] = end_s;
    x->done += step->seconds * x->share;
    if (step->kind == WALK_KERNEL && x->at < x->end && x->at->kind == WALK_KERNEL)
        x->kernels_s = end_s; /* nothing else has changed */
    else
        walk_run_settle(x, step, end_s);
}
/* walk_is_next() for two passes that have not ended. */
static inline bool walk_run_is_next(const double *queue_s, const struct walk_run *x, const struct walk_run *y)
{
    double at = queue_s[x->asks], other = queue_s[y->asks];
    return walk_is_next(at > x->start_s ? at : x->start_s, other > y->start_s ? other : y->start_s, x->done, y->done);
}
/* Runs two passes that start together; returns when each one ends. */
void walk_together(const struct walk_strand *f, const struct walk_strand *b, bool apart, double *f_s, double *b_s);
/* Runs two passes of a block, and of two such blocks in a row; returns when both passes have ended. */
void walk_rows_together(const struct walk_strand *f, const struct walk_strand *b, bool apart, double *one_s,
                        double *two_s);

#endif
