#ifndef LLMC_SEARCH_PRIVATE_H
#define LLMC_SEARCH_PRIVATE_H

/* Between the files of search/: the state of one search. */

#include "compiler/cost/cost_private.h"
#include "compiler/search/search.h"
#include "compiler/search/space.h"
#include "compiler/support/vec.h"

struct shape_key {
    uint32_t tp, cp, ep, etp, microbatch, recompute, parts, sp, context;
};
struct search_cut {
    uint32_t nstages, pp; /* ranks, whose stages are balanced together */
    bool folds;
    const uint32_t *layers; /* by stage, before ranks are balanced */
    struct stage *stages;
    struct search_cut *next;
};
/* of a schedule of the space: seconds of its pipeline by ZeRO level, as far as memory was asked for them (levels.c) */
struct schedule_least {
    double pipeline_s[4];
    bool asked[4];
    struct squeeze *squeeze; /* NULL: never asked */
};
/* of all schedules and ZeRO levels, by ranks, replicas and microbatches: the least step, the same of any order of actions that
 * makes no pairs; kinds of recomputation that fit */
struct search_least {
    uint32_t pp, replicas, microbatches;
    double step_s, order_s;
    struct schedule_least *schedules; /* by schedule of the space */
    bool asked;     /* it is known what fits, */
    uint32_t alive; /* a bit by kind, as far as a family that was opened before could tell */
    struct search_least *next;
};
/* what tells groups apart */
struct group_key {
    uint32_t n, level, beyond, below[COST_LEVELS];
    uint16_t curve[6];
};
/* sums over the layers before each, for bounds of cuts: of forward and of both directions */
struct search_before {
    double *forward_s, *time_s;
};
/* blocks of one key and groups, with what bounds need of them */
struct search_shape {
    uint64_t hash;
    struct search_shape *next; /* of the same place */
    struct shape_key key;
    struct group_key tp, cp, ep;
    double compute_factor, nic_factor; /* of the slowest node */
    struct cost_shape shape;
    /* without recomputation where that can be spared: all kernels; all kernels and transfers; what one
     * microbatch's way is made of, and its kernels; of the embedding's forward, the embedding, the head with
     * prediction modules */
    double kernels_s, all_s, plain_s, path_s, kernels_path_s, embed_forward_s, embed_least_s,
        head_least_s;               /* plain: where no pairs hide any */
    struct search_before before[2]; /* NULL: not made yet; [1]: where pairs hide transfers */
    struct search_cut *cuts;
    struct search_least *least;
    struct search_trade *trade; /* of time for memory; NULL: not made yet */
};
/* a mesh with expert degrees: what branch.c opens first */
struct mesh_node {
    struct space_mesh mesh;
    uint32_t ep, etp;
    double bound; /* from below */
    const struct cost *floor; /* of its degrees, wherever their ranks are */
    bool refined;             /* its bound has transfers */
    bool dead;                /* no state of its parameters fits, however they are cut */
    struct mesh_orders *orders; /* NULL: not asked for yet */
};
/* What a mesh opens into: a microbatch, sequence parallelism and a context kind, in no order of axes yet; bounded wherever its
 * ranks are. */
struct lot {
    struct decision decision; /* the mesh's with these */
    uint32_t mesh;
    double bound;
    bool roomed;          /* its bound has what memory makes it recompute */
    uint32_t **dead_from; /* of families by the mesh's order of axes, shared by microbatches */
};
/* transfers in groups of n ranks, wherever they are */
struct search_floor {
    uint32_t n;
    struct cost_group group;
    struct search_floor *next;
};
/* ZeRO levels with their shards and groups, those that need least memory first: made once for a mesh in one
 * order */
struct state {
    uint32_t zero, shard;
    struct cost_group ranks, replicas; /* that share state; that hold the same */
    bool fits;                         /* what all ranks hold of it does, leaving all else aside */
    struct cost_movers *by;            /* NULL: not asked for yet; where experts' rows go through ep_nodes */
    uint32_t ep_nodes;
};
enum { SEARCH_STATES = 64 };
struct states {
    uint32_t n;
    struct state *at; /* NULL: not made yet */
};
/* A lot in an order of axes, on nodes.  Its shape is that of the
 * least recomputation there can be; stages are cut by it. */
