#ifndef LLMC_RELAY_H
#define LLMC_RELAY_H

/* What the stages of a pipeline hand to each other while the ranks run their actions.  This is the one definition of
 * when an action's input has arrived and of how long two overlapping actions take, for the simulation of actions
 * (simulate/actions.c) and for the search for orders (auto*.c).
 *
 * A transfer starts when its producer has ended and the previous transfer over the same boundary in the same
 * direction is complete.  Receivers always have a free buffer.  The share of a transfer during which its sender
 * computes nothing (pipeline_times.held) prolongs the sender's action instead.  A backward starts with work that
 * needs no gradient (lead_s).  A pair takes the sum of both actions less what they hide of each other, but at least
 * as long as the longer one. */

#include "compiler/cost/pipeline.h"

#define RELAY_NOT_YET (-1.0)

enum relay_kind { RELAY_F, RELAY_I, RELAY_W, RELAY_B, RELAY_KINDS }; /* B: I and W as one action */

struct relay_stage {
    double takes[RELAY_KINDS]; /* seconds, including the share of its sends that blocks the rank */
    /* seconds: of its transfers forward and back, without that share; of its backward's work that needs no gradient */
    double next_s, back_s, lead_s;
    double forward_held, backward_held, forward_hidden, backward_hidden;
    double keep, late;    /* bytes of activations of one microbatch: from F to I or B; from I to W */
    uint32_t next, back;  /* indices of the next and the previous stage; NONE: none */
    uint32_t rank, stage; /* stage: number in the decision */
};

struct relay {
    uint32_t n, m; /* numbers of stages and of microbatches */
    struct relay_stage *stage;
    struct cost_pairs *pairs;         /* NULL: two actions that overlap hide as much of each other as they can */
    double *forward_in, *backward_in; /* arrival times by stage index * m + microbatch; RELAY_NOT_YET: not sent yet */
    double *next_free, *back_free;    /* by stage: when its two outgoing channels become free */
    uint32_t *stack, nstack;          /* ranks whose next action may have become runnable */
    bool *stacked;                    /* by rank */
};

/* stages: n of them, owned by the caller */
struct relay *relay_new(struct arena *a, struct relay_stage *stages, uint32_t n, uint32_t nranks, uint32_t microbatches,
                        struct cost_pairs *pairs);
/* Fills in times and transfers of a stage of the decision.  sends, sends_back: its next and previous stage are on
 * other ranks. */
void relay_stage_times(struct relay_stage *st, const struct pipeline_times *times, uint32_t stage, bool sends,
                       bool sends_back);
/* Resets all arrivals for a new step; channels stay as busy as they were. */
void relay_begin(struct relay *x);
void relay_free_channels(struct relay *x);

/* Marks a rank whose next action may be runnable; takes one such rank, false if there is none. */
static inline void relay_wake(struct relay *x, uint32_t rank)
{
    if (!x->stacked[rank]) {
        x->stacked[rank] = true;
        x->stack[x->nstack++] = rank;
    }
}

static inline bool relay_next_rank(struct relay *x, uint32_t *rank)
{
    if (!x->nstack)
        return false;
    *rank = x->stack[--x->nstack];
    x->stacked[*rank] = false;
    return true;
}

static inline double relay_later(double a, double b)
{
    return a > b ? a : b;
}

/* when the input of a stage's F, or of its I or B, arrives, seconds; negative: it has not been sent */
static inline double relay_forward_s(const struct relay *x, uint32_t at, uint32_t microbatch)
{
    return x->forward_in[(size_t)at * x->m + microbatch];
}

static inline double relay_backward_s(const struct relay *x, uint32_t at, uint32_t microbatch)
{
    double in = x->backward_in[(size_t)at * x->m + microbatch];
    return in > 0 ? relay_later(in - x->stage[at].lead_s, 0) : in;
}

/* Records that an F, or an I or B, has ended.  Returns the stage that its output travels to, whose rank may be
 * waiting for it; NONE for an F of the pipeline's last stage, whose own backward becomes possible, and for an I or B
 * of the first stage. */
static inline uint32_t relay_end_forward(struct relay *x, uint32_t at, uint32_t microbatch, double end)
{
    const struct relay_stage *st = &x->stage[at];
    if (st->next == NONE) {
        x->backward_in[(size_t)at * x->m + microbatch] = end;
        return NONE;
    }
    if (st->next_s > 0)
        x->next_free[at] = end = relay_later(x->next_free[at], end) + st->next_s;
    x->forward_in[(size_t)st->next * x->m + microbatch] = end;
    return st->next;
}

static inline uint32_t relay_end_backward(struct relay *x, uint32_t at, uint32_t microbatch, double end)
{
    const struct relay_stage *st = &x->stage[at];
    if (st->back == NONE)
        return NONE;
    if (st->back_s > 0)
        x->back_free[at] = end = relay_later(x->back_free[at], end) + st->back_s;
    x->backward_in[(size_t)st->back * x->m + microbatch] = end;
    return st->back;
}

/* A forward overlapping a backward: seconds from their common start until each one's output is ready, and until both
 * end. */
static inline struct cost_pair relay_pair(const struct relay *x, const struct relay_stage *f,
                                          const struct relay_stage *b)
{
    double f_s = f->takes[RELAY_F] - f->forward_held, b_s = b->takes[RELAY_B] - b->backward_held;
    double held = f->forward_held + b->backward_held, hidden = f->forward_hidden + b->backward_hidden;
    struct cost_pair p = cost_pair(x->pairs, f->stage, b->stage, f_s, b_s, hidden);
    return (struct cost_pair){p.forward_s + held, p.backward_s + held, p.end_s + held};
}

#endif
