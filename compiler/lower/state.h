#ifndef LLMC_LOWER_STATE_H
#define LLMC_LOWER_STATE_H

/* Private to the lowering: the state while one role's program is being written.
 *
 * A role runs one or more chunks: the stages that the schedule assigns to its rank.  A chunk consists of pieces: the
 * embedding, layers, the head.  Every piece is an expansion (operators over values) with a buffer for each value and
 * a place in a bucket for each weight.  Values that the backward pass needs are in the ring `act` (one slot per
 * microbatch in flight); all others are temporaries, one buffer per name, reused by every layer. */

#include "compiler/lower/emit.h"
#include "compiler/lower/lower.h"
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

#endif
