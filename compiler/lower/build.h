#ifndef LLMC_LOWER_BUILD_H
#define LLMC_LOWER_BUILD_H

/* Private to the lowering: the state while one role's program is being written, and the helpers that the rules of
 * operators use.
 *
 * A role runs one or more chunks: the stages that the schedule assigns to its rank.  A chunk consists of pieces: the
 * embedding, layers, the head.  Every piece is an expansion (operators over values) with a buffer for each value and
 * a place in a bucket for each weight.  Values that the backward pass needs are in the ring `act` (one slot per
 * microbatch in flight); all others are temporaries, one buffer per name, reused by every layer. */

#include "compiler/lower/emit.h"
#include "compiler/lower/lower.h"
#include "compiler/model/expert_rows.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/vec.h"

/* most auxiliary results of an operator: statistics, choices of experts, rows on their way */
#define LOWER_AUX 6
struct aux_shape {
    enum dtype dtype;
    uint32_t rows, cols;
};

struct weight_place {
    uint32_t bucket;
    uint64_t at;         /* first element within the bucket */
    uint32_t rows, cols; /* shape on this rank */
    bool *written;       /* set once this step's gradient has received its first contribution */
};

/* where a bucket's elements are in the common buffers of gathered parameters and of unreduced gradients of its piece */
struct shard_part {
    uint32_t bucket;
    /* offsets in elements: among the gathered parameters; among the gradients to be reduce-scattered */
    uint64_t at, made_at;
    bool backward; /* the backward pass reads its matrices */
};

struct piece {
    const struct expansion *e;
    uint32_t layer; /* NONE for embedding and head */
    uint32_t chunk;
    uint32_t ahead;           /* number of the prediction module, from 1; else 0 */
    uint32_t tokens, targets; /* of a prediction module: ring buffers of its token and target ids */
    bool recompute;           /* some operators are recomputed in B */
    uint32_t again;           /* which: bits of recompute_part, or BACKWARD_RUN_ALL */
    uint32_t *line;           /* source line per operator */
    bool *saved;              /* per value: kept from F for B */
    bool *needed, *unread;    /* per operator: recomputed in B; recomputed although nothing reads its output */
    /* per value: output (input) of an operator whose weight gradient may be computed in a W */
    bool *weighed, *weighs;
    /* per value: its ring buffer if kept for the backward pass in full precision, else NONE */
    uint32_t *buffer;
    /* per value: number of column blocks in which it is kept in 8 bits; 0: it is kept in full precision */
    uint8_t *eight;
    uint32_t *eight_buffer;       /* per value: ring buffer of those 8-bit blocks if kept, else NONE */
    uint32_t (*aux)[LOWER_AUX];   /* per operator: ring buffers of its auxiliary results, else NONE */
    struct weight_place *weights; /* per weight */
    uint32_t nparts;              /* its buckets that are all-gathered or reduce-scattered: number and places */
    struct shard_part *parts;
    uint64_t gathered, made; /* total elements of those gathered, of those scattered */
    bool gathers, scatters;  /* is any of its buckets gathered, scattered? */
    struct mat *gradient;    /* per value, while the piece's B is being written */
    bool *has_gradient;
    /* per value: ring buffer of what W needs in addition to what F kept, or NONE */
    uint32_t *late_value, *late_gradient;
    struct mat *late; /* per value: its gradient as I left it for W; the instance is W's microbatch */
};

struct chunk {
    const struct stage *stage;
    uint32_t stage_index; /* number in the model, the stage in instructions' tags; */
    uint32_t index, copy; /* number among the schedule's stages; DualPipe's copy of the model */
    uint32_t first, npieces;
    /* ranks of the previous and the next stage; this role's own number: no transfer is needed; NONE: there is none */
    uint32_t before, behind;
    uint32_t left; /* backward actions that are still to be written */
    uint32_t ring_act, ring_in, ring_out, ring_grad, ring_token;
    /* ring of what is kept from I to W; NONE where the schedule does not split the backward */
    uint32_t ring_late;
    uint32_t input, output, gradient, tokens_buffer, targets_buffer; /* ring buffers; NONE */
};

