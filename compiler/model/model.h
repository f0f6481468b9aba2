#ifndef LLMC_MODEL_H
#define LLMC_MODEL_H

/* What the user asked for, checked: the model, the training job and the wishes for the plan.
 *
 * sema.c makes it from the syntax tree; all later passes (expansion, cost, lowering, verifier) read only this.  All
 * counts are in elements, layers, tokens or sequences; all strings and arrays live in the compilation's arena.  A
 * layer is stored once per distinct `layer { }` of the file; `layers` lists them in model order. */

#include "compiler/profile/profile.h"
#include "compiler/support/diag.h"

#include <stdbool.h>
#include <stdint.h>

enum norm_kind { NORM_RMS, NORM_LAYER };
enum norm_place { NORM_PRE, NORM_POST, NORM_BOTH };
struct norm {
    enum norm_kind kind;
    enum norm_place place;
    double eps;
    bool bias; /* layernorm only */
};

enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };
struct rope {
    bool on;
    double theta;
    uint32_t dims; /* rotated dimensions of a head, <= head */
    bool adjacent; /* pairs (2i, 2i+1) instead of (i, i + dims/2) */
    enum rope_scaling scaling;
    double factor, low, high, original;    /* linear: factor; llama3: all four; yarn: factor, original */
    double fast, slow, mscale, mscale_all; /* yarn */
};

enum attn_kind { ATTN_GQA, ATTN_MLA };
enum qk_norm { QK_NORM_NO, QK_NORM_HEAD, QK_NORM_FULL };
struct attn {
    enum attn_kind kind;
    uint32_t heads, kv, head; /* head = dimensions of one head; for mla nope + rope */
    struct rope rope;
    bool bias, qkv_bias; /* bias: on q, k, v and o; qkv_bias: on q, k, v only */
    enum qk_norm qk_norm;
    uint32_t window, chunk; /* tokens; 0 = none */
    double softcap;         /* 0 = none */
    double scale;           /* scores are divided by sqrt(scale); default: head */
    bool sinks, alibi;
    uint32_t q_rank, kv_rank, nope, rope_dims, v; /* mla; q_rank 0 = none */
    struct span span;
};

/* Number of distinct shares of kv key/value heads among the ranks of tp; with fewer heads than ranks, neighbours
 * hold the same one. */
static inline uint32_t model_key_parts(uint32_t kv, uint32_t tp)
{
    return kv < tp ? kv : tp;
}

enum act { ACT_GELU, ACT_RELU, ACT_RELU2, ACT_SWIGLU, ACT_GEGLU };
struct ffn {
    enum act act;
    uint64_t width;
    bool bias;
    bool approx_tanh;            /* gelu, geglu */
    double limit, alpha, offset; /* swiglu: its clamp, 0 = none; its logistic's factor; what is added to up */
    struct span span;
};

/* alpha as an attribute of instructions, where 0 stands for 1 */
static inline double model_alpha(const struct ffn *f)
{
    return f->alpha < 1 || f->alpha > 1 ? f->alpha : 0;
}

enum router_kind { ROUTER_SOFTMAX, ROUTER_SIGMOID };
struct moe {
    struct ffn expert;
    uint32_t experts, active, shared;
    enum router_kind router;
    uint32_t groups, pick;
    bool normalize, bias, linear_bias;
    double scale, rate;
    double capacity; /* 0 = dropless */
    double balance;
    struct span span;
};

struct layer {
    struct attn attn;
    bool is_moe;
    struct ffn ffn; /* !is_moe */
    struct moe moe; /* is_moe */
    bool parallel;
    uint32_t parallel_norms; /* 1 or 2 */
    struct span span;
};

struct model {
    const char *name;
    struct span span;
    uint64_t vocab, width;
    struct norm norm;
    double embed_scale; /* 1 = none */
    bool embed_norm;
    uint64_t positions; /* learned positions, 0 = none */
    bool tied, head_bias;
    double head_softcap, head_scale; /* softcap: 0 = none; scale: 1 = none */
    uint32_t nlayers;
    const struct layer **layers;
    uint32_t predict; /* prediction modules */
    const struct layer *predict_layer;
    double predict_weight;
    struct span embed_span, head_span, norm_span, positions_span, predict_span;
};

/* number of layers as model_layer() counts them: the model's, then once the layer that its prediction modules repeat */
static inline uint32_t model_all_layers(const struct model *m)
{
    return m->nlayers + (m->predict && m->predict_layer ? 1 : 0);
}
static inline const struct layer *model_layer(const struct model *m, uint32_t i)
{
    return i < m->nlayers ? m->layers[i] : m->predict_layer;
}

