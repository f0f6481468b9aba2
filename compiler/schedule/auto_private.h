#ifndef LLMC_AUTO_PRIVATE_H
#define LLMC_AUTO_PRIVATE_H

/* Private to the files auto*.c.
 *
 * Microbatches are alike, so on a stage each kind of action takes them in ascending order.  An order of actions is
 * then, per rank, a string of (kind, chunk), and microbatch numbers follow by counting.  A stage is addressed by its
 * slot, rank * v + chunk, with a rank's chunks in the order of its stages. */

#include "compiler/schedule/family.h"
#include "compiler/schedule/relay.h"

/* a symbol of such a string: kind, pair (as in struct action) and chunk */
#define AUTO_PAIR RELAY_KINDS
#define AUTO_SYMBOL(kind, chunk) ((uint16_t)((kind) + 2 * RELAY_KINDS * (chunk)))
#define AUTO_KIND(x) ((enum relay_kind)((x) & (RELAY_KINDS - 1u)))
#define AUTO_CHUNK(x) ((x) / (2u * RELAY_KINDS))

struct auto_job {
    uint32_t p, v, m;
    bool folds;
    struct cost_pairs *pairs; /* NULL: two actions that overlap hide as much of each other as they can */
    bool skews;               /* a rank's seconds count from its own first action to its last, not from time 0 */
    struct relay_stage *slot; /* p * v */
    const double *most;       /* bytes of activations that each rank may hold; NULL: no limit */
};
/* Seconds from the end of a slot's I to the earliest start of the I that waits for it, on the stage before.  May be
 * negative, since that I starts with work that needs no gradient yet (lead_s). */
static inline double auto_back_s(const struct auto_job *job, const struct relay_stage *st)
{
    return st->back == NONE ? 0 : st->back_s - job->slot[st->back].lead_s;
}

struct auto_order {
    uint32_t *n;   /* by rank */
    uint16_t **at; /* each has room for 3 v m symbols */
};
/* less is better: seconds of the slowest rank first, then the sum over all ranks */
struct auto_score {
    double longest_s, sum_s;
};

/* auto_run.c */
struct auto_trace {        /* of the last run by auto_run_record() */
    double **start, **end; /* seconds, by rank and position in its order */
    uint32_t **microbatch;
    uint32_t *forward, *backward; /* positions of F, and of I or B, by slot * m + microbatch */
};
struct auto_run; /* scratch of one job */
struct auto_run *auto_run_new(struct arena *a, const struct auto_job *job);
/* score of an order; INFINITY where it deadlocks; memory is not checked */
struct auto_score auto_run_order(struct auto_run *run, const struct auto_order *order);
struct auto_score auto_run_record(struct auto_run *run, const struct auto_order *order);
const struct auto_trace *auto_run_trace(const struct auto_run *run);
/* seconds of the step, as simulate_actions() computes them */
double auto_run_step_s(struct auto_run *run, const struct auto_order *order);
/* Does every action of the rank follow the actions of the same rank that it depends on, within the rank's memory? */
bool auto_order_fits(const struct auto_job *job, const struct auto_order *order, uint32_t rank);
bool auto_better(const struct auto_score *x, const struct auto_score *y);
struct auto_order *auto_order_new(struct arena *a, const struct auto_job *job);
void auto_order_copy(const struct auto_job *job, struct auto_order *to, const struct auto_order *from);
void auto_order_of(const struct auto_job *job, const struct schedule *s, struct auto_order *out);

/* auto_bound.c: a lower bound on longest_s of every order without pairs.  closely: a better bound, which takes about
 * a thousand times as long. */
double auto_bound_s(struct arena *a, const struct auto_job *job, bool closely);

/* auto_greedy.c: how a rank chooses among the actions that it could start */
struct auto_rank_rule {
    uint32_t window; /* a new microbatch is started only while fewer are between F and I, summed over chunks */
    uint32_t ahead;  /* F is preferred to I while fewer are between F and I */
    uint32_t lag;    /* W is preferred to F when at least so many W are pending */
    uint32_t late;   /* replaces `lag` from microbatch `turn` on */
};
struct auto_rules {
    uint32_t group, group_back; /* microbatches that pass a rank's chunks as one group: of F, and of I and W */
    /* if not 0, instead: how far a chunk's microbatches may be ahead of the next chunk's */
    uint32_t spread, spread_back;
    double patience; /* W is not started if another input arrives within this share of its duration */
    double eager;    /* F is not started if an input gradient arrives within this share of its duration */
    uint32_t fuse;   /* the first so many microbatches of a stage run B instead of I and W */
    bool fuse_entry; /* also on the first stage, where no other stage waits for I */
    uint32_t turn;
    struct auto_rank_rule *rank;
};
struct auto_greedy;
struct auto_greedy *auto_greedy_new(struct arena *a, const struct auto_job *job);
/* Makes an order by the rules; it fits the job's memory.  Requires room for one microbatch on all chunks of every
 * rank. */
void auto_greedy_make(struct auto_greedy *g, const struct auto_rules *rules, struct auto_order *out);

/* state of one search; spent and budget count actions run */
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
/* runs an order and keeps it if it is the best so far; returns whether it is */
bool auto_offer(struct auto_search *x, const struct auto_order *o, struct auto_score *score);
bool auto_optimal(const struct auto_search *x);
uint32_t auto_draw(struct auto_search *x, uint32_t n); /* below n */
/* Parts of the search; each stops when `until` actions are spent.  auto_rules.c: many rules, then random changes of
 * the best; auto_urgent.c: orders shifted to their end and back; auto_local.c: changes of the best order itself. */
void auto_try_rules(struct auto_search *x, uint64_t until);
void auto_try_urgent(struct auto_search *x, uint64_t until);
void auto_change_order(struct auto_search *x, uint64_t until);

#endif
