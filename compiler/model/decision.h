#ifndef LLMC_DECISION_H
#define LLMC_DECISION_H

/* The decision record: everything that the search chooses and the lowering obeys.
 *
 * Layers are cut into nstages = pp * vpp stages in model order.  Stage s runs on pipeline rank s mod pp (looped
 * placement); V-shaped placements come with their schedules.  A decision stores nothing that can be derived from it. */

#include "compiler/model/model.h"
#include "compiler/topology/mesh.h"
#include "runtime/program.h"

struct stage {
    uint32_t first, count; /* layers */
    bool embed, head;      /* holds the embedding; the final norm, head and loss */
    uint32_t spared;       /* how many of its last layers keep their activations although the decision recomputes */
};

#define DECISION_MOST_PREFETCH 64
#define DECISION_MOST_VPP 64 /* most chunks per rank of a legal decision */

struct schedule;
struct decision {
    uint32_t tp, cp, pp, vpp, dp, ep, etp, zero, shard;
    uint32_t microbatch;   /* sequences */
    uint32_t microbatches; /* per data-parallel replica and step */
    /* Number of nodes that an expert-parallel group spans, with equally many ranks on each.  Above 1, a token's row
     * travels once to each node that holds any of its chosen experts and is copied there.  1: it travels once per
     * choice.  0, only before a decision is compiled: cost_exchange_nodes() decides. */
    uint32_t ep_nodes;
    /* capacity of a block of expert rows, as a multiple of the mean; 0: enough for every row that can come */
    double room;
    uint32_t prefetch; /* zero 3: parameters are all-gathered so many uses (a piece's forward or backward) ahead */
    bool sp;
    enum recompute recompute; /* never AUTO */
    uint32_t parts, recompute_layers;
    enum schedule_kind schedule;
    uint32_t schedule_group;
    /* AUTO and FILE: the schedule itself, kept beside the plan's other files.  folds: its placement is V-shaped,
     * stages r and 2 pp - 1 - r on rank r; else rank r runs stages r + j pp. */
    const struct schedule *listed;
    bool folds;
    enum context_kind context;
    enum axis order[NAXES]; /* innermost first */
    uint32_t nstages;
    struct stage *stages;
    uint32_t type;      /* node type */
    uint32_t gpus_used; /* tp * cp * pp * dp */
    uint32_t nnodes;    /* nodes used: rank r is on nodes[r / GPUs per node] */
    const uint32_t *nodes;
};

/* One device, one sequence per microbatch, 1F1B, the default order of axes; without stages and nodes. */
struct decision decision_single(void);

/* Chooses nodes for the decision's node type and degrees: the first usable ones, without degraded nodes where the
 * others are enough, since all ranks wait for the slowest.  false, with a sentence in *why, if there are too few. */
bool decision_place(struct arena *a, const struct topo *topo, struct decision *d, const char **why);
/* Stores those of n nodes that are not degraded, in order; returns how many. */
uint32_t decision_healthy(struct arena *a, const struct topo *topo, const uint32_t *nodes, uint32_t n,
                          uint32_t **healthy);
/* Ranks in the data-parallel gradient reduction of experts: tp * cp * dp / (ep * etp); and of those, over how many
 * the experts' optimizer state is sharded. */
uint32_t decision_expert_dp(const struct decision *d);
uint32_t decision_expert_shard(const struct decision *d);

/* How many neighbouring ranks of tp hold the same key/value head of grouped-query attention: more than 1 where a
 * layer has fewer such heads than tp ranks. */
uint32_t decision_key_ranks(const struct job *job, const struct decision *d);

/* The decision's mesh of ranks, cut into digits where expert, shard or key-head groups end inside an axis.  Where
 * those groups do not nest, which decision_emittable() refuses, one digit per axis. */
struct mesh decision_mesh(const struct job *job, const struct decision *d);

/* Could the expert-parallel groups be laid out over so many nodes, with nesting groups? */
bool decision_experts_nest(const struct job *job, const struct decision *d, uint32_t nodes);

/* Is the decision consistent with itself, the job and the cluster?  false, with a sentence in *why, if not.  Checks
 * that tp and cp divide heads and key/value heads (vocabularies are padded), that batch = microbatch * microbatches
 * * dp, and that every layer is in one stage; memory is not considered. */
bool decision_legal(struct arena *a, const struct job *job, const struct topo *topo, const struct decision *d,
                    const char **why);
/* Can the lowering emit programs for it?  false, with a sentence in *why that names what it cannot emit. */
bool decision_emittable(struct arena *a, const struct job *job, const struct decision *d, const char **why);
/* The part of decision_emittable() for a job that keeps activations in 8 bits. */
bool decision_keeps_eight(struct arena *a, const struct job *job, const struct decision *d, const char **why);
/* Do the ranks end a step one after the other, and learn only during the next step whether and by how much gradients
 * were clipped (post-validation; Qi et al. 2023, section 4)? */