struct family {
    struct decision decision; /* without zero, shard, vpp, schedule and stages */
    const struct cost *cost, *floor; /* floor: of its mesh */
    struct search_shape *shape;      /* once refined */
    struct search_least *least; /* the same, by its cuts */
    uint32_t *dead_from; /* by kind of recomputation, shared by microbatches: from this one on nothing fits */
    struct states *states; /* shared by all families of the mesh and order */
    uint32_t alive;        /* bits by kind of recomputation, once opened */
    uint8_t (*alive_states)[4]; /* by schedule and kind, and by ZeRO level: from this state on nothing fits */
    double bound;
    bool roomed;  /* its bound has what memory makes it recompute */
    bool refined; /* its bound is that of its cuts */
};
struct cell {
    uint32_t family, schedule, state;
};
/* a decision that fits, with its objective from below */
struct leaf {
    struct candidate candidate;
    const struct cost *cost;
    const struct search_shape *shape;
    uint32_t family;
    double bound;
};
enum leaf_fate {
    LEAF_GOOD,
    LEAF_OUT,    /* does not fit, is too slow, or is not asked for */
    LEAF_DEAD,   /* does not fit, even without buffers: nor would it under a state that needs more */
    LEAF_SPARED, /* fits without any recomputation */
};
/* A class of schedules has one cut, but stages of its own in those without pairs, in those from files, which may have them, in
 * those with them, and in these under ZeRO levels where rows to experts have a queue of their own. */
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
    uint32_t top;
    uint64_t budget, most, memory_limit; /* most: work while the gap is wide; 0: as budget */
    uint32_t *promising, npromising;     /* meshes in the order of the dive */
    /* neighbours: only decisions that differ from `unlike` in this dimension; stages may spare layers as it
     * does */
    const struct decision *unlike;
    enum dimension dimension;
    bool fits;   /* a leaf was found that is a candidate once it is timed */
    bool fewest; /* objective: the number of GPUs that keeps the limits on time */
    bool spare, may_spare;
    struct space space;
    struct search_result *result;
    struct cost_kinds kinds;
    struct cost_products *products;
    struct moments_pairs *pairs;
    struct search_floor *floors;
    struct profile floor_profile; /* of floors' costs */
    struct cost_stage *ranks;
    struct pipeline_stage *stages;
    struct cost_stage *row_ranks[ROW_KINDS]; /* of the class of schedules that is looked at */
    struct pipeline_stage *row_stages[ROW_KINDS];
    struct stage *scratch, *layout_stages;
    struct own_stages *stages_known; /* scratch */
    uint32_t hopeful_kind; /* of recomputation: the last that a room left hope for */
    double *layer_s; /* scratch */
    uint32_t layout_nstages, nmeshes;
    bool overlapping; /* schedules that run a forward and a backward at once */
    double rest_bound, fastest_s;
    const char *cannot; /* why something that fits can't be emitted */
    bool cut_short;
    VEC(struct mesh_node) meshes;
    VEC(struct lot) lots;
    VEC(struct family) families;
    VEC(struct cell) cells;
    VEC(struct leaf) leaves;
    VEC(struct node) heap;
    struct search_shape **shapes; /* hashed; a power of two of places */
    uint64_t nshapes, shape_places;
    uint64_t ntrades, nprobes; /* bounds by memory; looks at it */
    uint64_t *counted; /* configurations, hashed; a power of two of places, 0: free */
    uint64_t ncounted, places;
};

/* the space and all else that a search needs before its first step; false after an error about the wishes */
bool search_prepare(struct searching *s, struct diag *d);
/* fills s->result from arena, job, topo, emit_only, top and budget; false after an error about the wishes
 * alone */
bool search_run(struct searching *s, struct diag *d);
/* the stricter of 'step_time' and 'finish' per step; INFINITY without either */
double search_limit_s(const struct searching *s);
double search_objective(const struct searching *s, double step_time_s, uint32_t gpus);
/* objective of the worst candidate kept; INFINITY while there is room */
double search_worst(const struct searching *s);
/* of the best one; INFINITY while there is none */
double search_best(const struct searching *s);
/* complete, feasible, timed: among the candidates if it is good enough */
void search_keep(struct searching *s, const struct candidate *c);
uint64_t search_dimension_value(const struct decision *d, enum dimension k);

/* branch.c: the tree of meshes, families and leaves, best bound first, after a dive (dive.c) */
void search_branch(struct searching *s);

