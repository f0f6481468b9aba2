#ifndef LLMC_DECISION_H
#define LLMC_DECISION_H

/* The decision record: everything that the search chooses and the lowering obeys.
 *
 * Layers are cut into nstages = pp * vpp stages in model order.  Stage s runs on pipeline rank s mod pp (looped
 * placement; the V-shaped ones come with their schedules).  A decision says nothing that follows from it. */

#include "compiler/model/model.h"
#include "compiler/topology/mesh.h"
#include "runtime/program.h"

struct stage {
    uint32_t first, count; /* layers */
    bool embed, head;      /* holds the embedding; the final norm, head and loss */
    uint32_t spared;       /* its last layers that keep what they need where the decision recomputes */
};

#define DECISION_MOST_PREFETCH 64
#define DECISION_MOST_VPP 64 /* legal ones have no more */

struct schedule;
struct decision {
    uint32_t tp, cp, pp, vpp, dp, ep, etp, zero, shard;
    uint32_t microbatch;   /* sequences */
    uint32_t microbatches; /* per data-parallel replica and step */
    /* Nodes that the ranks of ep lie on, as many on each: a token's row travels once to each node with experts that it chose and
     * is spread there.  1: once for every choice; 0, before a decision is compiled: by cost_exchange_nodes() */
    uint32_t ep_nodes;
    double room;           /* rows that a block of experts' rows holds, over the mean; 0: all that can come */
    uint32_t prefetch;     /* zero 3: uses ahead that parameters are gathered */
    bool sp;
    enum recompute recompute; /* never AUTO */
    uint32_t parts, recompute_layers;
    enum schedule_kind schedule;
    uint32_t schedule_group;
    /* AUTO and FILE: the schedule itself, kept beside the plan's other files; its placement: stages r and 2 pp - 1 - r on
     * rank r, else r + j pp */
    const struct schedule *listed;
    bool folds;
    enum context_kind context;
    enum axis order[NAXES]; /* innermost first */
    uint32_t nstages;
    struct stage *stages;
    uint32_t type;        /* node type */
    uint32_t gpus_used;   /* tp * cp * pp * dp */
    uint32_t nnodes;      /* nodes used, in rank order: rank r sits on nodes[r / gpus per node] */
    const uint32_t *nodes;
};

/* one device, whole sequences one by one, 1F1B, ranks in the usual order; without stages and nodes */
struct decision decision_single(void);

/* The nodes for its type and degrees: the first usable ones, without degraded ones where the others are enough, since
 * everyone waits for the slowest.  false and one sentence if there are too few. */
bool decision_place(struct arena *a, const struct topo *topo, struct decision *d, const char **why);
/* of n nodes those that are not degraded, in order */
uint32_t decision_healthy(struct arena *a, const struct topo *topo, const uint32_t *nodes, uint32_t n, uint32_t **healthy);
/* ranks that share the experts' data-parallel reduction: tp * cp * dp / (ep * etp); of them, those that split their state */
uint32_t decision_expert_dp(const struct decision *d);
uint32_t decision_expert_shard(const struct decision *d);

/* neighbouring ranks of tp that hold the same key head of grouped queries: more than 1 where a layer has fewer */
uint32_t decision_key_ranks(const struct job *job, const struct decision *d);

/* The mesh of its ranks, cut into digits where experts, shards or key heads need it; where they do not nest, which
 * decision_emittable() refuses, one digit per axis. */
struct mesh decision_mesh(const struct job *job, const struct decision *d);

/* could its experts be spread over so many nodes? */
bool decision_experts_nest(const struct job *job, const struct decision *d, uint32_t nodes);

/* Is it consistent with itself, the job and the cluster?  false and one sentence if not: divisibility of heads, kv heads,
 * vocabulary padding aside, batch = microbatch * microbatches * dp, every layer in one stage, memory not considered. */
bool decision_legal(struct arena *a, const struct job *job, const struct topo *topo, const struct decision *d,
                    const char **why);
/* the same for what the lowering can emit today; the sentence names what it cannot */
bool decision_emittable(struct arena *a, const struct job *job, const struct decision *d, const char **why);
/* of that, a job that keeps activations in 8 bits */
bool decision_keeps_eight(struct arena *a, const struct job *job, const struct decision *d, const char **why);
/* Do its ranks end a step one after the other, and learn during the next one by what gradients were clipped
 * (post-validation; Qi et al. 2023, section 4)? */