bool decision_skews(const struct job *job, const struct decision *d);
/* Bytes of a GPU, in addition to its reserve, that no plan may take: what `keep N free` says, by default 2 % of its
 * memory.  The catalogue's reserve of 2 GiB covers a CUDA context and NCCL's first communicators (0.5 GB and 0.7
 * GB); more communicators were seen to take up to 6 GB (NCCL issue 864), and lazily loaded kernels, graphs and
 * library workspaces grow with the program. CPU ranks have none of these, so nothing is kept free there. */
uint64_t decision_free_bytes(const struct job *job, const struct topo_gpu *g);
/* " (1.6GiB are kept free)", or "" where that is not what limits a plan */
const char *decision_free_text(struct arena *a, const struct job *job, const struct topo_gpu *g);
/* Bytes of a GPU that a plan's arena may take: its memory less the reserve and what stays free, or what the plan
 * block allows if that is less.  decision_memory_bytes(): of the decision's node type. */
uint64_t decision_gpu_bytes(const struct job *job, const struct topo_gpu *g);
uint64_t decision_memory_bytes(const struct job *job, const struct topo *topo, const struct decision *d);
/* Does the schedule overlap the forward of one microbatch with the backward of another, hiding the transfers of each
 * behind the matrix products of the other? */
bool decision_pairs(enum schedule_kind k);
/* Does context parallelism exchange heads for rows around attention (all-to-all)? */
static inline bool decision_exchanges_heads(const struct decision *d)
{
    return d->cp > 1 && d->context == CONTEXT_ALL_TO_ALL;
}
/* Parts that a microbatch's rows are cut into so that tensor-parallel transfers overlap with the products that they
 * belong to (`overlap tp with compute`): 4, as in Transformer Engine; 2 where a rank's rows are not divisible by 4;
 * 1, no overlap, where they are odd, or where experts choose among the rows or activations are kept in 8 bits, which
 * need all rows of a rank at once. */
uint32_t decision_cuts(const struct job *job, const struct decision *d);
/* Do transfers of activations over tp, and of rows to experts and back, run in turn with kernels, none beside them?  So
 * the plan block has it with `never overlap`, or the target's stack. */
bool decision_tp_turns(const struct job *job, const struct decision *d);
bool decision_rows_turn(const struct job *job, const struct decision *d);
/* For schedules with such pairs: may the all-to-all of expert rows use the queue of data-parallel gradients?  That
 * queue is mostly idle except at both ends of the step; not so under ZeRO 2 and 3, where this returns false. */
bool decision_exchanges_apart(const struct job *job, const struct decision *d);

/* Sets the spared layers of all stages from recompute_layers: full(layers=N) recomputes the first N layers of each
 * chunk. */
void decision_spare(struct decision *d);

/* Is the placement of stages V-shaped (folded) rather than looped? */
bool decision_folds(const struct decision *d);
/* Stages per pipeline rank for which a schedule is defined; 0: any number above 1. */
uint32_t schedule_chunks(enum schedule_kind k);

/* Cuts the layers into stages of even cost by `cost[layer]`, with embedding and head as costs of their own (cost 0:
 * by layer count).  With vpp > 1 the sums per rank are then evened out, too, by the placement of d->schedule. */
void decision_cut(struct arena *a, struct decision *d, uint32_t nlayers, const double *cost, double embed, double head);
/* The same in two steps: layers per stage, whose sums per rank may be uneven; then, from those, stages balanced
 * between ranks. */
uint32_t *decision_count_layers(struct arena *a, uint32_t stages, uint32_t nlayers, const double *cost, double embed,
                                double head);
void decision_cut_by(struct arena *a, struct decision *d, uint32_t nlayers, const double *cost, double embed,
                     double head, const uint32_t *layers);

/* Megatron's layout string: "Et*8|t*8|...|t*8L" */
char *decision_layout(struct arena *a, const struct decision *d);
/* the same string, shorter: "Et*3|(t*4|)*30t*3L" */
char *decision_layout_short(struct arena *a, const struct decision *d);
bool decision_parse_layout(struct arena *a, struct decision *d, uint32_t nlayers, const char *layout, const char **why);

extern const char *const recompute_names[];       /* by enum recompute: "none" "selective" "full" "auto" */
extern const char *const recompute_part_names[8]; /* by bit */
extern const char *const context_names[];         /* by enum context_kind */
extern const char *const axis_names[NAXES];       /* "tp" "cp" "dp" "pp" */

/* what it has where the plan block wishes for a degree */
uint32_t decision_degree(const struct decision *d, enum degree which);

/* for people: "tp 8 sp, pp 16, dp 128, zero 1, microbatch 1 x 16, 1f1b, recompute none" */
char *decision_text(struct arena *a, const struct job *job, const struct decision *d);
/* Of that text "recompute selective [ffn] in 12 of 80 layers"; with layers = false, without the count of layers. */
char *decision_recompute_text(struct arena *a, const struct decision *d, bool layers);

struct strbuf; /* the "decision" object of plan.json, and back */
void decision_json(const struct job *job, const struct decision *d, struct strbuf *out);
bool decision_from_json(struct arena *a, const char *json, size_t size, const struct job *job, const struct topo *topo,
                        struct decision *d, const char **why);

#endif