struct bucket_info {
    uint32_t param, gradient, master, moment1, moment2; /* buffers; NONE */
    /* the gradient and its sums in the format of reductions between ranks; NONE: reduced in the gradient's own
     * buffer */
    uint32_t reduced;
    const struct chunk *chunk;
    uint32_t piece;   /* index of the piece whose last B completes its gradient; NONE: the chunk's last B does */
    uint32_t shared;  /* index of another piece that uses its weights, or NONE */
    uint32_t pending; /* how many of those two pieces have not had their last B yet */
    /* masks of digits: those that it is sharded over; the other ones that its gradient is summed over, where ranks
     * hold copies (of key/value heads also on the tp ranks that share them) */
    uint32_t shard, replica;
    uint64_t own; /* elements of one shard */
    bool gathers; /* param holds this rank's shard only, gathered for every use (ZeRO 3); */
    /* gradient holds the sum over microbatches of this rank's shard (ZeRO 2); begun: the first is in it */
    bool scatters;
    bool begun;
    bool split;   /* split over tp, perhaps by key/value heads; else whole on every tp rank */
    bool keys;    /* belongs to key/value heads that several tp ranks hold */
    bool partial; /* whole, but every tp rank's gradient covers its own heads alone */
    /* tie: the mirror rank holds a copy (tied table, DualPipe), and both are summed after the last backward; counts:
     * this role's copy counts in the gradient's norm */
    bool tie, counts;
    bool experts; /* weights of experts */
    bool several; /* a table that several pieces use, prediction modules among them: its gradient is kept whole */
    /* no gradient and no optimizer state: changed by a dedicated instruction, whole and fp32 on every rank */
    bool moved;
    uint64_t used; /* elements before padding */
};

struct program_bodies;
struct repeat;

/* state of gathering and scattering (shard.c) */
struct gather_ring {
    uint32_t depth, *gathered; /* buffers: the u-th use is gathered into the one with number u mod depth */
    VEC(uint32_t) uses;        /* pieces, in program order */
    /* at: the current use, NONE before the first; issued: how many have been gathered or are on their way */
    uint32_t at, issued;
};
/* most buckets of a piece's matrices: split, a copied table, shared key/value heads, whole, experts */
#define LOWER_BUCKETS 5
#define LOWER_VECTOR_BUCKETS 6 /* most buckets of a chunk's vectors */
struct shards {
    struct gather_ring rings[2], *ring; /* [1]: for the second action of a pair; ring: the one of the current action */
    /* buffers in which gradients are computed, used in turns; making: that of the current piece */
    uint32_t made[2], nmade, making;
    /* the same in the format of reductions between ranks, where that differs; else NONE */
    uint32_t sent[2];
    /* shards of a microbatch's gradients that have not been added to their sums yet: of the piece that was the
     * pending_of-th; sent_of: the piece whose buckets were converted and sent last */
    uint32_t npending, pending_of, sent_of;
    struct {
        uint32_t bucket;
        struct mat part;
        bool first, last; /* first, last of the step */
    } pending[LOWER_BUCKETS];
};

enum { HALF_INPUT = 1, HALF_WEIGHT = 2 };

enum { TEMP_HINTS = 256 }; /* a power of two */
struct lower {
    struct arena *arena;
    const struct cost *cost;
    const struct job *job;
    const struct decision *d;
    struct mesh mesh; /* mesh.dim[]: masks of digits for slots */
    struct program *p;
    bool evaluation;
    uint32_t stage_index, role;
    enum dtype ctype, mtype; /* of computation; of master weights */
    /* of weight gradients and their sums over microbatches; of their reductions between ranks */
    enum dtype gtype, rtype;
    uint32_t tokens, local; /* rows of a microbatch: all; those of a TOKENS value on this rank */
    /* cuts: decision_cuts(); runs: how many runs of consecutive tokens the local rows consist of, see collect.c */
    uint32_t cuts, runs;
    uint32_t from, to; /* range of runs for which norms and additions are being written */
    bool splits;       /* the role's schedule has I and W */
    bool skews;        /* decision_skews(), for a training program */
    bool seam_next;    /* the first seam comes before this action's SEND */
    uint32_t early;    /* number of actions before the first seam */
    bool sp;           /* sequence parallelism with tp > 1 */
    uint32_t copies;   /* copies of the model in the schedule */
    uint32_t nchunks, npieces;
    struct chunk *chunks, *chunk; /* chunk: that of the current action */
    struct piece *pieces;
    uint32_t nbuckets;
    struct bucket_info *buckets;
    struct shards shards;
    uint32_t step_block, metrics, scale;
    uint32_t loss_scale; /* buffer of fp16's loss scale; else NONE */
    bool recomputing;
    const char *temps;         /* prefix of temporaries' names, so that the two actions of a pair do not share them */
    uint32_t temp[TEMP_HINTS]; /* by a hash of the name: the latest temporary buffer */
    /* halves of the backward pass being written: both in B, the input's in I, the weight's in W; none in F */
    uint32_t halves;
    bool undivided; /* the operator being written computes its weight gradient together with its input gradient */
    VEC(uint32_t) channels;        /* channel per instruction, see lower_send() */
    struct program_bodies *bodies; /* lists of operands of the instructions before number `shared` */
    uint32_t shared;
    VEC(struct repeat) repeats; /* actions that have been written and can be copied */
    /* tags of the instructions being written */
    char action;
    uint32_t layer, microbatch, line;
};

