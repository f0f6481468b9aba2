#ifndef LLMC_LOWER_BUILD_H
#define LLMC_LOWER_BUILD_H

/* Inside of the lowering: the state while one role's program is being written, and the words its rules speak.
 *
 * A role runs one or more chunks: the stages that the schedule puts on its rank.  A chunk's contents are pieces: the embedding, its layers, the head.  Every piece is an expansion (operators over
 * values) with a place for each value and each weight.  Values that the backward pass needs live in the ring class `act`
 * (one slot per microbatch in flight); all others are temporaries, one buffer per name, used again by every layer. */

#include "compiler/lower/emit.h"
#include "compiler/lower/lower.h"
#include "compiler/model/expert_rows.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/vec.h"

/* what an operator keeps beside its values: statistics, choices of experts, rows on their way */
#define LOWER_AUX 6
struct aux_shape {
    enum dtype dtype;
    uint32_t rows, cols;
};

struct weight_place {
    uint32_t bucket;
    uint64_t at; /* element */
    uint32_t rows, cols; /* local */
    bool *written;       /* this step's gradient has its first contribution */
};

/* where a bucket lies in the buffers in which its piece is worked on */
struct shard_part {
    uint32_t bucket;
    uint64_t at, made_at; /* elements: of what is gathered; of what is scattered */
    bool backward; /* read by B beside what the vectors' buckets hold */
};

struct piece {
    const struct expansion *e;
    uint32_t layer;              /* NONE for embedding and head */
    uint32_t chunk;
    uint32_t ahead;              /* number of the prediction module, from 1; else 0 */
    uint32_t tokens, targets;    /* of a module: ring buffers of its ids */
    bool recompute;              /* some operators run again in B */
    uint32_t again;              /* which, bits of recompute_part, or BACKWARD_RUN_ALL */
    uint32_t *line;              /* source line per operator */
    bool *saved;                 /* per value: needed by B */
    bool *needed, *unread;       /* per operator: runs again in B, nothing reads its output then */
    bool *weighed, *weighs;      /* per value: output, input of an operator whose weight gradient may come in a W */
    uint32_t *buffer;            /* per value: its ring buffer if saved, else NONE */
    uint8_t *eight;              /* per value: parts in which the backward pass has it in 8 bits; 0: it has the numbers */
    uint32_t *eight_buffer;      /* and the ring buffer of these if saved */
    uint32_t (*aux)[LOWER_AUX];  /* per operator: ring buffers of its statistics, else NONE */
    struct weight_place *weights; /* per weight */
    uint32_t nparts;             /* its buckets that are gathered or scattered: */
    struct shard_part *parts;
    uint64_t gathered, made;     /* elements of what is gathered together, of what is scattered */
    bool gathers, scatters;      /* any of them */
    struct mat *gradient;        /* per value, while its piece's B is being written */
    bool *has_gradient;
    uint32_t *late_value, *late_gradient; /* per value: ring buffer of what W needs beside what F kept, or NONE */
    struct mat *late;            /* per value: its gradient as I left it for W; the instance is W's microbatch */
};

struct chunk {
    const struct stage *stage;
    uint32_t stage_index;     /* of the model: the tag; */
    uint32_t index, copy;     /* of the schedule's stages; DualPipe's copy of the model */
    uint32_t first, npieces;
    uint32_t before, behind;  /* ranks of the stages before and behind; the own one: no transfer; NONE: there is none */
    uint32_t left;            /* backward actions to come */
    uint32_t ring_act, ring_in, ring_out, ring_grad, ring_token;
    uint32_t ring_late;       /* from I to W; NONE where the schedule has none */
    uint32_t input, output, gradient, tokens_buffer, targets_buffer; /* ring buffers; NONE */
};

