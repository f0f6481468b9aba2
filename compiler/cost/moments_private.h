#ifndef LLMC_MOMENTS_PRIVATE_H
#define LLMC_MOMENTS_PRIVATE_H

/* Between moments.c and orders.c: a rank's order of actions as far as it has been followed. */

#include "compiler/cost/moments.h"
#include "compiler/model/actions.h"

/* a round of a stretch: actions of one kind after another, with the stages that they are of */
struct action_of {
    char kind; /* F B I W, or P: a pair of F and B */
    uint32_t stage, other;
};
/* an action, with what the rank holds while it runs */
struct action_at {
    char kind;
    uint32_t stage;
    double held, gradients;
    struct moments_at at;
};
/* arrivals.c: what lies on a rank for other actions, of a schedule whose rank has several stages, or that is a list. By
 * action, how many inputs, gradients and outputs; where `left` actions of the middle are left out, they are like the
 * `period` before. */
struct known_waits; /* through a search */
struct known_waits *waits_new(struct arena *a);
struct known_waits *moments_known_waits(struct moments_pairs *known);
struct waits {
    uint32_t n, left, period;
    uint16_t *at, most;
};
struct listing {
    struct action *at;
    uint32_t n, microbatch[3][DECISION_MOST_VPP]; /* of the next F, B or I, and W */
};
struct order {
    const struct decision *d;
    const struct moments_stage *stages;
    double held, gradients; /* now; of the actions before */
    const struct moments_shards *shards;
    double made, made_uses;           /* gradients of shards on their way; uses of parameters that they stay through; */
    double part;                      /* then this rank's part of the last sums stays */
    double unwaited;                  /* blocks' first ones among them */
    uint64_t begun[2];                /* stages that have had their first I; their first B or W */
    uint32_t used;                    /* the action that used parameters last: 2 * its stage + (is it a B or I) */
    struct moments between;           /* of a B or W since then, should they stay for the next use */
    uint32_t left[DECISION_MOST_VPP]; /* by stage: actions to come that make gradients of weights */
    double uses, copies;              /* of gathered parameters, and from host memory, to come */
    uint64_t pairs, pairs_left;       /* of actions that run together: all of them, those to come */
    struct moments_pairs *remembered;
    bool copying; /* there are copies */
    bool pending; /* the action before has not been looked at, which the next one's copies come beside: */
    struct action_at before;
    bool ends;               /* last actions of stages find other things than those before */
    struct moments moved;    /* of the forward before, from its last transfer on; bytes 0: another action was */
    uint32_t ahead, to_come; /* of the rank's one stage: inputs that may wait for its forwards; forwards to come */
    struct waits waits;      /* n = 0: not followed; */
    uint32_t nth;            /* the next action there */
    double waiting;          /* bytes of what waits for later actions */
    struct listing *lists;   /* NULL, or the order is only written down */
    struct moments most;
    double enough; /* bytes that tell what is asked for */
    bool counts;   /* nothing but uses */
};
static inline bool moments_told(const struct order *x)
{
    return x->most.bytes > x->enough;
}

/* what is to come; then, what its first forwards take of a step that may have to be made again */
void moments_begin(struct order *x, uint32_t rank);
/* n actions; many such rounds; as many that are not looked at */
void moments_round(struct order *x, const struct action_of *a, uint32_t n);
/* behind all of them */
void moments_end(struct order *x);
void moments_stretch(struct order *x, uint64_t times, const struct action_of *a, uint32_t n);
void moments_skip(struct order *x, const struct action_of *a, uint32_t n, uint64_t times);

/* of a rank, into a or, of schedules that have a name, into what is known; NULL: nothing is */
struct waits waits_of(struct arena *a, struct known_waits *known, const struct decision *d,
                      const struct pipeline_stage *seconds, uint32_t rank);
/* the actions of a rank, into out; returns their number */
uint32_t orders_list(struct arena *a, const struct decision *d, uint32_t rank, struct action **out);

#define STRETCH(x, times, ...)                                                                                         \
    moments_stretch(x, times, (const struct action_of[]){__VA_ARGS__},                                                 \
                    sizeof(const struct action_of[]){__VA_ARGS__} / sizeof(struct action_of))

#endif