enum dtype_name { DT_FP32, DT_BF16, DT_FP16, DT_FP8 };
enum fp8_recipe { FP8_TENSOR, FP8_ROW, FP8_BLOCK, FP8_MX };
enum optimizer { OPT_ADAMW, OPT_SGD };
enum lr_kind { LR_CONSTANT, LR_LINEAR, LR_COSINE, LR_WSD };
struct train {
    uint64_t sequence; /* tokens */
    uint64_t batch;    /* sequences, global */
    enum dtype_name precision, master, grads, reduce, moments;
    double loss_scale; /* initial loss scale of fp16; 0 = none */
    uint64_t scale_window, scale_hysteresis;
    enum fp8_recipe recipe;
    /* inputs of matrix products and gated activations are kept for backward in 8 bits, whatever the software stack
     * does */
    bool fp8_kept;
    bool fp8_sent; /* rows travel to the experts in 8 bits and return in 16 */
    enum optimizer optimizer;
    double lr, beta1, beta2, eps, weight_decay, momentum;
    enum lr_kind lr_kind;
    uint64_t lr_warmup, lr_decay, lr_stable; /* steps; lr_decay 0 = decay until the end of `total` */
    double lr_min;
    double init_std;
    bool init_residual;
    double clip;  /* 0 = none */
    double total; /* tokens, 0 = not said */
    double imbalance;
    double expert_room; /* 0 = auto */
    uint64_t seed;
    struct span span, batch_span, sequence_span, precision_span, optimizer_span;
};

/* Format of the working copy of the weights and of computation; with fp8 products it is bf16, since no tensor is
 * stored in fp8 by default. */
static inline enum dtype_name train_working(const struct train *t)
{
    return t->precision == DT_FP8 ? DT_BF16 : t->precision;
}

/* One wish on a degree: value rel n, or value in list. */
enum relation { REL_ANY, REL_EQ, REL_LE, REL_GE, REL_IN };
struct wish {
    enum relation relation;
    uint64_t value;
    const uint64_t *list; /* REL_IN */
    uint32_t nlist;
    struct span span;
};
enum degree {
    DEG_TP,
    DEG_CP,
    DEG_PP,
    DEG_VPP,
    DEG_DP,
    DEG_EP,
    DEG_ETP,
    DEG_ZERO,
    DEG_SHARD,
    DEG_MICROBATCH,
    DEG_GPUS,
    NDEGREES
};

enum schedule_kind {
#define SCHEDULE(KIND, word, arguments, stages, traits) SCHED_##KIND,
#define ORDERED(KIND, word, arguments, stages, traits) SCHED_##KIND,
#include "compiler/model/schedule.def"
    SCHED_AUTO,
    SCHED_FILE,
    NSCHEDULES
};
struct target;
/* a setting of the target: the bit of its word, 0 where none is chosen */
struct setting_wish {
    uint32_t bit;
    struct span span;
};
struct schedule_wish {
    enum schedule_kind kind;
    uint32_t group;   /* interleaved(group=N), 0 = default */
    const char *file; /* SCHED_FILE */
    struct span span;
};

enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_AUTO };
enum recompute_part { /* bits of `parts` */
                      PART_NORM = 1,
                      PART_CORE_ATTN = 2,
                      PART_MLA_UP = 4,
                      PART_FFN = 8,
                      PART_FFN_ACT = 16,
                      PART_MOE = 32,
                      PART_MOE_ACT = 64,
                      PART_SHARED = 128
};
enum tri { TRI_AUTO, TRI_NO, TRI_YES };
enum context_kind { CONTEXT_AUTO, CONTEXT_RING, CONTEXT_ALL_GATHER, CONTEXT_ALL_TO_ALL };
enum overlap_part { OVERLAP_TP = 1, OVERLAP_DP = 2, OVERLAP_PP = 4, OVERLAP_CP = 8, OVERLAP_ALL_TO_ALL = 16 };
enum offload_part { OFFLOAD_OPTIMIZER = 1, OFFLOAD_ACTIVATIONS = 2 };
enum objective { MINIMIZE_STEP_TIME, MINIMIZE_GPU_TIME };
struct keep_wish {
    const char *axis;   /* "tp" "cp" "pp" "dp" "ep" "etp" "shard" */
    const char *within; /* "node", "scale_up" or a tier's name; NULL = within `nodes` nodes */
    uint64_t nodes;
    struct span span;
};
/* one chunk of a layout, in model order */
struct layout_chunk {
    bool embedding, loss;
    uint32_t layers, predictions;
};
struct wishes {
    struct wish degree[NDEGREES];
    enum tri sequence_parallel;
    struct span sequence_parallel_span;
    uint32_t nschedules; /* 0 = any */
    const struct schedule_wish *schedules;
    enum recompute recompute;
    uint32_t parts;            /* selective: bits of recompute_part */
    uint32_t recompute_layers; /* full(layers=N), 0 = all */
    struct span recompute_span;
    enum context_kind context;
    struct span context_span;
    bool post_validation;
    struct span post_validation_span;
    uint32_t offload;                /* bits of offload_part */
    uint32_t overlap, never_overlap; /* bits of overlap_part */
    struct span offload_span, overlap_span;
    const char *layout; /* Megatron's string or NULL */
    uint32_t nchunks;   /* of layout */
    const struct layout_chunk *chunks;
    struct span layout_span;
    uint32_t norder; /* 0 = default tp, cp, dp, pp */
    const char *order[8];
    struct span order_span;
    uint32_t nkeeps;
    const struct keep_wish *keeps;
    const char *use; /* node type or NULL */
    struct span use_span;
    uint64_t memory; /* bytes, 0 = not said */
    struct span memory_span;
    bool frees; /* keep N free; else what decision_free_bytes() says */
    uint64_t free_bytes;
    struct span free_span;
    /* not a wish of the file: set where nothing fits with the usual capacity for expert rows, to allow less */
    bool tight_experts;
    uint32_t comm_sms;
    enum objective objective;
    double step_time_s, finish_s; /* limits, 0 = none */
    struct span step_time_span, finish_span;
    const struct target *target; /* the stack that runs the plan; NULL, where no file says: one that has everything */
    const struct setting_wish *settings; /* by row of target.def; NULL: none */
    bool targeted;                       /* the file names it, or a profile */
    const char *profile_name;            /* "llmrun"; if not said, the target's */
    const struct profile *profile;       /* includes the file's `adjust` statements */
    /* profile of the stack whose memory the programs take, see job_emits(); NULL: that of `profile` */
    const struct profile *emitted;
    uint32_t nadjusts;
    const struct profile_adjust *adjusts;
    struct span span;
};

/* A word of the file whose value can be planned but not run yet, such as "attention 'mla'". */
struct plan_only {
    const char *what;
    struct span span;
};

struct job {
    const struct source *source;
    struct model model;
    struct train train;
    struct wishes wishes;
    uint32_t nplan_only;
    const struct plan_only *plan_only; /* by position */
    double price;                      /* dollars per GPU hour, by the command line; 0: not said.  No part of a plan. */
};

/* How many tokens attend to one another: the sequence, or a chunk of it where attention is limited to chunks. */
uint64_t attn_reach(const struct attn *a, uint64_t sequence);
/* Does each of the 2 cp runs that a sequence is cut into consist of whole chunks?  Then a rank attends to its own
 * tokens alone. */
bool attn_local(const struct attn *a, uint64_t sequence, uint32_t cp);

/* Parameters by `language.md`'s convention: embeddings counted, tied weights counted once, no padding, no prediction
 * modules (model_predict_parameters() gives those).  Active parameters leave out experts that a token does not
 * choose. */
uint64_t model_layer_parameters(const struct model *m, const struct layer *l, bool active);
uint64_t model_parameters(const struct model *m);
uint64_t model_active_parameters(const struct model *m);
uint64_t model_predict_parameters(const struct model *m);

/* Floating-point operations of one training step's forward and backward for `sequences` sequences, by the Megatron
 * convention: dense products times 3, both attention products in full (not halved for causality), windows counted
 * as min(window, sequence), active experts only, head included, no recompute. */
double model_flops(const struct model *m, uint64_t sequence, uint64_t sequences);

/* does any layer, a prediction module's included, have experts? */
bool model_has_experts(const struct model *m);

/* Finds the first thing in the job that cannot be lowered and run yet: its name in *what and its place; false if
 * there is none. */
bool model_unsupported(const struct job *job, const char **what, struct span *where);

/* Is the plan for another stack than llmrun, so that its programs are a model of what that does? */
bool job_is_modelled(const struct job *job);

const char *schedule_name(enum schedule_kind k); /* "1f1b" */
extern const char *const degree_names[NDEGREES]; /* "tp" ... */

/* Expected number of distinct sets that a token's k experts lie in, when the experts are divided into n equal sets.
 * The router leaves a token only the experts of the `pick` best of `groups` groups (0 = all). */
double model_sets_met(double n, uint32_t k, double groups, double pick);
/* Expected rows that one of `nodes` nodes with equally many experts receives of `tokens` tokens, each sent at most
 * once. */
double model_node_rows(const struct moe *m, uint32_t nodes, double tokens);

#endif
