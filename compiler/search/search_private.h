#ifndef LLMC_SEARCH_PRIVATE_H
#define LLMC_SEARCH_PRIVATE_H

/* Private to the files of search/: the state of one search. */

#include "compiler/cost/cost_private.h"
#include "compiler/search/search.h"
#include "compiler/search/space.h"
#include "compiler/support/vec.h"

struct shape_key {
    uint32_t tp, cp, ep, etp, microbatch, recompute, parts, sp, context;
};
struct search_cut {
    uint32_t nstages, pp; /* pp: ranks; the stages of a rank are balanced together */
    bool folds;
    const uint32_t *layers; /* layers by stage, before ranks are balanced */
    struct stage *stages;
    struct search_cut *next;
};
/* Of a schedule of the space: lower bounds in seconds on its pipeline by ZeRO level, including what memory requires
 * where that was computed (levels.c). */
struct schedule_least {
    double pipeline_s[4];
    bool asked[4];
    struct squeeze *squeeze; /* NULL: never computed */
};
/* Over all schedules and ZeRO levels, for a number of ranks, replicas and microbatches: lower bounds on the step,
 * and on the step of any order of actions without pairs; which kinds of recomputation fit. */
struct search_least {
    uint32_t pp, replicas, microbatches;
    double step_s, order_s;
    struct schedule_least *schedules; /* by schedule of the space */
    bool asked;                       /* `alive` has been computed */
    uint32_t alive;                   /* a bit per kind that may fit, as far as the first family opened could tell */
    struct search_least *next;
};
/* what distinguishes groups of ranks */
struct group_key {
    uint32_t n, level, beyond, below[COST_LEVELS];
    uint16_t curve[6];
};
/* prefix sums over layers, for bounds by cuts: seconds of the forward, and of both passes */
struct search_before {
    double *forward_s, *time_s;
};
/* cached blocks of one key and groups of ranks, with what bounds need of them */
struct search_shape {
    uint64_t hash;
    struct search_shape *next; /* next shape in the same bucket of the hash table */
    struct shape_key key;
    struct group_key tp, cp, ep;
    double compute_factor, nic_factor; /* of the slowest node */
    struct cost_shape shape;
    /* Seconds of one microbatch, without recomputation where layers can be spared it: all kernels; all kernels and
     * transfers; the same where no pairs hide transfers; the path forward and back through the model, and the
     * kernels on it; the embedding's forward, the embedding, and the head with prediction modules, at least. */
    double kernels_s, all_s, plain_s, path_s, kernels_path_s, embed_forward_s, embed_least_s,
        head_least_s;               /* plain_s: where no pairs hide transfers */
    struct search_before before[2]; /* members NULL: not made yet; [1]: where pairs hide transfers */
    struct search_cut *cuts;
    struct search_least *least;
    struct search_trade *trade; /* time for memory by recomputation; NULL: not made yet */
};
/* a mesh with the experts' degrees: the first nodes of the tree */
struct mesh_node {
    struct space_mesh mesh;
    uint32_t ep, etp;
    double bound;               /* lower bound on the objective */
    const struct cost *floor;   /* a cost for its degrees that is a lower bound for any placement of ranks */
    bool refined;               /* its bound includes transfers */
    bool dead;                  /* its parameters' state does not fit in memory, whatever the sharding */
    struct mesh_orders *orders; /* NULL: not made yet */
};
/* What a mesh opens into: a microbatch size, sequence parallelism and a context kind, in no order of axes yet; its
 * bound holds for any placement of ranks. */
struct lot {
    struct decision decision; /* the mesh's decision with these */
    uint32_t mesh;
    double bound;
    bool roomed;          /* its bound includes what memory forces it to recompute */
    uint32_t **dead_from; /* family.dead_from by order of axes of the mesh, shared by all microbatch sizes */
};
/* cheapest transfers in groups of n ranks, for any placement */
struct search_floor {
    uint32_t n;
    struct cost_group group;
    struct search_floor *next;
};
/* A ZeRO level with its shard count and groups.  States are listed with those that need least memory first, once for
 * a mesh in one order of axes. */