bool search_next_microbatch(const struct searching *s, const struct decision *d, uint64_t per_replica,
                            uint64_t *b);
/* sequence parallelism as wished, with b sequences */
bool search_sp_possible(const struct searching *s, const struct decision *d, uint64_t b);

/* levels.c: of all schedules that apply, by their cuts; memory is asked for later */
struct search_least *search_family_bound(struct searching *s, const struct family *f);

/* family.c: the cells of a family whose bound is low enough, the leaves of a cell */
typedef void (*cell_taker)(struct searching *s, void *to, const struct cell *cell, double bound,
                           uint32_t family);
typedef void (*leaf_taker)(struct searching *s, void *to, const struct leaf *x);
void search_open_family(struct searching *s, uint32_t index, cell_taker take, void *to);
/* leaves of a few usual cells; those of a bound above `most` may be left out */
void search_sample_family(struct searching *s, uint32_t index, double most, leaf_taker take, void *to);
void search_open_cell(struct searching *s, const struct cell *cell, leaf_taker take, void *to);
/* For schedules of their own, wherever memory and formulas leave them: the family's classes of schedules under each state, as cells
 * of the class's first schedule, with what may be hoped of them: half of what separates the fastest formula from a bound on any
 * order.  And the leaves of such a cell, under all formulas of its class that make no pairs. */
void search_hope_family(struct searching *s, uint32_t index, cell_taker take, void *to);
void search_open_class(struct searching *s, const struct cell *cell, leaf_taker take, void *to);
/* states.c: the family's states, made by the first that asks; one of them, into c and its decision d */
const struct states *search_states(struct searching *s, const struct family *f);
void search_set_state(struct cost *c, struct decision *d, const struct state *x);
/* Is there room for the state, or may what does not fit be the closest miss? */
bool search_has_room(const struct searching *s, const struct state *x);
/* starts.c: the leaves that promise most of schedules of their own, at most SEARCH_STARTS, best first, no two of them alike */
enum { SEARCH_STARTS = 32 };
struct search_starts {
    uint32_t n;
    struct leaf at[SEARCH_STARTS]; /* bound: of what is hoped for */
};
void search_find_starts(struct searching *s, struct search_starts *out);

/* leaf.c: memory and bound of one decision of shape h; time of a leaf, and whether it is kept */
enum leaf_fate search_leaf(struct searching *s, struct cost *c, struct search_shape *h,
                           const struct decision *d, bool spare, struct leaf *out);
void search_finish_leaf(struct searching *s, struct leaf *x);
/* a step of c's decision, with its stages, from below; h is its shape */
double search_leaf_bound_s(struct searching *s, const struct cost *c, const struct search_shape *h);
/* the stages of c's decision, in `ranks` and `stages`: the same for all schedules of a class and all states
 */
struct search_stages {
    const struct cost_stage *ranks;
    struct pipeline_times times;
    struct cost_body body;
    double work_s[2]; /* of the fullest rank; where mirror ranks share their stages */
};
struct search_stages search_stages(const struct cost *c, const struct search_shape *h,
                                   struct cost_stage *ranks, struct pipeline_stage *stages);
/* seconds from below: of d's pipeline; of a step of it in which nothing is beside the actions */
struct search_pipeline {
    double pipeline_s, step_s, forward_s; /* forward: of a microbatch on the fullest rank */
};
struct search_pipeline search_pipeline(struct searching *s, const struct search_stages *x,
                                       const struct decision *d);
/* the pipeline alone, where ranks take so much longer (pipeline_longer_s()) */
double search_longer_s(struct searching *s, const struct search_stages *x, const struct decision *d, const double *longer_s);
/* What ZeRO, shards and the kind of schedule add, of c's decision and stages of x.  step_s() below has them.
 */
struct search_tail {
    struct cost_least least;
    double seam_s; /* of the decision's own stages, or with `longer` of any that recompute more */
};
struct search_tail search_tail(struct searching *s, const struct cost *c, const struct search_shape *h,
                               const struct search_stages *x, const struct cost_movers *by, bool longer);
double search_step_s(const struct cost *c, const struct search_pipeline *x, const struct search_tail *t);
/* c's decision with its schedule run */
void search_time(struct searching *s, const struct cost *c, const struct search_shape *h, struct estimate *e);
/* are they alike but for order, state, context kind, recomputation, and schedules of one placement? */
bool search_alike(const struct decision *x, const struct decision *y);
/* finalists.c: candidates with synthesised schedules beside those of formulas, or instead of them where 'auto' was asked
 * for */
