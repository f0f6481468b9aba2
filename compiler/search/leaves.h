#ifndef LLMC_SEARCH_LEAVES_H
#define LLMC_SEARCH_LEAVES_H

/* Private to the files of search/: from families by cells to leaves, which are timed. */

#include "compiler/search/state.h"

bool search_next_microbatch(const struct searching *s, const struct decision *d, uint64_t per_replica, uint64_t *b);
/* is d's choice of sequence parallelism wished and possible with b sequences per microbatch? */
bool search_sp_possible(const struct searching *s, const struct decision *d, uint64_t b);

/* family.c: passes on the cells of a family, or the leaves of a cell, whose bound is low enough */
typedef void (*cell_taker)(struct searching *s, void *to, const struct cell *cell, double bound, uint32_t family);
typedef void (*leaf_taker)(struct searching *s, void *to, const struct leaf *x);
void search_open_family(struct searching *s, uint32_t index, cell_taker take, void *to);
/* leaves of a few typical cells; those with a bound above `most` may be left out */
void search_sample_family(struct searching *s, uint32_t index, double most, leaf_taker take, void *to);
void search_open_cell(struct searching *s, const struct cell *cell, leaf_taker take, void *to);
/* For synthesised schedules, which are not restricted by what formulas need: passes on the family's classes of
 * schedules under each state, as cells of the class's first schedule, with an optimistic estimate: half way from the
 * fastest formula to a bound on any order.  search_open_class(): the leaves of such a cell, under all formulas of
 * its class without pairs. */
void search_hope_family(struct searching *s, uint32_t index, cell_taker take, void *to);
void search_open_class(struct searching *s, const struct cell *cell, leaf_taker take, void *to);
/* states.c: the family's states, made on the first call; sets one of them in c and its decision d */
const struct states *search_states(struct searching *s, const struct family *f);
void search_set_state(struct cost *c, struct decision *d, const struct state *x);
/* Does the state fit in memory, or may a decision that does not fit still be the closest miss? */
bool search_has_room(const struct searching *s, const struct state *x);
/* starts.c: the leaves most promising for synthesised schedules, at most SEARCH_STARTS, best first, no two of them
 * similar */
enum { SEARCH_STARTS = 32 };
struct search_starts {
    uint32_t n;
    struct leaf at[SEARCH_STARTS]; /* bound: the optimistic estimate */
};
void search_find_starts(struct searching *s, struct search_starts *out);

/* leaf.c: memory and bound of one decision of shape h; simulates a leaf and keeps it if it is good enough; by: NULL,
 * no layers are spared */
enum leaf_fate search_leaf(struct searching *s, struct cost *c, struct search_shape *h, const struct decision *d,
                           const struct search_sparing *by, struct leaf *out);
void search_finish_leaf(struct searching *s, struct leaf *x);
/* lower bound in seconds on a step of c's decision, which has its stages; h: its shape */
double search_leaf_bound_s(struct searching *s, const struct cost *c, const struct search_shape *h);
/* The times of c's stages, in `ranks` and `stages`: the same for all schedules of a class and all states. */
struct search_stages {
    const struct cost_stage *ranks;
    struct pipeline_times times;
    struct cost_body body;
    double work_s[2]; /* seconds of the busiest rank; the same where mirror ranks share their stages (DualPipe) */
};
struct search_stages search_stages(const struct cost *c, const struct search_shape *h, struct cost_stage *ranks,
                                   struct pipeline_stage *stages);
/* Lower bounds in seconds: on d's pipeline; on a step in which nothing but its actions takes time. */
struct search_pipeline {
    double pipeline_s, step_s, forward_s; /* forward: of one microbatch on the busiest rank */
};
struct search_pipeline search_pipeline(struct searching *s, const struct search_stages *x, const struct decision *d);
/* the pipeline alone, if ranks take longer_s[rank] longer per microbatch (pipeline_longer_s()) */
double search_longer_s(struct searching *s, const struct search_stages *x, const struct decision *d,
                       const double *longer_s);
/* What ZeRO, shards and the kind of schedule add to the pipeline of c's decision with stages x; search_step_s() adds
 * it. */
struct search_tail {
    struct cost_least least;
    /* seconds between steps, of the decision's own stages or, with `longer`, of any that recompute more */
    double seam_s;
};
struct search_tail search_tail(struct searching *s, const struct cost *c, const struct search_shape *h,
                               const struct search_stages *x, const struct cost_movers *by, bool longer);
double search_step_s(const struct cost *c, const struct search_pipeline *x, const struct search_tail *t);
/* times c's decision with its schedule simulated; false: it takes more than most_s seconds, and *e is as before */
bool search_time(struct searching *s, const struct cost *c, const struct search_shape *h, double most_s,
                 struct estimate *e);

#endif
