#ifndef LLMC_RELAY_H
#define LLMC_RELAY_H

/* What the stages of a pipeline hand to each other while a rank after another runs its actions: the one definition of when an
 * action's input is there and of what two actions take together, for the simulation of actions (simulate/actions.c) and for the
 * searches for orders (auto*.c).
 *
 * A transfer starts when its producer has ended and the one before it on the same boundary and direction is through.  Receivers
 * always have a free place.  The part of a transfer that its sender computes nothing in (pipeline_times.held) prolongs the action
 * instead.  A backward begins with what it needs no gradient for (lead_s).  A pair takes both less what they hide of each other,
 * but not less than the longer one. */

#include "compiler/cost/pipeline.h"

#define RELAY_NOT_YET (-1.0)

enum relay_kind { RELAY_F, RELAY_I, RELAY_W, RELAY_B, RELAY_KINDS }; /* B: I and W in one */

struct relay_stage {
    double takes[RELAY_KINDS];     /* seconds, with what sends hold of them */
    double next_s, back_s, lead_s; /* the rest of its transfers, forward and back; what its backward does without a gradient */
    double forward_held, backward_held, forward_hidden, backward_hidden;
    double keep, late;   /* bytes of a microbatch from F to I or B; from I to W */
    uint32_t next, back; /* stages there, by place; NONE: none */
    uint32_t rank, stage; /* stage: of the decision */
};

struct relay {
    uint32_t n, m; /* stages by place, microbatches */
    struct relay_stage *stage;
    struct cost_pairs *pairs;         /* NULL: two that run together hide what they can */
    double *forward_in, *backward_in; /* arrivals, by place * m + microbatch; RELAY_NOT_YET: not on its way */
    double *next_free, *back_free;    /* of a stage's two outgoing channels */
    uint32_t *stack, nstack;          /* ranks to look at */
    bool *stacked;                    /* by rank */
};

/* of n stages, which stay the caller's */
struct relay *relay_new(struct arena *a, struct relay_stage *stages, uint32_t n, uint32_t nranks, uint32_t microbatches,
                        struct cost_pairs *pairs);
/* of the decision's stage, which `sends` to the one behind it and `sends_back` to the one in front: times and transfers */
void relay_stage_times(struct relay_stage *st, const struct pipeline_times *times, uint32_t stage, bool sends, bool sends_back);
/* Nothing has been handed over yet; channels are as they were. */
void relay_begin(struct relay *x);
void relay_free_channels(struct relay *x);

/* a rank to look at (again); the next one of them: false: there is none */
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

/* when the input of a stage's F, or of its I or B, is there; negative: it is not on its way */
static inline double relay_forward_s(const struct relay *x, uint32_t at, uint32_t microbatch)
{
    return x->forward_in[(size_t)at * x->m + microbatch];
}

static inline double relay_backward_s(const struct relay *x, uint32_t at, uint32_t microbatch)
{
    double in = x->backward_in[(size_t)at * x->m + microbatch];
    return in > 0 ? relay_later(in - x->stage[at].lead_s, 0) : in;
}

/* An F has ended, or an I or B: returns the stage that its output is on its way to, on a rank that may wait for it; NONE where
 * it is the pipeline's last, whose own backward may come, or first. */
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

/* a forward beside a backward: from their begin to where each one's output is there, and to the end of both */
static inline struct cost_pair relay_pair(const struct relay *x, const struct relay_stage *f, const struct relay_stage *b)
{
    double f_s = f->takes[RELAY_F] - f->forward_held, b_s = b->takes[RELAY_B] - b->backward_held;
    double held = f->forward_held + b->backward_held, hidden = f->forward_hidden + b->backward_hidden;
    struct cost_pair p = cost_pair(x->pairs, f->stage, b->stage, f_s, b_s, hidden);
    return (struct cost_pair){p.forward_s + held, p.backward_s + held, p.end_s + held};
}

#endif