bool decision_skews(const struct job *job, const struct decision *d);
/* bytes that the arena may have on its devices */
/* Bytes of a GPU beside its reserve that no plan takes: what `keep N free` says, else 2 % of its memory.  The catalogue's
 * reserve of 2 GiB is a context and NCCL's first communicators (0.5 GB and 0.7 GB); more communicators were seen to take up to
 * 6 GB (NCCL issue 864), and kernels that are loaded late, graphs and workspaces of libraries grow with the program.  CPU ranks
 * have none of that: none is kept. */
uint64_t decision_free_bytes(const struct job *job, const struct topo_gpu *g);
/* " (1.6GiB are kept free)", or nothing where that is not what bounds a plan */
const char *decision_free_text(struct arena *a, const struct job *job, const struct topo_gpu *g);
/* Bytes of a GPU that a plan's arena may have: its memory less the reserve and what stays free, or what the plan block allows. */
uint64_t decision_gpu_bytes(const struct job *job, const struct topo_gpu *g);
uint64_t decision_memory_bytes(const struct job *job, const struct topo *topo, const struct decision *d);
/* does it run forward and backward of two microbatches in pairs, one's transfers under the other's products? */
bool decision_pairs(enum schedule_kind k);
/* do context ranks exchange heads for rows around attention? */
static inline bool decision_exchanges_heads(const struct decision *d)
{
    return d->cp > 1 && d->context == CONTEXT_ALL_TO_ALL;
}
/* Parts that the rows of a microbatch are cut into where transfers of tensor parallelism hide behind the products that they
 * belong to (`overlap tp with compute`): 4, as Transformer Engine's; 2 where a rank's rows do not divide by 4; 1 where they
 * do not by 2, or where experts choose among them or what is kept becomes 8 bits wide, which want all rows of a rank at once. */
uint32_t decision_cuts(const struct job *job, const struct decision *d);
/* Where it does, may rows to experts travel on the queue of gradients?  It has little else to do but at both ends of the
 * step; under ZeRO 2 and 3 it has. */
bool decision_exchanges_apart(const struct job *job, const struct decision *d);

/* spared layers of its stages from recompute_layers: full(layers=N) recomputes the first N of each chunk */
void decision_spare(struct decision *d);

/* placement of the stages: V-shaped, or looped */
bool decision_folds(const struct decision *d);
/* stages per pipeline rank that a schedule is defined for: 0 = any number above 1 */
uint32_t schedule_chunks(enum schedule_kind k);

/* stages of even cost from `cost[layer]`, embedding and head counted as costs of their own (0 = by layer count); with
 * vpp > 1 then ranks of even cost, by d->schedule's placement */
void decision_cut(struct arena *a, struct decision *d, uint32_t nlayers, const double *cost, double embed, double head);
/* The same in two steps: layers by stage, which ranks may share unevenly; with them balanced between ranks. */
uint32_t *decision_count_layers(struct arena *a, uint32_t stages, uint32_t nlayers, const double *cost, double embed, double head);
void decision_cut_by(struct arena *a, struct decision *d, uint32_t nlayers, const double *cost, double embed, double head,
                     const uint32_t *layers);

/* Megatron's layout string: "Et*8|t*8|...|t*8L" */
char *decision_layout(struct arena *a, const struct decision *d);
/* the same string, shorter: "Et*3|(t*4|)*30t*3L" */
char *decision_layout_short(struct arena *a, const struct decision *d);
bool decision_parse_layout(struct arena *a, struct decision *d, uint32_t nlayers, const char *layout, const char **why);

extern const char *const recompute_names[];      /* by enum recompute: "none" "selective" "full" "auto" */
extern const char *const recompute_part_names[8]; /* by bit */
extern const char *const context_names[];        /* by enum context_kind */
extern const char *const axis_names[NAXES];      /* "tp" "cp" "dp" "pp" */

/* for people: "tp 8 sp, pp 16, dp 128, zero 1, microbatch 1 x 16, 1f1b, recompute none"; lines: from a column to the 110th */
char *decision_text(struct arena *a, const struct job *job, const struct decision *d);
char *decision_lines(struct arena *a, const struct job *job, const struct decision *d, size_t column);
/* of it "recompute selective [ffn] in 12 of 80 layers"; or without the layers */
char *decision_recompute_text(struct arena *a, const struct decision *d, bool layers);

struct strbuf; /* the "decision" object of plan.json, and back */
void decision_json(const struct job *job, const struct decision *d, struct strbuf *out);
bool decision_from_json(struct arena *a, const char *json, size_t size, const struct job *job, const struct topo *topo,
                        struct decision *d, const char **why);

#endif