struct bucket_info {
    uint32_t param, gradient, master, moment1, moment2; /* buffers; NONE */
    uint32_t reduced;  /* the gradient in the format of sums between ranks, and they; NONE: it is summed where it is */
    const struct chunk *chunk;
    uint32_t piece;    /* whose last B completes it: index, or NONE = with the chunk's last B */
    uint32_t shared;   /* another piece that uses its weights, or NONE */
    uint32_t pending;  /* of those two, how many have not had their last B */
    uint32_t shard, replica; /* digits that it is sharded over; the others of its gradient's sum: its copies, of key heads
                                also on the ranks of tp that share them */
    uint64_t own;      /* elements of a shard */
    bool gathers;      /* param is the own shard, gathered for every use; */
    bool scatters;     /* gradient is the own shard's sum of every microbatch's; begun: it has one */
    bool begun;
    bool split;        /* over tp, perhaps as key heads; else whole on every tp rank */
    bool keys;         /* of key heads that several tp ranks hold */
    bool partial;      /* whole, and every tp rank's gradient covers its own heads alone */
    bool tie, counts;  /* a copy lies on the mirror rank: tied table, DualPipe; both sum behind the last backward; this role's
                          copy counts in the norm */
    bool experts;      /* weights of experts */
    bool several;      /* a table that several pieces use, of prediction modules too: its gradient is kept whole */
    bool moved;        /* no gradient, no state: changed by an instruction of its own, whole and fp32 on every rank */
    uint64_t used;     /* elements before padding */
};

struct program_bodies;
struct repeat;

/* state of gathering and scattering (shard.c) */
struct gather_ring {
    uint32_t depth, *gathered; /* buffers: use u is gathered into u mod depth */
    VEC(uint32_t) uses;        /* pieces, in program order */
    uint32_t at, issued;       /* use that is open, NONE before the first; how many are gathered or on their way */
};
#define LOWER_BUCKETS 5 /* of a piece's matrices, at most: split, a copied table, shared key heads, whole, experts */
#define LOWER_VECTOR_BUCKETS 6 /* of a chunk's */
struct shards {
    struct gather_ring rings[2], *ring; /* [1]: of the second actions of pairs; ring: of the current action */
    uint32_t made[2], nmade, making; /* buffers of gradients; making: of the piece that is being written */
    uint32_t sent[2];                /* the same in the format of sums between ranks, where that is another; else NONE */
    /* parts of a microbatch's gradients that are not added yet: of the piece whose number in `nmade` is pending_of */
    uint32_t npending, pending_of, sent_of; /* sent_of: the last one whose buckets are on their way */
    struct {
        uint32_t bucket;
        struct mat part;
        bool first, last; /* of the step */
    } pending[LOWER_BUCKETS];
};

enum { HALF_INPUT = 1, HALF_WEIGHT = 2 };

enum { TEMP_HINTS = 256 }; /* a power of two */
struct lower {
    struct arena *arena;
    const struct cost *cost;
    const struct job *job;
    const struct decision *d;
    struct mesh mesh; /* masks of dimensions for slots: mesh.dim[] */
    struct program *p;
    bool evaluation;
    uint32_t stage_index, role;
    enum dtype ctype, mtype; /* computed in; of master weights */
    enum dtype gtype, rtype; /* of weights' gradients and their sums over microbatches; of their sums between ranks */
    uint32_t tokens, local; /* rows of a microbatch: whole; of this rank's TOKENS values */
    uint32_t cuts, runs;    /* decision_cuts(); as how many runs of tokens those rows lie: see collect.c */
    uint32_t from, to;      /* runs that norms and sums are written for */
    bool splits;            /* the role's schedule has I and W */
    bool skews;             /* decision_skews(), of a training program */
    bool seam_next;         /* the first seam is due in front of the action's SEND */
    uint32_t early;         /* actions in front of it */
    bool sp;                /* sequence parallelism with tp > 1 */
    uint32_t copies; /* of the model, by the schedule */
    uint32_t nchunks, npieces;
    struct chunk *chunks, *chunk; /* chunk: of the current action */
    struct piece *pieces;
    uint32_t nbuckets;
    struct bucket_info *buckets;
    struct shards shards;
    uint32_t step_block, metrics, scale;
    uint32_t loss_scale;    /* of fp16; else NONE */
    bool recomputing;
    const char *temps; /* in front of temporaries' names: not the same ones for both actions of a pair */
    uint32_t temp[TEMP_HINTS]; /* by a hash of its name: the buffer that the latest one is */
    uint32_t halves; /* of the backward pass that is being written: B both, I the input's, W the weight's; F none */
    bool undivided;  /* the operator that is being written does the weight's half with the input's */
    VEC(uint32_t) channels;  /* per instruction */
    struct program_bodies *bodies; /* of the instructions before `shared` */
    uint32_t shared;
    VEC(struct repeat) repeats; /* actions that have been written already */
    /* tags of what is being written */
    char action;
    uint32_t layer, microbatch, line;
};