void search_finalists(struct searching *s);
/* Is it certain that something will be found?  Then nobody asks for the closest miss. */
bool search_found(const struct searching *s);
/* counts x, which does not fit, and remembers it if it is the closest miss */
void search_too_full(struct searching *s, const struct candidate *x);

/* count.c: counts a configuration of the space that is looked at, once; sizes of the space when the search is over */
void search_count(struct searching *s, const struct decision *d);
void search_count_space(struct searching *s);
/* can a pipeline of d's ranks and microbatches run schedule k of the space? */
bool search_schedule_applies(const struct searching *s, const struct decision *d, uint32_t k);

/* floor.c: a cost of d's tp, cp, ep and etp on which blocks take no longer than on any nodes in any order of axes */
const struct cost *search_floor(struct searching *s, const struct decision *d);
/* seconds of ZeRO 2's or 3's transfers for one microbatch, of a rank that holds its share of the model, under
 * schedules that split the backward or do not */
double search_floor_shards_s(struct searching *s, const struct cost *c, const struct cost_shape *x,
                             bool splits);

/* room.c: a step of c's decision, no less than step_s, with what memory makes layers recompute; h is its shape without
 * zero, shard, schedule and stages; INFINITY: no state, schedule and recomputation fits */
/* does what every rank holds at least fit under c's ZeRO level, leaving activations aside? */
bool search_state_fits(struct searching *s, const struct cost *c, struct search_shape *h);
double search_room_bound_s(struct searching *s, const struct cost *c, struct search_shape *h, double step_s);
/* kinds of recomputation, a bit each, under which such a step leaves hope for a candidate */
uint32_t search_roomy_kinds(struct searching *s, const struct cost *c, struct search_shape *h);

/* shapes.c: the cached shape of c's decision; stages of a shape, cut once per number of stages */
struct search_shape *search_shape(struct searching *s, const struct cost *c);
/* may layers be spared from what decisions recompute? */
bool search_spares(const struct searching *s);
/* seconds of a microbatch in a layer of that kind, at least; of its way through and back */
double search_least_s(const struct searching *s, const struct cost_shape *x, uint32_t kind);
double search_least_path_s(const struct searching *s, const struct cost_shape *x, uint32_t kind);
const struct search_cut *search_cut(struct searching *s, struct search_shape *h, const struct decision *d);
bool search_same_group(const struct cost_group *a, const struct cost_group *b);
/* bounds on a step's time from below: by kernels alone, however cut and scheduled; by a cut and its placement
 */
enum placement { PLACE_LOOPED, PLACE_FOLDED, PLACE_BOTH_WAYS };
double search_shape_bound_s(const struct search_shape *h, const struct decision *d);
double search_share_bound_s(const struct search_shape *h, const struct decision *d); /* with transfers */
/* by d's stages and placement, of all schedules that run pairs as d's does or does not; the same of rank r alone */
double search_class_bound_s(struct searching *s, struct search_shape *h, const struct decision *d, enum placement placement);
double search_rank_bound_s(struct searching *s, struct search_shape *h, const struct decision *d, enum placement placement, uint32_t r);
/* Spares as many layers from recomputation as every rank's memory allows, in d's own stages, which are those of x; false
 * if a rank does not fit with none spared, e is its memory then. */
bool search_spare(const struct cost_rooms *x, struct decision *d, uint64_t limit, struct estimate *e);

/* neighbours.c: without wish `which` of SEARCH_WISHES; its name and place, or NULL if it was not stated */
#define SEARCH_WISHES (NDEGREES + 10)
const char *search_drop_wish(struct job *job, uint32_t which, struct span *at);

/* leftover.c: s again with at most as many GPUs as asked for, if no degrees make exactly so many; s where nothing comes of it.
 * The warning for job, which asks for exactly so many, when s has found a plan on fewer. */
struct searching *search_leftover(struct searching *s);
void search_warn_leftover(const struct searching *s, const struct job *job, struct diag *d);

/* can the job be emitted at all? false after an error that names what cannot */
bool search_emit_ready(const struct searching *s, struct diag *d);
/* one error that says why nothing was found and what would help */
void search_blame(struct searching *s, struct diag *d);

#endif