/* emit.c: the instruction that was appended last */
struct insn *lower_last(struct lower *l);

/* build.c: matrices, slots */
/* the attribute fp8 of matrix products: the job's recipe, 0 = no 8 bits */
int64_t lower_fp8(const struct lower *l);
uint32_t lower_slot(struct lower *l, enum slot_kind kind, uint32_t arg);
uint32_t lower_step_buffer(struct lower *l, const char *name, enum dtype dtype, uint64_t bytes, uint32_t ring);
struct mat lower_temp(struct lower *l, const char *name, enum dtype dtype, uint32_t rows, uint32_t cols);
struct mat lower_ring_mat(struct lower *l, uint32_t buffer, enum dtype dtype, uint32_t rows, uint32_t cols);
struct mat mat_columns(struct mat m, uint32_t first, uint32_t cols);
struct mat mat_cut(struct mat m, uint32_t cut, uint32_t cuts); /* the cut-th of `cuts` blocks of equally many rows */
/* number of key/value heads on a tp rank */
uint32_t lower_key_heads(const struct lower *l, const struct attn *t);
/* attributes alibi and first_head of attention: linear biases for the heads of this rank */
int64_t lower_alibi(const struct attn *t);
struct bind lower_first_head(struct lower *l, const struct attn *t);

/* How many runs of consecutive tokens a value's rows consist of; the first token of one of this rank's runs. */
uint32_t lower_runs(const struct lower *l, uint32_t piece, uint32_t value);
struct bind lower_run_start(struct lower *l, uint32_t run);
/* number of the microbatch's first sample on this replica; the step block */
struct bind lower_sample(struct lower *l);
struct mat lower_step_block(const struct lower *l);
/* a value of the current microbatch; the k-th auxiliary result of an operator */
struct mat lower_value(struct lower *l, uint32_t piece, uint32_t value);
struct mat lower_aux(struct lower *l, uint32_t piece, uint32_t opr, uint32_t k);
/* The fused matrix of an operator's weights, or of their gradients; its k-th vector; all its vectors stacked. */
struct mat lower_weight(struct lower *l, uint32_t piece, const struct opr *o, bool gradient);
struct mat lower_vector(struct lower *l, uint32_t piece, const struct opr *o, uint32_t k, bool gradient);
struct mat lower_vectors(struct lower *l, uint32_t piece, const struct opr *o, bool gradient);
/* the k-th weight alone; of experts: of all on this rank, stacked by rows */
struct mat lower_one_weight(struct lower *l, uint32_t piece, const struct opr *o, uint32_t k, bool gradient);
struct aux_shape lower_value_shape(const struct lower *l, const struct opr_value *v);
struct aux_shape lower_aux_shape(const struct lower *l, const struct opr *o, uint32_t k);
const char *lower_aux_name(const struct lower *l, const struct opr *o, uint32_t k);
/* WRITE for the first contribution to a weight's gradient in this step, ADD afterwards */
enum mark lower_contribution(struct lower *l, uint32_t piece, uint32_t weight);
/* Where the gradient of a value goes: to be written, in the matrix set beforehand or a temporary; or, by *mark, to
 * be added to what is there already. */
struct mat lower_gradient(struct lower *l, uint32_t piece, uint32_t value, enum mark *mark);