/* emit.c: the instruction that was appended last */
struct insn *lower_last(struct lower *l);

/* build.c: matrices, slots */
/* attribute fp8 of products that the job wants in 8 bits: its recipe, 0 = none */
int64_t lower_fp8(const struct lower *l);
uint32_t lower_slot(struct lower *l, enum slot_kind kind, uint32_t arg);
uint32_t lower_step_buffer(struct lower *l, const char *name, enum dtype dtype, uint64_t bytes, uint32_t ring);
struct mat lower_temp(struct lower *l, const char *name, enum dtype dtype, uint32_t rows, uint32_t cols);
struct mat lower_ring_mat(struct lower *l, uint32_t buffer, enum dtype dtype, uint32_t rows, uint32_t cols);
struct mat mat_columns(struct mat m, uint32_t first, uint32_t cols);
struct mat mat_cut(struct mat m, uint32_t cut, uint32_t cuts); /* of equally many rows */
/* key heads of a tp rank */
uint32_t lower_key_heads(const struct lower *l, const struct attn *t);
/* attributes alibi and first_head: the linear biases of the heads that this rank has */
int64_t lower_alibi(const struct attn *t);
struct bind lower_first_head(struct lower *l, const struct attn *t);

/* as how many runs of tokens a value's rows lie; the first token of a run of the rank's own */
uint32_t lower_runs(const struct lower *l, uint32_t piece, uint32_t value);
struct bind lower_run_start(struct lower *l, uint32_t run);
/* the microbatch's first sample on this replica; the step block */
struct bind lower_sample(struct lower *l);
struct mat lower_step_block(const struct lower *l);
/* a value of the current microbatch; statistics k of an operator */
struct mat lower_value(struct lower *l, uint32_t piece, uint32_t value);
struct mat lower_aux(struct lower *l, uint32_t piece, uint32_t opr, uint32_t k);
/* fused weight (or its gradient) of an operator's matrices; k-th vector; all its vectors stacked */
struct mat lower_weight(struct lower *l, uint32_t piece, const struct opr *o, bool gradient);
struct mat lower_vector(struct lower *l, uint32_t piece, const struct opr *o, uint32_t k, bool gradient);
struct mat lower_vectors(struct lower *l, uint32_t piece, const struct opr *o, bool gradient);
/* the k-th weight alone: of all experts that are here, one below the other */
struct mat lower_one_weight(struct lower *l, uint32_t piece, const struct opr *o, uint32_t k, bool gradient);
struct aux_shape lower_value_shape(const struct lower *l, const struct opr_value *v);
struct aux_shape lower_aux_shape(const struct lower *l, const struct opr *o, uint32_t k);
const char *lower_aux_name(const struct lower *l, const struct opr *o, uint32_t k);
/* WRITE for a gradient's first contribution in this step, ADD after */
enum mark lower_contribution(struct lower *l, uint32_t piece, uint32_t weight);
/* where the gradient of a value goes: the place set beforehand or a temporary to write, or the existing one to add to */
struct mat lower_gradient(struct lower *l, uint32_t piece, uint32_t value, enum mark *mark);

/* pieces.c: chunks and pieces of the role; step block and metrics; the buffers of a step */
void lower_chunks(struct lower *l, const struct schedule *s);
void lower_blocks(struct lower *l);
/* behind all instructions: room for kernels that use more than operands; train: NULL, or the training program */
void lower_workspace(struct lower *l, const struct program *train);
void lower_step_buffers(struct lower *l);
/* "embed", "head", or the layer's number behind a prefix */
const char *lower_piece_name(const struct lower *l, uint32_t piece, const char *layer);