struct state {
    uint32_t zero, shard;
    struct cost_group ranks, replicas; /* groups of ranks: that share state; that hold the same shard */
    bool fits;                         /* parameters, gradients and optimizer state alone fit in memory */
    struct cost_movers *by;            /* NULL: not made yet; valid where expert rows go through ep_nodes */
    uint32_t ep_nodes;
};
enum { SEARCH_STATES = 64 };
struct states {
    uint32_t n;
    struct state *at; /* NULL: not made yet */
};
/* A lot in an order of axes, placed on nodes.  Its shape has the least recomputation possible; stages are cut by it. */
struct family {
    struct decision decision;        /* without zero, shard, vpp, schedule and stages */
    const struct cost *cost, *floor; /* floor: its mesh's */
    struct search_shape *shape;      /* set once the bound is refined */
    struct search_least *least;      /* set with its bound by cuts */
    uint32_t *dead_from;   /* by kind of recomputation, shared by microbatch sizes: from this size on nothing fits */
    struct states *states; /* shared by all families of a mesh and an order of axes */
    uint32_t alive;        /* a bit per kind of recomputation that may fit, once opened */
    /* by schedule and kind of recomputation, and by ZeRO level: from this state on nothing fits */
    uint8_t (*alive_states)[4];
    double bound;
    bool roomed;  /* its bound includes what memory forces it to recompute */
    bool refined; /* its bound is that by cuts */
};
struct cell {
    uint32_t family, schedule, state;
};
/* a decision that fits in memory, with a lower bound on its objective */
struct leaf {
    struct candidate candidate;
    const struct cost *cost;
    const struct search_shape *shape;
    uint32_t family;
    double bound;
};
enum leaf_fate {
    LEAF_GOOD,
    LEAF_OUT,    /* does not fit, is too slow, or is not wanted */
    LEAF_DEAD,   /* does not fit even without buffers, so it would not under a state that needs more memory either */
    LEAF_SPARED, /* fits without any recomputation */
};
/* A class of schedules shares one cut into stages.  Their times differ by kind: without pairs; from files, which may
 * have pairs; with pairs; and with pairs under ZeRO levels where expert rows have a queue of their own. */
enum row_kind { ROW_PLAIN, ROW_LISTED, ROW_PAIRS, ROW_APART, ROW_KINDS };
enum node_kind { NODE_LEAF, NODE_CELL, NODE_FAMILY, NODE_LOT, NODE_MESH };
struct node {
    double bound;
    uint32_t kind, index;
};
struct searching {
    struct arena *arena;
    const struct job *job;
    const struct topo *topo;
    bool emit_only, anything; /* struct space */
    bool keeps_refused;       /* the result's `refused` is wanted */
    uint32_t top;
    /* budget, most: work allowed in general, and while the gap is wide (0: as budget) */
    uint64_t budget, most, memory_limit;
    uint32_t *promising, npromising; /* mesh indices in the order of the dive */
    /* Search for neighbours: only decisions that differ from `unlike` in this dimension; stages may spare layers as
     * that decision does. */
    const struct decision *unlike;
    enum dimension dimension;
    bool fits;   /* a leaf was found that will be a candidate once it is timed */
    bool fewest; /* the objective is the number of GPUs with which the limits on time are kept */
    bool spare, may_spare;
    struct space space;
    struct search_result *result;
    struct cost_kinds kinds;
    struct cost_products *products;
    struct moments_pairs *pairs;
    struct search_floor *floors;
    struct profile floor_profile; /* profile of the costs of search_floor() */
    struct cost_stage *ranks;
    struct pipeline_stage *stages;
    struct cost_stage *row_ranks[ROW_KINDS]; /* of the current class of schedules */
    struct pipeline_stage *row_stages[ROW_KINDS];
    struct stage *scratch, *layout_stages;
    struct own_stages *stages_known; /* scratch memory */
    uint32_t hopeful_kind;           /* the last kind of recomputation that a memory bound did not rule out */
    double *layer_s;                 /* scratch memory */
    uint32_t layout_nstages, nmeshes;
    bool overlapping; /* some schedule overlaps a forward with a backward */
    double rest_bound, fastest_s;
    const char *cannot; /* why something that fits cannot be emitted */
    bool cut_short;
    VEC(struct mesh_node) meshes;
    VEC(struct lot) lots;
    VEC(struct family) families;
    VEC(struct cell) cells;
    VEC(struct leaf) leaves;
    VEC(struct node) heap;
    struct search_shape **shapes; /* hash table with a power of two of buckets */
    uint64_t nshapes, shape_places;
    /* counts of bounds by memory, and of memory evaluations, of which several cost as much as one unit of work */
    uint64_t ntrades, nprobes;
    uint64_t *counted; /* hash table of configurations counted, with a power of two of places; 0: free */
    uint64_t ncounted, places;
};