/* pieces.c: the role's chunks and pieces; step block and metrics; step buffers */
void lower_chunks(struct lower *l, const struct schedule *s);
void lower_blocks(struct lower *l);
/* After all instructions: scratch memory for kernels that need more than their operands.  train: NULL, or the
 * training program. */
void lower_workspace(struct lower *l, const struct program *train);
void lower_step_buffers(struct lower *l);
/* "embed", "head", or the layer's number after a prefix */
const char *lower_piece_name(const struct lower *l, uint32_t piece, const char *layer);

/* The gradient of an operator's output.  In I it is kept for W from now on; in W it is the one that I kept. */
struct mat lower_output_gradient(struct lower *l, uint32_t piece, uint32_t value);

/* attention.c: operands of attention, and their gradients */
struct operands {
    struct mat q, k, v;
};
struct operands lower_attention_values(struct lower *l, uint32_t piece, const struct opr *o);
struct operands lower_attention_gradients(struct lower *l, uint32_t piece, const struct opr *o);

/* context.c: context parallelism, attention to the keys of all ranks of a sequence.  lower_first(), lower_shift():
 * attributes that say which tokens of the sequence this rank's rows are; lower_sequence(): tokens of a sequence on
 * this rank.  With exchanged heads attention keeps its operands in its own layout: all rows of some of the heads. */
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
struct mat lower_gather(struct lower *l, const char *name, struct mat m);    /* TOKENS -> all rows */
void lower_reduce_into(struct lower *l, struct mat partial, struct mat out); /* partial sums over tp -> TOKENS */
/* one of l->cuts blocks of those rows */
void lower_reduce_cut(struct lower *l, struct mat partial, struct mat out, uint32_t cut);
struct mat lower_partial(struct lower *l, struct mat out); /* where to write those partial sums */
/* queue of data-parallel collectives among ranks of one role; tied copies use QUEUE_DP */
enum queue lower_dp_queue(const struct lower *l);
void lower_collective(struct lower *l, enum op op, enum queue q, uint32_t mask, struct mat x, struct mat y);
/* maximum over the group's ranks, in place */
void lower_maximum(struct lower *l, enum queue q, uint32_t mask, struct mat x);
/* channel: a number common to the SENDs and RECVs that match each other; those of a channel match in program order */
void lower_send(struct lower *l, struct mat m, uint32_t peer, uint32_t channel);
void lower_receive(struct lower *l, struct mat m, uint32_t peer, uint32_t channel);

/* rules of operators (compiler/model/opr.def): forward; backward: first the input's gradient, then the weights' */
#define OPR(kind, name, reads, beside, word, meaning)                                                                  \
    void lower_##name(struct lower *l, uint32_t piece, uint32_t opr);                                                  \
    void lower_##name##_back(struct lower *l, uint32_t piece, uint32_t opr);
#include "compiler/model/opr.def"
#undef OPR
#define EXPERTS_ACT 2 /* index of the auxiliary result of OPR_EXPERTS that is the activation's output */
enum norm_kind lower_norm_kind(const struct lower *l, const struct opr *o);
uint32_t lower_normed_heads(const struct lower *l, const struct opr *o);

/* act.c: the activation of a feed-forward layer, where gated forms read [gate | up], and its gradient with respect
 * to x */
void lower_activation(struct lower *l, const struct ffn *f, struct mat x, struct mat y);
void lower_activation_back(struct lower *l, const struct ffn *f, struct mat x, struct mat dx, struct mat dy);

/* moe.c */
/* auxiliary results of a router */
enum { ROUTER_SCORE, ROUTER_INDEX, ROUTER_WEIGHT, ROUTER_PLACE, ROUTER_COUNTS, ROUTER_LOAD };
/* where rows go through nodes: the experts that each row sent has chosen on that node */
enum { ROUTER_CHOSEN = ROUTER_COUNTS };
struct expert_rows lower_expert_rows(const struct lower *l, const struct moe *m);
/* may a block of expert rows be too small in any layer of the model? */
bool lower_bounds_experts(const struct lower *l);
/* The load of experts for a router's correction bias: where this step's choices are counted; their sum over ranks;
 * the step of the bias. */
