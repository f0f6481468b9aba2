#ifndef LLMC_SEARCH_STATE_H
#define LLMC_SEARCH_STATE_H

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
/* How a decision may spare layers from recomputation: its family's shape, which recomputes nothing, and its kind of
 * recomputation in the space; shape NULL: no bound by them. */
struct search_sparing {
    struct search_shape *shape;
    uint32_t kind;
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
    const struct diag *diag; /* is told how far the search is; NULL: nobody is */
    double told_s;           /* when, by a clock */
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
    bool first_layers; /* a kind of recomputation leaves out layers by itself */
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
    const char *cannot;  /* why something that fits cannot be emitted */
    const char *foreign; /* what something that fits needs and the target has not */
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
    uint64_t ntrades, nprobes, ntails;
    uint64_t *counted; /* hash table of configurations counted, with a power of two of places; 0: free */
    uint64_t ncounted, places;
};

#endif
