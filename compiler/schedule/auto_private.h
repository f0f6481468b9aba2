#ifndef LLMC_AUTO_PRIVATE_H
#define LLMC_AUTO_PRIVATE_H

/* Between the files auto*.c.
 *
 * Microbatches are alike, so on a stage each kind of action takes them in ascending order; an order of
 * actions is then, per rank, a string of (kind, chunk), and microbatches follow by counting.  A stage is
 * addressed by its slot, rank * v + chunk, with a rank's chunks in the order of its stages. */

#include "compiler/schedule/family.h"
#include "compiler/schedule/relay.h"

/* a symbol: kind, pair (as in struct action), chunk */
#define AUTO_PAIR RELAY_KINDS
#define AUTO_SYMBOL(kind, chunk) ((uint16_t)((kind) + 2 * RELAY_KINDS * (chunk)))
#define AUTO_KIND(x) ((enum relay_kind)((x) & (RELAY_KINDS - 1u)))
#define AUTO_CHUNK(x) ((x) / (2u * RELAY_KINDS))

struct auto_job {
    uint32_t p, v, m;
    bool folds;
    struct cost_pairs *pairs; /* NULL: two that run together hide what they can */
    bool skews;              /* seconds count from a rank's first action to its last */
    struct relay_stage *slot; /* p * v */
    const double *most;      /* bytes by rank; NULL: no limit */
};
/* seconds between the end of a slot's I and the earliest begin of the one in front of it; what that does without a gradient makes
 * them less, even below 0 */
static inline double auto_back_s(const struct auto_job *job, const struct relay_stage *st)
{
    return st->back == NONE ? 0 : st->back_s - job->slot[st->back].lead_s;
}

struct auto_order {
    uint32_t *n;   /* by rank */
    uint16_t **at; /* room for 3 v m each */
};
/* less is better: seconds of the longest rank, then their sum */
struct auto_score {
    double longest_s, sum_s;
};

/* auto_run.c */
struct auto_trace {        /* of the last recorded run */
    double **start, **end; /* by rank and place in the order */
    uint32_t **microbatch;
    uint32_t *forward, *backward; /* places of F, and of I or B, by slot * m + microbatch */
};
struct auto_run; /* scratch of one job */
struct auto_run *auto_run_new(struct arena *a, const struct auto_job *job);
/* INFINITY where the order cannot run; does not look at memory */
struct auto_score auto_run_order(struct auto_run *run, const struct auto_order *order);
struct auto_score auto_run_record(struct auto_run *run, const struct auto_order *order);
const struct auto_trace *auto_run_trace(const struct auto_run *run);
/* simulate_actions()'s seconds */
double auto_run_step_s(struct auto_run *run, const struct auto_order *order);
/* complete on the rank, every action behind what it needs there, within the rank's memory */
bool auto_order_fits(const struct auto_job *job, const struct auto_order *order, uint32_t rank);
bool auto_better(const struct auto_score *x, const struct auto_score *y);
struct auto_order *auto_order_new(struct arena *a, const struct auto_job *job);
void auto_order_copy(const struct auto_job *job, struct auto_order *to, const struct auto_order *from);
void auto_order_of(const struct auto_job *job, const struct schedule *s, struct auto_order *out);

/* auto_bound.c: no order's longest_s is below, pairs aside; closely: takes a thousand times as long */
double auto_bound_s(struct arena *a, const struct auto_job *job, bool closely);

/* auto_greedy.c: how a rank that has a choice chooses */
struct auto_rank_rule {
    uint32_t window; /* a microbatch is begun while fewer chunks' microbatches are between F and I */
    uint32_t ahead;  /* F goes before I while fewer are */
    uint32_t lag;    /* W goes before F when as many wait */
    uint32_t late;   /* the same from microbatch `turn` on */
};
struct auto_rules {
    uint32_t group, group_back;   /* microbatches that go through a rank's chunks together: F, and I and W */
    uint32_t spread, spread_back; /* not 0: instead, all within so many of each other in the next chunk */
    double patience;              /* W is not begun when something else comes before this share of it */
    double eager;                 /* F is not begun when an input gradient comes before this share of it */
    uint32_t fuse;                /* I and W in one for the first so many microbatches of a stage */
    bool fuse_entry;              /* and on the first stage, where nobody waits for I */
    uint32_t turn;
    struct auto_rank_rule *rank;
};
struct auto_greedy;
struct auto_greedy *auto_greedy_new(struct arena *a, const struct auto_job *job);
/* The order fits the job's memory.  Needs room for a microbatch on all chunks of every rank. */
void auto_greedy_make(struct auto_greedy *g, const struct auto_rules *rules, struct auto_order *out);

/* one search; what may be spent counts actions run */
struct auto_search {
    struct arena *arena;
    struct auto_job job;
    struct auto_run *run;
    struct auto_greedy *greedy;
    struct auto_order *best, *trial;
    struct auto_score score;
    double bound_s;
    uint64_t nactions, spent, budget;
    uint64_t random; /* splitmix64's state */
};
/* true: the best so far */
bool auto_offer(struct auto_search *x, const struct auto_order *o, struct auto_score *score);
bool auto_optimal(const struct auto_search *x);
uint32_t auto_draw(struct auto_search *x, uint32_t n); /* below n */
/* until `until` is spent.  auto_rules.c: many rules, then the best changed; auto_urgent.c: orders shifted to their end
 * and back; auto_local.c: the best order */
void auto_try_rules(struct auto_search *x, uint64_t until);
void auto_try_urgent(struct auto_search *x, uint64_t until);
void auto_change_order(struct auto_search *x, uint64_t until);

#endif