/* Makes the space and everything else that a search needs before its first step; false after an error about the
 * wishes. */
bool search_prepare(struct searching *s, struct diag *d);
/* Runs a search given arena, job, topo, emit_only, top and budget, and fills in s->result; false after an error,
 * which is about the wishes only. */
bool search_run(struct searching *s, struct diag *d);
/* the stricter of the limits 'step_time' and 'finish' in seconds per step; INFINITY without either */
double search_limit_s(const struct searching *s);
double search_objective(const struct searching *s, double step_time_s, uint32_t gpus);
/* objective of the worst candidate kept; INFINITY while fewer than `top` are kept */
double search_worst(const struct searching *s);
/* objective of the best candidate; INFINITY while there is none */
double search_best(const struct searching *s);
/* keeps a complete, feasible and timed decision if it is among the best */
void search_keep(struct searching *s, const struct candidate *c);
/* a candidate's objective with what its departures from the plain layout must gain; which of two comes first (< 0) */
double search_priced(const struct searching *s, const struct candidate *c);
int search_compare(const struct searching *s, const struct candidate *x, const struct candidate *y);
void search_copy(struct searching *s, const struct candidate *c, struct candidate *own); /* its stages as well */
uint64_t search_dimension_value(const struct decision *d, enum dimension k);

/* branch.c: the tree of meshes, families and leaves, best bound first, after a dive (dive.c) */
void search_branch(struct searching *s);

bool search_next_microbatch(const struct searching *s, const struct decision *d, uint64_t per_replica, uint64_t *b);
/* is d's choice of sequence parallelism wished and possible with b sequences per microbatch? */
bool search_sp_possible(const struct searching *s, const struct decision *d, uint64_t b);

/* levels.c: bounds of all schedules that apply, by their cuts; what memory requires is computed later */
struct search_least *search_family_bound(struct searching *s, const struct family *f);

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

/* How a decision may spare layers from recomputation: its family's shape, which recomputes nothing, and its kind of
 * recomputation in the space; shape NULL: no bound by them. */
struct search_sparing {
    struct search_shape *shape;
    uint32_t kind;
};
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
/* are they equal except in order of axes, state, context kind, recomputation, and schedules of one placement? */
bool search_alike(const struct decision *x, const struct decision *y);
/* finalists.c: adds candidates with synthesised schedules to those of formulas, or replaces them where 'auto' was
 * asked for */
void search_finalists(struct searching *s);
/* Is it certain that something will be found?  Then the closest miss is not needed. */
bool search_found(const struct searching *s);
/* Counts x, which does not fit, and remembers it if it is the closest miss. */
void search_too_full(struct searching *s, const struct candidate *x);

/* count.c: counts an evaluated configuration of the space, once; computes the sizes of the space when the search is
 * over */
void search_count(struct searching *s, const struct decision *d);
void search_count_space(struct searching *s);
/* can schedule k of the space run a pipeline with d's ranks and microbatches? */
bool search_schedule_applies(const struct searching *s, const struct decision *d, uint32_t k);