/* In I: the gradient of an operator's output, from now on kept for W.  In W: that gradient.  In B: as it is. */
struct mat lower_output_gradient(struct lower *l, uint32_t piece, uint32_t value);

/* attention.c: attention's operands, and their gradients */
struct operands {
    struct mat q, k, v;
};
struct operands lower_attention_values(struct lower *l, uint32_t piece, const struct opr *o);
struct operands lower_attention_gradients(struct lower *l, uint32_t piece, const struct opr *o);

/* context.c: context parallelism.  Attention to keys of all ranks of a sequence; an instruction's starts for the own rows;
 * tokens of a sequence here.  With exchanged heads attention keeps its operands in its own layout, all rows of some heads. */
void lower_context(struct lower *l, uint32_t piece, uint32_t opr);
void lower_context_back(struct lower *l, uint32_t piece, uint32_t opr);
struct bind lower_first(struct lower *l);
struct bind lower_shift(struct lower *l);
uint32_t lower_sequence(const struct lower *l);
bool lower_exchanges_heads(const struct lower *l);
uint32_t lower_exchanged_cols(const struct lower *l, const struct attn *t);
struct mat lower_exchanged(struct lower *l, uint32_t piece, uint32_t opr);

/* params.c: buckets, tensors, persistent buffers */
void lower_params(struct lower *l);

/* collect.c: layout conversions and boundaries */
struct mat lower_gather(struct lower *l, const char *name, struct mat m);      /* TOKENS -> whole rows */
void lower_reduce_into(struct lower *l, struct mat partial, struct mat out);   /* partial sums over tp -> TOKENS */
void lower_reduce_cut(struct lower *l, struct mat partial, struct mat out, uint32_t cut); /* one of l->cuts of these rows */
struct mat lower_partial(struct lower *l, struct mat out);                     /* where to put those partial sums */
/* queue of sums and gathers among ranks of one role; tied copies meet on QUEUE_DP */
enum queue lower_dp_queue(const struct lower *l);
void lower_collective(struct lower *l, enum op op, enum queue q, uint32_t mask, struct mat x, struct mat y);
void lower_maximum(struct lower *l, enum queue q, uint32_t mask, struct mat x); /* of all ranks, in place */
/* channel: a number that SENDs and RECVs which meet have in common; those of a channel meet in program order */
void lower_send(struct lower *l, struct mat m, uint32_t peer, uint32_t channel);
void lower_receive(struct lower *l, struct mat m, uint32_t peer, uint32_t channel);

/* rules of operators (compiler/model/opr.def): forward; backward, the input's gradient and then the weights' */
#define OPR(kind, name, reads, beside, word, meaning) \
    void lower_##name(struct lower *l, uint32_t piece, uint32_t opr); \
    void lower_##name##_back(struct lower *l, uint32_t piece, uint32_t opr);
#include "compiler/model/opr.def"
#undef OPR
#define EXPERTS_ACT 2 /* the statistics of OPR_EXPERTS that are the activation's output */
enum norm_kind lower_norm_kind(const struct lower *l, const struct opr *o);
uint32_t lower_normed_heads(const struct lower *l, const struct opr *o);

/* act.c: the activation of a feed-forward layer, gated forms on [gate | up], and its gradient by x */
void lower_activation(struct lower *l, const struct ffn *f, struct mat x, struct mat y);
void lower_activation_back(struct lower *l, const struct ffn *f, struct mat x, struct mat dx, struct mat dy);

