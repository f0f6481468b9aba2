#ifndef LLMC_SPACE_H
#define LLMC_SPACE_H

/* The space of decisions that wishes, job and cluster allow, as lists of candidate values per degree and a list of
 * meshes.  A mesh fixes the four axes; everything below it is enumerated by branch.c.
 *
 * What is in it, wishes aside: every tp, ep, pp and dp that divides what it splits; cp in powers of two that leave
 * 2,048 tokens per rank; etp 1; vpp up to 4, and 8; ZeRO 0 to 3, with state sharded over all of dp * cp or over the
 * most ranks that stay within one level of the network; microbatches that divide the replica's batch, up to 256 Ki
 * tokens; recompute none, full, or one of a chain of lists of parts (cheapest seconds per byte first), in as few
 * layers of each stage as memory requires; every schedule, with groups of pp and, where the file names no schedule,
 * 2 pp microbatches; the usual two orders of axes; stages cut for even time (without recomputation where that is
 * chosen freely), a rank's spared layers spread over its chunks, later ones first; the first usable nodes, without
 * degraded ones where the others are enough.
 *
 * Not in it, and so not covered by the search's gap: cuts made for memory, and what finalists.c tries with the best
 * candidates. */

#include "compiler/model/decision.h"
#include "compiler/topology/mesh_runs.h"

struct space_list {
    uint32_t n;
    uint32_t *at;
};
struct space_mesh {
    uint32_t tp, cp, dp, pp;
};
/* usable nodes in runs of `block` nodes that cross no boundary of a network level; a plan takes the first ones */
struct space_nodes {
    uint64_t block;
    uint32_t level, n;
    const uint32_t *nodes;
    const struct mesh_runs *runs; /* NULL: not made yet */
};
/* a schedule with its chunks per rank and its groups: of `group` microbatches, or else of groups_of_pp * pp */
struct space_schedule {
    enum schedule_kind kind;
    uint32_t vpp, group, groups_of_pp;
    bool folds;                    /* placement */
    const struct schedule *listed; /* the schedule of a file */
};
/* A kind of recomputation.  spare: stages with free memory keep the activations of some or all of their layers.
 * kept, extra: on the smallest mesh, relative to a microbatch's layers without recomputation: the share of bytes
 * still kept, the share of time added. */
struct space_recompute {
    enum recompute kind;
    uint32_t parts, layers;
    bool spare;
    double kept, extra;
};
#define SPACE_ORDERS 24
#define SPACE_SCHEDULES 256
#define SPACE_RECOMPUTE 20

struct space {
    struct arena *arena;
    const struct job *job;
    const struct topo *topo;
    bool anything; /* also try values that are seldom worthwhile */
    uint32_t type;
    uint64_t usable; /* GPUs */
    struct space_list tp, cp, pp, vpp, dp, ep, etp, zero;
    uint32_t norders;
    enum axis order[SPACE_ORDERS][NAXES];
    uint32_t nschedules;
    struct space_schedule schedules[SPACE_SCHEDULES];
    uint32_t nrecompute;
    struct space_recompute recompute[SPACE_RECOMPUTE];
    bool experts;
    struct space_nodes healthy; /* nodes that are not degraded; plans use only these where they are enough */
    uint32_t nplaces;           /* node lists made so far; the first has all usable nodes */
    struct space_nodes places[32];
    uint64_t keeps_refused; /* number of meshes that a keep wish has removed */
};

/* Fills in lists, orders and schedules; false after an error that names the wish which leaves its list empty. */
bool space_new(struct arena *a, struct diag *d, const struct job *job, const struct topo *topo, bool anything,
               struct space *s);
/* recompute.c: fills in the kinds of recomputation, which depend on lists, orders and nodes */
void space_recompute(struct arena *a, struct space *s);
/* schedule_file.c: reads the schedule from a wish's file; false after an error */
bool space_schedule_file(struct diag *d, struct space *s, const struct schedule_wish *w, struct space_schedule *out);
bool space_wants(const struct wish *w, uint64_t value);
/* Lists all meshes, most GPUs first, without nodes; returns how many. */
uint32_t space_meshes(struct arena *a, const struct space *s, struct space_mesh **meshes);
/* Does an order of axes differ from all earlier ones when axes of size 1 are ignored? */
bool space_order_counts(const struct space *s, uint32_t order, const struct space_mesh *m);
/* Can the schedule run a pipeline with d's ranks and microbatches? */
bool space_schedule_takes(const struct space *s, const struct space_schedule *k, const struct decision *d);
/* Sets order, nodes and gpus_used of d from its degrees; false if a keep wish or the cluster forbids it. */
bool space_place(struct space *s, uint32_t order, struct decision *d);
/* the runs of the node list that d's nodes are from */
const struct mesh_runs *space_runs(struct space *s, const struct decision *d);

#endif
