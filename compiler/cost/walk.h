#ifndef LLMC_WALK_H
#define LLMC_WALK_H

/* A block's passes as the lowering has them: kernels one after the other, and beside them queues of transfers in order.
 * What a transfer brings is used at once, by a later kernel, or at the operator's end; one that needs nothing of this
 * pass is asked for ahead, as soon as the queue comes to it and the room that it goes to is free.  Where rows are cut
 * into parts that travel by themselves, each part has rooms of its own. */

#include "compiler/support/vec.h"

#include <stdbool.h>
#include <stdint.h>

/* passes that a step belongs to: B; I; W; F; what of F runs again at the begin of B or I */
enum { WALK_B = 1, WALK_I = 2, WALK_W = 4, WALK_F = 8, WALK_AGAIN = 16 };
/* of transfers: that of tensor parallelism; that of gradients; the kernels' own; that of copies to host memory and back
 */
enum walk_queue { WALK_TP, WALK_DP, WALK_COMPUTE, WALK_COPY, NWALK_QUEUES, WALK_NONE = NWALK_QUEUES };
enum walk_kind {
    WALK_KERNEL,
    WALK_BLOCK,  /* a transfer of what is there, which the next kernel needs */
    WALK_AHEAD,  /* one that needs nothing of this pass, into a room; */
    WALK_BEHIND, /* one of what is there, into a room; */
    WALK_USE,    /* the next kernel needs what comes into that room; */
    WALK_FREE,   /* nothing does any more */
    WALK_MADE,   /* kernels have made what that room holds */
    WALK_ONWARD, /* a transfer of what the room of a rank's own rows holds, to that of whole rows */
    WALK_FETCH,  /* a copy from host memory, into a room, which is asked for whenever that is free */
    WALK_TURN    /* the kernels' queue carries what no transfer of this pass waits for */
};
#define WALK_CUTS 4 /* decision_cuts(), at most: parts of a rank's own rows, and of whole ones */
/* gathered inputs and gradients of outputs of products; their inputs' gradients; keys with values, sums of their
 * gradients; numbers of experts' rows, gradients of these; what the block above has made; what another rank has sent;
 * what lay in host memory, and what goes there; parts of own rows, of whole ones */
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
    uint32_t opr;          /* whose steps are added */
    enum walk_queue queue; /* of its transfers */
    /* F and what of it runs again first, operators from the first to the last; backward passes, from the last to the
     * first */
    VEC(struct walk_step) forward, steps;
};

void walk_add(struct walk *w, enum walk_kind kind, uint32_t room, uint32_t passes, double seconds);
/* a step of F; again: and of what runs again */
void walk_forward(struct walk *w, enum walk_kind kind, enum walk_room room, double seconds, bool again);
/* Steps where rows are cut into n parts, seconds each of these: kernels on a rank's own rows, part by part or at once
 * (n parts that have come, one kernel); transfers of parts that a product follows; a product whose parts are sent off
 * as they are made. */
void walk_own(struct walk *w, uint32_t passes, uint32_t n, bool at_once, double kernel_s);
void walk_gathered(struct walk *w, uint32_t passes, uint32_t n, double transfer_s, double kernel_s);
void walk_reduced(struct walk *w, uint32_t passes, uint32_t n, double kernel_s, double transfer_s);

/* Of two passes that run together, is the left one's next step the next of both?  It is the one that can start first,
 * of two that can the one of the pass that is behind by its share of time.  So transfers of one run under the other's
 * kernels, and neither waits in a queue behind what is not ready. */
static inline bool walk_is_next(double at, double other, double done, double other_done)
{
    return at < other || (!(other < at) && done <= other_done);
}

/* The steps of a pass in order, of a block or of several in a row. */
struct walk_strand {
    const struct walk_step *at;
    size_t n;
    double all_s, kernels_s, turns_s;
};
struct walk_strand walk_strand_new(struct arena *a, const struct walk *w, uint32_t pass);
/* kernels_s: of all kernels, whatever they take by themselves */
struct walk_strand walk_strand_join(struct arena *a, const struct walk_strand *parts, size_t n, double kernels_s);
/* The same with turns of the kernels' queue in front and behind: parameters that are gathered there, sums of gradients.
 */
struct walk_strand walk_strand_turns(struct arena *a, const struct walk_strand *x, double front_s, double behind_s);
/* Seconds by which a pass outlasts its kernels and turns; round: behind one of its like, else by itself.  apart: with
 * queues as the steps have them, else with one for all transfers. */
double walk_exposed_s(const struct walk_strand *x, bool round, bool apart);
/* seconds before the first transfer on a queue */
double walk_before_s(const struct walk_strand *x, enum walk_queue queue);
/* strands.c: a pass as it runs beside another; share: reciprocal of all its seconds; done: share of them that was run
 */
struct walk_run {
    const struct walk_step *at, *end; /* at: the next kernel or transfer; */
    uint32_t queue,
        asks; /* its own; that which says when it is asked for, or WALK_NONE; when it can start if that is free */
    double start_s;
    double share, done;
    double ready_s; /* the next kernel's input is there */
    double turned_s;
    double kernels_s, there_s[NWALK_ROOMS], free_s[NWALK_ROOMS];
    bool apart; /* with queues as the steps have them, else with one for all transfers */
};
/* at the first kernel or transfer of n steps */
void walk_run_enter(struct walk_run *x, const struct walk_step *at, size_t n);
static inline double walk_later(double a, double b)
{
    return a > b ? a : b;
}
/* behind a step that ends then */
void walk_run_settle(struct walk_run *x, const struct walk_step *step, double end_s);
/* the next step; queue_s: when queues are free, 0 for WALK_NONE */
static inline void walk_run_next(double *queue_s, struct walk_run *x)
{
    const struct walk_step *step = x->at++;
    double end_s = walk_later(queue_s[x->queue], x->start_s) + step->seconds;
    queue_s[x->queue] = end_s;
    x->done += step->seconds * x->share;
    if (step->kind == WALK_KERNEL && x->at < x->end && x->at->kind == WALK_KERNEL)
        x->kernels_s = end_s; /* nothing else is new */
    else
        walk_run_settle(x, step, end_s);
}
/* the rule of walk_is_next() for two that have not ended */
static inline bool walk_run_is_next(const double *queue_s, const struct walk_run *x, const struct walk_run *y)
{
    double at = queue_s[x->asks], other = queue_s[y->asks];
    return walk_is_next(at > x->start_s ? at : x->start_s, other > y->start_s ? other : y->start_s, x->done, y->done);
}
/* two that begin together: when each one ends */
void walk_together(const struct walk_strand *f, const struct walk_strand *b, bool apart, double *f_s, double *b_s);
/* two passes of a block, and of two such blocks in a row: when both have ended */
void walk_rows_together(const struct walk_strand *f, const struct walk_strand *b, bool apart, double *one_s,
                        double *two_s);

#endif