/* moe.c */
/* what a router keeps beside its operator */
enum { ROUTER_SCORE, ROUTER_INDEX, ROUTER_WEIGHT, ROUTER_PLACE, ROUTER_COUNTS, ROUTER_LOAD };
enum { ROUTER_CHOSEN = ROUTER_COUNTS }; /* over nodes: what each of the sent rows has chosen there */
struct expert_rows lower_expert_rows(const struct lower *l, const struct moe *m);
bool lower_bounds_experts(const struct lower *l); /* in any layer of the model */
/* choices of a correction bias' experts in this step: their place, their sum over ranks, the step of the bias */
struct mat lower_load(struct lower *l, uint32_t piece, const struct opr *router, enum mark *mark);
void lower_load_reduce(struct lower *l);
void lower_bias_move(struct lower *l);
uint32_t lower_router_aux(const struct moe *m);
uint32_t lower_experts_aux(const struct lower *l);
struct aux_shape lower_moe_shape(const struct lower *l, const struct opr *o, uint32_t k);

/* shard.c: buckets as flat lists, what of them a rank owns; gradient reduction; ZeRO 2 and 3 */
struct mat lower_flat(uint32_t buffer, enum dtype dtype, uint64_t elements);
struct mat lower_own_param(struct lower *l, uint32_t bucket);
struct mat lower_own_gradient(struct lower *l, uint32_t bucket);
bool lower_reduces(const struct lower *l, uint32_t bucket);
const struct shard_part *lower_shard_part(const struct piece *pc, uint32_t bucket); /* NULL: it is not worked on */
void lower_shards(struct lower *l, const struct schedule *s); /* their buffers */
void lower_gather_first(struct lower *l);
/* around what reads a piece's parameters, writes its gradients; the second one's end: at the latest in the optimizer */
void lower_open_params(struct lower *l, uint32_t piece);
void lower_open_gradients(struct lower *l, uint32_t piece);
void lower_close_gradients(struct lower *l);
/* a microbatch's gradient; the sum of all where it is kept whole; what is left to sum then */
void lower_bucket_scatter(struct lower *l, uint32_t piece, uint32_t bucket, bool last);
void lower_bucket_reduce(struct lower *l, uint32_t bucket);

/* eight.c: rows in 8 bits, in so many parts side by side.  Their words; a value that the backward pass has so, made behind its
 * operator and read there; is it so in a piece? */
struct mat lower_words(struct mat numbers, uint32_t parts);
void lower_quantize(struct lower *l, struct mat x, struct mat words, uint32_t parts);
void lower_dequantize(struct lower *l, struct mat words, struct mat y, uint32_t parts);
bool lower_keeps_eight(const struct lower *l, const struct piece *pc);
void lower_keep(struct lower *l, uint32_t piece, uint32_t opr);
struct mat lower_kept(struct lower *l, uint32_t piece, uint32_t value);

/* park.c: offload of activations.  Is it a piece whose kept values lie in host memory; where a kept value is on the device
 * while its piece is worked on; copies out behind F, and in: of this piece and the one that is worked on next */
bool lower_parks(const struct lower *l, const struct piece *pc);
struct mat lower_parked(struct lower *l, uint32_t piece, const char *name, struct mat m);
void lower_park(struct lower *l, uint32_t piece);
void lower_fetch(struct lower *l, uint32_t piece);

/* optimizer.c: the step's head, the optimizer */
void lower_head_of_step(struct lower *l);
void lower_first_seam(struct lower *l);
void lower_optimizer(struct lower *l);
void lower_copy(struct lower *l, struct mat to, struct mat from); /* on the copy queue */
void lower_metrics_reduce(struct lower *l);
/* words of the metrics block */
struct mat lower_metric(const struct lower *l, uint32_t first, uint32_t n);
/* what gradients begin with, if it is not 1 */
struct mat lower_loss_factor(const struct lower *l);

/* repeat.c: an action (or a pair) as copies of what an earlier one wrote; false: it must be written, then remembered */
bool lower_repeat(struct lower *l, const struct schedule *s, const struct action *a);
void lower_remember(struct lower *l, const struct schedule *s, const struct action *a, uint32_t first);

/* order.c: keying simulation, ring depths, queue order, waits, seq */
struct lowered {
    struct program *p;
    const uint32_t *channels;  /* per instruction: of a SEND or RECV, else NONE; small numbers */
    uint32_t cuts;             /* parts of every buffer that are waited for one by one */
};
void order_programs(const struct cost *c, const struct lowered *roles, uint32_t nroles, uint32_t microbatches);

#endif