/* floor.c: a cost for d's tp, cp, ep and etp whose blocks take no longer than on any nodes in any order of axes */
const struct cost *search_floor(struct searching *s, const struct decision *d);
/* Lower bound in seconds on ZeRO 2's or 3's transfers for one microbatch, on a rank that holds its share of the
 * model; splits: under schedules that split the backward. */
double search_floor_shards_s(struct searching *s, const struct cost *c, const struct cost_shape *x, bool splits);

/* room.c: search_room_bound_s(): a lower bound on a step of c's decision, no less than step_s, given what memory
 * forces layers to recompute; h: its shape without zero, shard, schedule and stages; INFINITY: nothing fits under
 * any state, schedule and recomputation. */
/* Does the least that every rank must hold fit under c's ZeRO level, activations aside? */
bool search_state_fits(struct searching *s, const struct cost *c, struct search_shape *h);
double search_room_bound_s(struct searching *s, const struct cost *c, struct search_shape *h, double step_s);
/* a bit per kind of recomputation under which such a step could still become a candidate */
uint32_t search_roomy_kinds(struct searching *s, const struct cost *c, struct search_shape *h);

/* shapes.c: the cached shape of c's decision; its cut into stages, made once per number of stages */
struct search_shape *search_shape(struct searching *s, const struct cost *c);
/* may decisions spare layers from recomputation? */
bool search_spares(const struct searching *s);
/* least seconds of a microbatch in a layer of that kind: in all; on its path forward and back */
double search_least_s(const struct searching *s, const struct cost_shape *x, uint32_t kind);
double search_least_path_s(const struct searching *s, const struct cost_shape *x, uint32_t kind);
const struct search_cut *search_cut(struct searching *s, struct search_shape *h, const struct decision *d);
bool search_same_group(const struct cost_group *a, const struct cost_group *b);
/* Lower bounds in seconds on a step: by kernels alone, for any cut and schedule; by a cut and its placement. */
enum placement { PLACE_LOOPED, PLACE_FOLDED, PLACE_BOTH_WAYS };
double search_shape_bound_s(const struct search_shape *h, const struct decision *d);
double search_share_bound_s(const struct search_shape *h, const struct decision *d); /* with transfers */
/* By d's stages and placement, for all schedules that run pairs as d's does or does not; the same by rank r alone. */
double search_class_bound_s(struct searching *s, struct search_shape *h, const struct decision *d,
                            enum placement placement);
double search_rank_bound_s(struct searching *s, struct search_shape *h, const struct decision *d,
                           enum placement placement, uint32_t r);
/* Spares as many layers from recomputation as every rank's memory allows, in d's own stages, which are those of x.
 * SPARE_FULL: a rank does not fit even with none spared, and *e has its memory; SPARE_SLOW: with what a rank has to
 * recompute the decision is too slow to become a candidate. */
enum spare_fate { SPARE_FITS, SPARE_FULL, SPARE_SLOW };
enum spare_fate search_spare(struct searching *s, const struct search_sparing *by, const struct cost_rooms *x,
                             struct decision *d, struct estimate *e);

/* neighbours.c: drops wish number `which` of SEARCH_WISHES; returns its name and sets its place, or NULL if it was
 * not stated */
#define SEARCH_WISHES (NDEGREES + 10)
const char *search_drop_wish(struct job *job, uint32_t which, struct span *at);

/* leftover.c: repeats search s with at most as many GPUs as asked for, if no degrees make exactly that many; returns
 * s if nothing comes of it.  search_warn_leftover(): warns that job asked for exactly so many and s has found a plan
 * on fewer. */
struct searching *search_leftover(struct searching *s);
void search_warn_leftover(const struct searching *s, const struct job *job, struct diag *d);

/* Can the job be emitted at all?  false after an error that names what cannot. */
bool search_emit_ready(const struct searching *s, struct diag *d);
/* Reports one error that says why nothing was found and what would help. */
void search_blame(struct searching *s, struct diag *d);

#endif
