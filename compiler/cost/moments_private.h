#ifndef LLMC_MOMENTS_PRIVATE_H
#define LLMC_MOMENTS_PRIVATE_H

/* Shared by moments.c and orders.c: a rank's order of actions, as far as it has been followed. */

#include "compiler/cost/moments.h"
#include "compiler/model/actions.h"

/* One entry of a round, a sequence of actions that repeats: the kind of action, and the stages. */
struct action_of {
    char kind; /* F B I W, or P: a pair of an F of `stage` and a B of `other` */
    uint32_t stage, other;
};
/* an action, with the bytes that the rank holds while it runs */
struct action_at {
    char kind;
    uint32_t stage;
    double held, gradients;
    struct moments_at at;
};
/* arrivals.c: The number of inputs, gradients and outputs that wait on a rank for other actions, by action; for a
 * schedule whose ranks have several stages, or that is a list.  Where `left` actions in the middle are left out,
 * they repeat the `period` before them. */
struct known_waits; /* cache for a search */
struct known_waits *waits_new(struct arena *a);
struct known_waits *moments_known_waits(struct moments_pairs *known);
struct waits {
    uint32_t n, left, period;
    uint16_t *at, most;
};
struct listing {
    struct action *at;
    uint32_t n, microbatch[3][DECISION_MOST_VPP]; /* of the next F, of the next B or I, and of the next W */
};
struct order {
    const struct decision *d;
    const struct moments_stage *stages;
    double held, gradients; /* bytes held now; bytes of gradients from previous actions */
    const struct moments_shards *shards;
    double made, made_uses;           /* bytes of gradients on their way to shards; uses of parameters through which
                                       * they stay */
    double part;                      /* of these, this rank's part of the last sums, which stays after that */
    double unwaited;                  /* number of blocks among them whose sums are their first */
    uint64_t begun[2];                /* stages that have had their first I; their first B or W */
    uint32_t used;                    /* the action that used parameters last: 2 * its stage + (it is a B or I) */
    struct moments between;           /* the peak of a B or W since then if its parameters stay for the next use */
    uint32_t left[DECISION_MOST_VPP]; /* by stage: remaining actions that make weight gradients */
    double uses, copies;              /* remaining uses of gathered parameters and copies from host memory */
    uint64_t pairs, pairs_left;       /* number of actions that run together: all, and remaining */
    struct moments_pairs *remembered;
    bool copying; /* there are copies from host memory */
    bool pending; /* the previous action, which the next one's copies run beside, has not been looked at yet */
    struct action_at before;
    bool ends;               /* the last actions of stages differ from those before */
    struct moments moved;    /* peak of the previous F from its last transfer on; bytes 0: the previous action was no
                              * F */
    uint32_t ahead, to_come; /* for a rank with one stage: number of inputs that may wait for its forward passes;
                              * forward passes to come */
    struct waits waits;      /* n = 0: not followed */
    uint32_t nth;            /* index into waits of the next action */
    double waiting;          /* bytes that wait for later actions */
    struct listing *lists;   /* if not NULL, the order is only written down */
    struct moments most;
    double enough; /* bytes that answer the question: nothing above them matters */
    bool counts;   /* only uses are counted */
};
static inline bool moments_told(const struct order *x)
{
    return x->most.bytes > x->enough;
}

/* Sets the counts of what is to come; then looks at the first forward passes of a step that may have to be repeated. */
void moments_begin(struct order *x, uint32_t rank);
/* Runs n actions.  moments_stretch(): `times` such rounds; moments_skip(): the same without looking at them. */
void moments_round(struct order *x, const struct action_of *a, uint32_t n);
/* Looks at what is still pending after the last action. */
void moments_end(struct order *x);
void moments_stretch(struct order *x, uint64_t times, const struct action_of *a, uint32_t n);
void moments_skip(struct order *x, const struct action_of *a, uint32_t n, uint64_t times);

/* What waits on a rank, allocated in a or, for schedules that have a name, in the cache; known: NULL without a
 * cache. */
struct waits waits_of(struct arena *a, struct known_waits *known, const struct decision *d,
                      const struct pipeline_stage *seconds, uint32_t rank);
/* Writes the actions of a rank to *out; returns their number. */
uint32_t orders_list(struct arena *a, const struct decision *d, uint32_t rank, struct action **out);

#define STRETCH(x, times, ...)                                                                                         \
    moments_stretch(x, times, (const struct action_of[]){__VA_ARGS__},                                                 \
                    sizeof(const struct action_of[]){__VA_ARGS__} / sizeof(struct action_of))

#endif