struct mat lower_load(struct lower *l, uint32_t piece, const struct opr *router, enum mark *mark);
void lower_load_reduce(struct lower *l);
void lower_bias_move(struct lower *l);
uint32_t lower_router_aux(const struct moe *m);
uint32_t lower_experts_aux(const struct lower *l);
struct aux_shape lower_moe_shape(const struct lower *l, const struct opr *o, uint32_t k);

/* shard.c: buckets as flat matrices, this rank's shard of them; gradient reduction; ZeRO 2 and 3 */
struct mat lower_flat(uint32_t buffer, enum dtype dtype, uint64_t elements);
struct mat lower_own_param(struct lower *l, uint32_t bucket);
struct mat lower_own_gradient(struct lower *l, uint32_t bucket);
bool lower_reduces(const struct lower *l, uint32_t bucket);
/* NULL: the piece has no part in that bucket */
const struct shard_part *lower_shard_part(const struct piece *pc, uint32_t bucket);
/* makes the buffers of gathered parameters and unreduced gradients */
void lower_shards(struct lower *l, const struct schedule *s);
void lower_gather_first(struct lower *l);
/* Called before a piece's parameters are read, and before its gradients are written; lower_close_gradients() adds
 * pending shards to their sums, at the latest in the optimizer. */
void lower_open_params(struct lower *l, uint32_t piece);
void lower_open_gradients(struct lower *l, uint32_t piece);
void lower_close_gradients(struct lower *l);
/* lower_bucket_scatter(): reduce-scatters one microbatch's gradient.  lower_bucket_reduce(): reduces the sum over
 * microbatches where it is kept whole, or whatever reductions are left for a scattered one. */
void lower_bucket_scatter(struct lower *l, uint32_t piece, uint32_t bucket, bool last);
void lower_bucket_reduce(struct lower *l, uint32_t bucket);

/* eight.c: rows in 8 bits, as words of 32 bits, with `parts` column blocks quantised separately.  lower_words(): the
 * words' shape. lower_keep(): quantises an operator's output if the backward pass reads it in 8 bits; lower_kept():
 * expands it there. lower_keeps_eight(): does a piece keep such values? */
struct mat lower_words(struct mat numbers, uint32_t parts);
void lower_quantize(struct lower *l, struct mat x, struct mat words, uint32_t parts);
void lower_dequantize(struct lower *l, struct mat words, struct mat y, uint32_t parts);
bool lower_keeps_eight(const struct lower *l, const struct piece *pc);
void lower_keep(struct lower *l, uint32_t piece, uint32_t opr);
struct mat lower_kept(struct lower *l, uint32_t piece, uint32_t value);

/* offload.c: offload of activations.  lower_offloads(): are the piece's kept values in host memory?  lower_offloaded():
 * where such a value is on the device while its piece runs.  lower_offload(): copies values out after F; lower_fetch():
 * copies in those of this piece and of the piece that runs next. */
bool lower_offloads(const struct lower *l, const struct piece *pc);
struct mat lower_offloaded(struct lower *l, uint32_t piece, const char *name, struct mat m);
void lower_offload(struct lower *l, uint32_t piece);
void lower_fetch(struct lower *l, uint32_t piece);

/* optimizer.c: the beginning of a step, and the optimizer */
void lower_head_of_step(struct lower *l);
void lower_first_seam(struct lower *l);
void lower_optimizer(struct lower *l);
void lower_copy(struct lower *l, struct mat to, struct mat from); /* on the copy queue */
void lower_metrics_reduce(struct lower *l);
/* words of the metrics block */
struct mat lower_metric(const struct lower *l, uint32_t first, uint32_t n);
/* fp16's loss scale, the factor that gradients start from */
struct mat lower_loss_factor(const struct lower *l);

/* repeat.c: writes an action (or a pair) as copies of what an earlier one wrote; false: it must be written, then
 * remembered */
bool lower_repeat(struct lower *l, const struct schedule *s, const struct action *a);
void lower_remember(struct lower *l, const struct schedule *s, const struct action *a, uint32_t first);

/* order.c: keying simulation, ring depths, queue order, waits and sequence numbers */
struct lowered {
    struct program *p;
    const uint32_t *channels; /* per instruction: channel of a SEND or RECV, a small number; else NONE */
    uint32_t cuts;            /* number of parts of every buffer that are waited for separately */
};
void order_programs(const struct cost *c, const struct lowered *roles, uint32_t nroles, uint32_t microbatches);

#endif
