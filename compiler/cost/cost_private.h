#ifndef LLMC_COST_PRIVATE_H
#define LLMC_COST_PRIVATE_H

/* Shared by the files of cost/ and the search: blocks, the unit that the closed form caches.  A block is a layer,
 * the embedding or the head as one rank runs it for one microbatch.  It depends on (tp, sp, cp, context, ep, etp,
 * microbatch, recompute) and on nothing else of a decision, so a search makes it once for thousands of decisions. */

#include "compiler/cost/cost.h"
#include "compiler/cost/pipeline.h"
#include "compiler/cost/walk.h"
#include "compiler/model/backward.h"

#include <string.h>

/* Ways to compute the loss: over all logits on every tensor-parallel rank; the same over split logits; with a loss
 * that is parallel over the vocabulary from the start; with the one that takes least memory. */
enum cost_loss { LOSS_WHOLE, LOSS_SPLIT, LOSS_PARALLEL, LOSS_LEAST, NLOSSES };
/* A value, or a statistic that an operator keeps beside its values, that is in host memory between a layer's forward
 * and backward pass. */
struct cost_parked {
    uint32_t value, opr, part; /* either value or opr is NONE; part: which of the operator's statistics */
    uint32_t place;            /* its index among everything that a layer may keep */
    double bytes;
};
/* lives.c: bytes over the passes of a block as llmrun runs them, including what the forward pass leaves behind */
enum lives_kind { LIVES_LAYER, LIVES_EMBED, LIVES_HEAD, LIVES_PREDICT };
/* A pass step by step, including the transfers between its kernels.  For kernels: bytes live while they run, and
 * after them.  In a backward pass, walk_step.passes says whether gradients of matrices have been made by then (1),
 * gradients of experts (2), and whether the block's parameters have been used for the last time (4).  front: bytes
 * live before the first step. */
struct cost_levels {
    uint32_t n;
    double front, all_s, fetch_s; /* fetch_s: seconds of copies from host memory for this backward pass, which the
                                   * following block's backward pass starts */
    struct walk_step *step;
    struct cost_level {
        float during, behind;
    } * bytes;
};
struct cost_lives {
    double keep, left;                        /* bytes that F leaves for B or I; that I leaves for W */
    double parked, left_parked, parked_input; /* of keep and of left: bytes in host memory meanwhile; of parked: the
                                               * block's input */
    double copied, fetched, fetched_input;    /* bytes copied to host memory; of them, bytes that W has copied back; of
                                               * those, the block's    input */
    double forward, backward, input, weight;  /* peak bytes of F, B, I and W */
    double backward_of[8], input_of[8]; /* peak bytes of B and I at moments of each kind, indexed by bits: gradients
                                         * of matrices have been made (1), gradients of experts (2), the gathered
                                         * parameters of both have been used for the last time (4) */
    double sent[2];                     /* most bytes in B and in W from the last product on that makes gradients */
    double moved, ahead[3]; /* of F: most bytes from its last transfer on; bytes that transfers bring before the
                             * first kernel of B, I and W */
    double workspace;
    const struct cost_levels *levels; /* of F and of B, where two actions run together; NULL: not requested */
    uint64_t mark;                    /* hash of levels, to tell them from those of other blocks */
};
/* The lives of a block, computed on first use: most blocks of a search never need them. */
struct cost_lives_later {
    bool known;
    struct cost_lives lives;
    struct arena *arena; /* for the levels: the search's, or the block's own, in which case they are made at once */
    const struct expansion *e;
    enum lives_kind kind;
    enum recompute recompute;
    uint32_t parts;
};
struct cost_block {
    const struct expansion *e;
    double forward_s, backward_s;           /* kernel seconds; recomputation counts as backward */
    double forward_comm_s, backward_comm_s; /* seconds of exposed tp, cp and ep transfers */
    double own_forward_s, own_backward_s;   /* kernel seconds without the host time that launches them */
    double loss_late_s; /* additional backward seconds where the loss's gradient does not directly follow its forward
                         * pass */
    double tail;        /* share of the forward pass after the last kept value is made */
    double again_s;     /* of backward_s: recomputation that runs before any gradient is needed */
    double kept_s;      /* of forward_s: work done only for values that are kept, which a block that recomputes may
                         * skip */
    double weight_s, weight_comm_s, input_s, input_comm_s; /* the same for a backward pass split into weight
                                                            * gradients (W) and input gradients (I) */
    double unread_s; /* of the transfers of B and of I: those that only other stacks repeat, although nothing reads
                      * the result */
    double apart_forward_s, apart_backward_s,
        apart_input_s; /* of these transfers: seconds hidden where rows to experts have a queue of their own */
    double forward_hidden_s, backward_hidden_s; /* of these transfers and the next: the most that another microbatch
                                                 * hides under schedules in pairs */
    double forward_idle_s, backward_idle_s; /* of the kernel seconds: waits of the host that another microbatch fills */
    double forward_lost_s, backward_lost_s; /* kernel seconds that its transfers cost another microbatch's kernels */
    double keep_bytes;                      /* bytes from F to B, per microbatch in flight */
    double late_bytes;  /* where the backward pass is split: bytes from I to W, in addition to what F kept */
    double waits_bytes; /* of what F kept: bytes that W needs */
    double stack_bytes; /* of keep_bytes: what only other stacks than llmrun keep beside values */
    double eager_bytes; /* in addition to keep_bytes: copies that only unfused operators keep */
    double forward_bytes, backward_bytes; /* peak bytes of temporaries */
    double loss_bytes[NLOSSES];           /* of the head: bytes of temporaries while the loss is computed; 0:
                                           * forward_bytes and backward_bytes apply */
    struct cost_lives_later *lives;       /* for llmrun only; else NULL */
    double shapes;                        /* elements of its matrices, counting a single expert */
    double whole_matrices;                /* of matrices: those that tp does not split */
    double early_matrices;                /* elements of the buckets of matrices for which I makes gradients */
    bool early;      /* where the backward pass is split: I makes the gradients of some of its matrices */
    bool whole_late; /* and W those of some of whole_matrices */
    /* Parameter elements on this rank: matrices split over tp or whole, vectors split, vectors whole, experts. */
    double matrices, vectors_split, vectors_whole, experts;
    double key_matrices, key_vectors; /* of matrices and of vectors_split: those of key heads that several tp ranks
                                       * hold copies of */
};
struct cost_shape {
    uint32_t ndistinct;
    struct cost_block *layers;  /* the distinct ones, with the decision's recomputation */
    struct cost_block *spared;  /* the same without recomputation */
    const uint32_t *kind, *run; /* by layer of the model: index of its distinct layer; how many layers from this one
                                 * on are the same */
    struct cost_block embed, head, predict;
    double boundary_bytes; /* residual stream of one microbatch on one rank */
};

/* fmax() and fmin() for numbers that are no NaN, inlined. */
static inline double cost_larger(double a, double b)
{
    return a > b ? a : b;
}
static inline double cost_smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Hash of n bytes, taken in words of eight, for look-up in a table. */
static inline uint64_t cost_mark(uint64_t seed, const void *bytes, size_t n)
{
    uint64_t mark = seed, word;
    for (size_t i = 0; i + sizeof word <= n; i += sizeof word) {
        memcpy(&word, (const char *)bytes + i, sizeof word);
        mark = (mark ^ word) * 0x9e3779b97f4a7c15;
        mark ^= mark >> 32;
    }
    return mark;
}

/* The most seconds of a block's transfers that schedules in pairs hide, behind another microbatch or on a queue of
 * their own. */
static inline double cost_paired_forward_s(const struct cost_block *b)
{
    return cost_larger(b->forward_hidden_s, b->apart_forward_s);
}
static inline double cost_paired_backward_s(const struct cost_block *b)
{
    return cost_larger(b->backward_hidden_s, b->apart_backward_s);
}

/* Kernel seconds of F or B beside another action, of a block or a stage. */
#define cost_paired_s(x, back)                                                                                         \
    ((back) ? (x)->backward_s + (x)->backward_lost_s - (x)->backward_idle_s                                            \
            : (x)->forward_s + (x)->forward_lost_s - (x)->forward_idle_s)

/* Parameter elements whose optimizer state is updated at one time. */
struct cost_updated {
    double matrices, experts;
};
/* Sums over the blocks of a pipeline rank. */
struct cost_stage {
    double forward_s, backward_s, forward_comm_s, backward_comm_s, forward_hidden_s, backward_hidden_s;
    double input_s, weight_s; /* of a split backward pass, including exposed transfers */
    double own_forward_s, own_backward_s, forward_idle_s, backward_idle_s, forward_lost_s, backward_lost_s;
    double kept_s;                    /* of forward_s: what recomputation may skip */
    double matrices, experts, blocks; /* parameter elements (matrices includes all vectors); number of blocks */
    struct cost_updated first[2];     /* the first and the second group to be updated; only where the optimizer state
                                       * is in host memory */
};

void cost_device_init(struct cost *c);
/* Bytes per second between a GPU and host memory, one way. */
double cost_host_bytes_s(const struct cost *c);
/* Sets the groups of ZeRO state from the decision's shard. */
void cost_set_shard(struct cost *c);
struct cost_group cost_run_group(const struct cost *c, uint32_t n, uint32_t stride);
/* The worst placed of the groups that a mask of m's digits makes; mask 0: a rank alone. */
struct cost_group cost_mask_group(const struct cost *c, const struct mesh *m, uint32_t mask);
/* The ranks over which ZeRO state is split, n of the dp * cp replicas. */
struct cost_group cost_shard_group(const struct cost *c, uint32_t n);
/* Fills in a group's lines from its members and the topology, for a set of moves (bits of enum cost_move). */
#define MOVES_ALL ((1u << NMOVES) - 1)
void cost_tune(const struct cost *c, struct cost_group *g, uint32_t moves);
/* floor.c: A bound: n members placed such that nothing is slower than in their real placement, which group.level
 * marks. */
#define COST_FLOOR COST_LEVELS
struct cost_group cost_floor_group(const struct cost *c, uint32_t n);
/* exchange.c: Sets c->near and c->far by the decision's ep_nodes or, where that is 0, by its nodes; n = 1 where
 * there is no such split. */
void cost_split_experts(struct cost *c);
/* What a microbatch's tokens cost in one layer with experts.  way_s: seconds of their rows one way; forward_s,
 * backward_s: of the other transfers in each pass (counts, choices, weights); copies_s: of the memory traffic one
 * way that sending straight saves; rows: those that arrive on this rank from other nodes when each is sent once per
 * node, 0 when sent straight; far_s: of way_s, the transfer between nodes then; shared_s: of transfers among ranks
 * that share an expert, in addition to way_s. */
struct cost_exchange {
    double way_s, forward_s, backward_s, copies_s, rows, far_s, shared_s;
};
struct cost_exchange cost_exchange(const struct cost *c, const struct moe *m, double tokens, double row_bytes);
/* n expert ranks, `stride` apart, for all-to-all. */
struct cost_group cost_expert_group(const struct cost *c, uint32_t n, uint32_t stride);
/* Lower bound of a once-per-node dispatch among n ranks whose placement is not known, in seconds. */
double cost_floor_dispatch_s(const struct cost *c, double bytes, uint32_t copies, uint32_t groups, uint32_t pick,
                             uint32_t n);
/* Bandwidth of many short sends over a NIC, as a fraction of what a ring reaches (dispatch over 16 to 64 H100). */
#define DIRECT_NET 0.94
/* Fills in c->net; requires c->device.nic_factor. */
void cost_net_init(struct cost *c);
/* Bytes per second of one GPU's links inside the group's domain, as large transfers reach them; direct: for
 * all-to-all. */
double cost_link_bytes_s(const struct cost *c, const struct cost_group *g, bool direct);
const char *cost_way_name(uint32_t way);
/* Index into cost_group.curve of an operation; 6 = none. */
uint32_t cost_curve_slot(enum op op);

/* The distinct layers, compared by pointer, and their expansions: made once per job. */
struct cost_kinds {
    uint32_t n;
    uint32_t *kind, *run;                                     /* by layer */
    const struct expansion **layers, *embed, *head, *predict; /* layers: by kind */
};
struct cost_kinds cost_kinds_new(struct arena *a, const struct model *m);
/* block.c: Makes the block of one expansion; layer: it is not the embedding or the head; none: NULL, or the same block
 * of the decision that differs from c's only in having no recomputation, whose F and W it shares, unless it converts
 * to 8 bits: conversions that recomputation repeats move in F, too. */
struct cost_block cost_block_make(struct arena *a, const struct cost *c, const struct expansion *e, bool layer,
                                  const struct cost_block *none);
/* Makes the steps of the passes of one of s's blocks, in a's memory. */
struct walk;
struct cost_shape;
void cost_block_walk(struct arena *a, const struct cost *c, const struct cost_shape *s, const struct cost_block *block,
                     struct walk *w);
/* The same for an expansion, with the recomputation of c's decision. */
void cost_expansion_walk(struct arena *a, const struct cost *c, const struct expansion *e, bool layer, struct walk *w);
void cost_shape_init(struct arena *a, const struct cost *c, const struct cost_kinds *k, struct cost_shape *s);
/* cost_shape_plain() makes the blocks without experts, which are the same for all ep and etp; those of the embedding
 * and the head only without recomputation.  cost_shape_fill() makes the others, taking these from plain, or all
 * where plain is NULL. */
void cost_shape_plain(struct arena *a, const struct cost *c, const struct cost_kinds *k, struct cost_shape *s);
void cost_shape_fill(struct arena *a, const struct cost *c, const struct cost_kinds *k, const struct cost_shape *plain,
                     struct cost_shape *s);
/* The same, starting from the shape of the decision that differs from c's only in having no recomputation. */
void cost_shape_vary(struct arena *a, const struct cost *c, const struct cost_kinds *k, const struct cost_shape *none,
                     const struct cost_shape *plain, struct cost_shape *s);
void cost_shape_layers(const struct cost_shape *s, uint32_t nlayers, double *layer_s, double *embed_s, double *head_s);

/* block_bytes.c: Adds bytes and parameter elements of a block to out; layer: it is not the embedding or the head. */
void cost_keep(struct arena *a, const struct cost *c, const struct expansion *e, bool layer, struct cost_block *out);
const struct cost_lives *cost_lives(const struct cost *c, const struct cost_block *b);
const struct cost_lives *cost_paired_lives(const struct cost *c, const struct cost_block *b); /* with levels */
/* Lists what a block keeps in host memory, in the order of the copies; returns the number. */
uint32_t cost_parked(struct arena *a, const struct cost *c, const struct cost_block *b, struct cost_parked **each);
/* exchange.c: Rows of experts that are sent, and that are kept, for each row expected on average. */
double cost_rows_moved(const struct cost *c, const struct moe *m);
double cost_rows_kept(const struct cost *c, const struct moe *m);
/* Capacity of blocks of experts' rows in memory, as a multiple of the mean; 0: room for all that can arrive.  Where
 * nothing fits with the usual capacity, a plan that is too large gets less, down to the mean. */
double cost_room_kept(const struct cost *c);
/* Of `tokens` tokens, the rows that arrive from other nodes before they are spread within the node; 0: rows are sent
 * straight. */
double cost_far_rows(const struct cost *c, const struct moe *m, double tokens);
/* Seconds of sending a microbatch's rows to the experts of a layer and back as the profile's stack does it,
 * including the all-gather and the reduce-scatter among ranks that share an expert; to, from: the two ways. */
double cost_travel_s(const struct cost *c, const struct moe *m, struct cost_exchange *to, struct cost_exchange *from);
/* Splits another stack's seconds by the ways that the emitted programs send rows: sets far_s of each. */
void cost_emitted_ways(const struct cost *c, const struct moe *m, struct cost_exchange *to, struct cost_exchange *from);
double cost_sent_bytes(const struct cost *c); /* of a token's row, or its gradient, on the way to an expert */
/* words.c: Seconds and kernels of the conversions of operator i's values to 8 bits and back: in the forward pass, in
 * recomputation, and in the backward pass.  cost_words() returns NULL where there are none.  cost_word_bytes():
 * bytes of rows in 8 bits, in `parts` parts side by side. */
struct cost_words {
    struct backward plan;
    uint32_t again;       /* the recomputation that it was made for */
    const uint8_t *eight; /* backward_eight() */
};
struct cost_conversions {
    double forward_s, again_s, backward_s;
    uint32_t forward, again, backward;
};
struct cost_words *cost_words(struct arena *a, const struct cost *c, const struct decision *d,
                              const struct expansion *e, bool layer);
struct cost_conversions cost_conversions(const struct cost *c, const struct decision *d, const struct expansion *e,
                                         const struct cost_words *w, uint32_t i);
double cost_word_bytes(double rows, double cols, uint32_t parts);

/* which pipeline rank runs a stage; V-shaped schedules fold the second half back */
/* Bytes that one microbatch leaves on a stage; eager: including the copies that unfused operators keep. */
double cost_stage_keep(const struct cost *c, const struct cost_shape *s, uint32_t stage, bool eager);
/* Of these, the bytes in host memory meanwhile; 0 unless activations are offloaded. */
double cost_stage_parked(const struct cost *c, const struct cost_shape *s, uint32_t stage);
/* Bytes that a microbatch leaves in llmrun's rings from I to W. */
double cost_stage_late(const struct cost *c, const struct cost_shape *s, uint32_t stage);
uint32_t cost_stage_rank(const struct decision *d, uint32_t stage);
bool cost_ends_meet(const struct decision *d); /* are the first and the last stage on one rank? */
/* The j-th of the vpp stages of rank r. */
uint32_t cost_rank_stage(const struct decision *d, uint32_t r, uint32_t j);
/* A stage's layers as runs of equal blocks: the length of the run from its layer i on, and the block. */
uint32_t cost_run(const struct cost_shape *s, const struct stage *st, uint32_t i);
const struct cost_block *cost_layer(const struct cost_shape *s, const struct stage *st, uint32_t i);
/* Sums by pipeline rank, and the stages' times for pipeline.c and for the simulation of actions. */
void cost_pipeline(const struct cost *c, const struct cost_shape *s, struct cost_stage *ranks,
                   struct pipeline_stage *stages, struct pipeline_times *times);
void cost_clear_transfers(const struct decision *d, struct pipeline_stage *stages);
/* Resets the stages' times to those without copies to host memory, which cost_pipeline() includes. */
void cost_clear_copies(const struct cost *c, const struct cost_shape *s, struct pipeline_stage *stages);
/* The items of the step for a pipeline that takes pipeline_s seconds, or free_s if transfers cost nothing. */
void cost_step(const struct cost *c, const struct cost_stage *ranks, double pipeline_s, double free_s,
               struct estimate *e);
/* The same in parts, for schedules that are too long to be simulated: cost_tail(), what the schedule of the stages
 * does not change, bounded from below also for the same stages with layers that recompute; cost_body(), what ZeRO
 * and shards do not change; cost_items(), both combined with the seconds of a pipeline. */
void cost_tail(const struct cost *c, const struct cost_stage *ranks, struct estimate *e); /* dp_comm_s, optimizer_s */
/* least.c: Lower bounds, in seconds, for simulated actions with the transfers that times->moves runs beside them.
 * beside_s: beyond the actions alone; beside_longer_s: the same where layers recompute more, to be added to a bound
 * that takes that into account; whole_s: of the whole simulation.  longer: any of the layers may recompute more than
 * in times. */
struct cost_least {
    double beside_s, beside_longer_s, whole_s;
};
struct cost_least cost_least(const struct cost *c, const struct pipeline_times *times, bool longer);
/* Sets stages, one for each of times', to actions that take no longer than they do with the transfers beside them.
 * Returns a lower bound, in seconds, of what the simulation takes beyond these; 0: the stages are the same. */
double cost_least_stretch(const struct cost *c, const struct pipeline_times *times, struct pipeline_stage *stages);
/* Does the decision's schedule run input gradients (I) and weight gradients (W) separately? */
bool cost_splits(const struct decision *d);
/* prefetch.c: By how many uses ahead ZeRO 3 gathers parameters, as the decision says or its shape suggests. */
uint32_t cost_uses_ahead(const struct cost *c, const struct cost_shape *s);
/* Elements of the embedding's table that the last stage's rank holds a copy of, for prediction modules. */
double cost_copied_table(const struct cost *c, const struct cost_shape *s);
/* moves.c: Adds to times what travels beside the actions of a pipeline; ranks: the sums of its ranks. */
void cost_moves(struct arena *a, const struct cost *c, const struct cost_shape *s, const struct cost_stage *ranks,
                struct pipeline_times *times);
/* How gradients of one kind of bucket are summed: over which ranks they are split, and over which the parts are
 * summed then.  Kinds: dense buckets; weights of key heads that several ranks of tp hold copies of; experts.  The
 * same for all stages of a ZeRO level and shard. */
struct cost_mover {
    struct cost_group shard, replicas;
    double gradient, parameter; /* bytes per element while it travels */
    double sum;                 /* bytes per gradient element where microbatches are added up */
    double slow;                /* the profile's factor on ZeRO 3's transfers */
    double bucket;              /* elements that travel at a time, regardless of pieces; 0: a piece at a time */
};
struct cost_movers {
    struct cost_mover dense, keys, experts;
};
struct cost_movers cost_movers(const struct cost *c);
void cost_moves_by(struct arena *a, const struct cost *c, const struct cost_shape *s, const struct cost_stage *ranks,
                   const struct cost_movers *by, struct pipeline_times *times);
/* Seconds of copying what a layer keeps to host memory, or back; fetch_s: of copying back what weight gradients
 * need. received: the layer's input is another rank's output, which stays on the device. */
double cost_park_s(const struct cost *c, const struct cost_shape *s, const struct cost_block *b, bool received,
                   double *fetch_s);
/* copies.c: The same value by value; n: their number. */
const struct pipeline_copy *cost_copies(struct arena *a, const struct cost *c, const struct cost_shape *s,
                                        const struct cost_block *b, bool received, double park_s, double fetch_s,
                                        uint32_t *n);
/* Elements of parameters and gradients that travel at a time, regardless of the model's pieces; 0: a piece at a
 * time. */
double cost_bucket(const struct cost *c);
/* The optimizer's update of a pipeline rank; seconds of the reduction of the gradient norm over all ranks. */
struct pipeline_update cost_rank_update(const struct cost *c, const struct cost_stage *ranks, uint32_t r);
double cost_agree_s(const struct cost *c);
/* The same where a simulation had these transfers beside the actions and took beside_s longer: adds the profile's
 * share. */
void cost_rest(const struct cost *c, const struct cost_stage *ranks, double beside_s, struct estimate *e);
/* The exposed share of an axis' transfers: overlapped where the user asks for overlap, 1 where he forbids it, else
 * by_itself, the stack's default. */
double cost_shown(const struct cost *c, uint32_t axis, double by_itself, double overlapped);
/* The exposed share of tensor-parallel transfers; llmrun's plans hide these by themselves. */
double cost_tp_shown(const struct cost *c);
/* Does the profile's stack run two microbatches together although there is no pipeline? */
bool cost_together(const struct cost *c);
/* The exposed share of transfers of rows to experts and back, where no two actions of a pipeline run together. */
double cost_ep_shown(const struct cost *c);
/* Bytes of a parameter while it is gathered; of a master weight beside its working copy, which may have half of it. */
double cost_parameter_bytes(const struct cost *c);
double cost_master_bytes(const struct cost *c, const struct profile *stack);
bool cost_master_halves(const struct cost *c, const struct profile *stack);
/* Is what tensor-parallel ranks gather for 8-bit products converted before it travels? */
bool cost_gathers_eight(const struct cost *c);
/* The sums of one stage. */
struct cost_stage cost_sum_stage(const struct cost *c, const struct cost_shape *s, uint32_t stage);
/* Data-parallel transfers: seconds that stay exposed because the profile's stack does not hide them, and seconds by
 * which the hidden ones slow kernels down. */
struct cost_seen {
    double shown_s, stolen_s;
};
struct cost_seen cost_seen(const struct cost *c, const struct cost_stage *ranks);
/* Seconds of a step for these and for its seam; least: a lower bound also for the same stages with layers that
 * recompute. */
double cost_seam_s(const struct cost *c, const struct cost_stage *ranks, bool least);
struct cost_body {
    double stage_forward_s, stage_backward_s, compute_s, comm_s, slow;
    double least_s; /* lower bound of a pipeline's seconds: the work of ranks that share cores; 0 where they do not */
};
struct cost_body cost_body(const struct cost *c, const struct cost_stage *ranks);
/* Lower bound of cost_body.slow for any stages: other recomputation may give them more slack. */
double cost_slow_least(const struct cost *c);
void cost_items(const struct cost_body *x, double pipeline_s, double free_s, struct estimate *e);
/* Time and memory of c->decision from its shape; ranks and stages: scratch space, an entry for each. */
void cost_time(const struct cost *c, const struct cost_shape *s, struct cost_stage *ranks,
               struct pipeline_stage *stages, struct estimate *e);
void cost_memory(const struct cost *c, const struct cost_shape *s, struct estimate *e);
/* Memory of one pipeline rank; cost_memory() is that of the fullest. */
void cost_rank_memory(const struct cost *c, const struct cost_shape *s, uint32_t r, struct estimate *e);
/* Bytes of parameters, gradients and optimizer state that at least one rank holds however the model is cut into
 * stages. Depends on the decision's pp, zero and shard, and on the shape without recomputation. */
uint64_t cost_state_least(const struct cost *c, const struct cost_shape *s);
/* The same of all pipeline ranks together, without what the stack takes for itself. */
double cost_state_all(const struct cost *c, const struct cost_shape *s);
struct own_stages; /* memory of stages of a decision; equal stages are computed once */
struct own_stages *cost_stages_new(struct arena *a);
/* For the memory of a decision's ranks, one by one, while the number of layers that do not recompute may change from
 * call to call: what a block holds, and (struct cost_rooms) what is the same for all blocks. */
struct cost_held {
    double dense, experts,
        largest;            /* parameter elements of a block, buckets padded; of both, those gathered at a time */
    double own, vectors[2]; /* of dense: matrices; vectors split over tp, and whole */
    /* Elements of gradients that stay until the update, without vectors': of matrices; of experts; of tables that an
     * earlier block of the stage or another rank completes.  sums: they are summed between ranks once complete;
     * tied: after all other actions of the step. */
    double gradients[3];
    bool sums[3], tied;
    double begun;      /* of the head's gradients: those that a prediction module's first product begins and the head
                        * completes */
    double made, part; /* elements of a microbatch's gradients that are scattered; this rank's part of them */
    double state, expert_state; /* elements whose optimizer state this rank has, of matrices and of experts */
    double whole_state;         /* of state: matrices that are whole on every rank of tp */
};
#define COST_HELD 8
struct cost_rooms {
    const struct cost *c;
    const struct cost_shape *s;
    double parameter, gradient, copy, state; /* bytes per parameter element; gradient: a lower bound */
    double made, reduced;                    /* bytes per element of a gradient as it is made, and as it is summed
                                              * between ranks */
    double place;                            /* bytes per element of optimizer state that is fetched from the host */
    double limit, buckets;                   /* bytes of the GPU; the number of elements to whose multiple buckets
                                              * are padded */
    uint64_t communicator_bytes;
    bool splits, least;                          /* the schedule has I and W; these are lower bounds for any schedule */
    double kept;                                 /* activation bytes of the rank in question, where known; else 0 */
    uint32_t expert_shard, expert_shares, ahead; /* shares: the number of ranks that have the same experts; ahead:
                                                  * uses by which gathers are prefetched */
    struct own_stages *known;                    /* stages kept for the next call; NULL: none */
    uint32_t nlayers;                            /* number of distinct layers in the array below */
    struct cost_held layers[COST_HELD], embed, head, predict;
};
void cost_rooms_init(struct cost_rooms *x, const struct cost *c, const struct cost_shape *s);
/* From here on stages are kept between calls, as long as nothing changes in the decision but the layers that do not
 * recompute. */
void cost_rooms_keep(struct cost_rooms *x, struct own_stages *known);
void cost_rooms_rank(const struct cost_rooms *x, uint32_t r, uint64_t least_bytes, struct estimate *e);
/* Does the rank need at most most_bytes?  e is not exact beyond that answer. */
bool cost_rooms_within(const struct cost_rooms *x, uint32_t r, uint64_t most_bytes, struct estimate *e);
/* Another schedule that holds as many microbatches may free some bytes earlier, and another shard may be smaller.
 * This is the share that all of them take of what a rank of llmrun's has beside its state
 * (tests/compiler/search/test_certificate.c). */
#define LEAST_OWN 0.9
/* Sets lower bounds over all decisions of c's ZeRO level whose shards are at most c's: buckets without padding,
 * parameters gathered one use ahead. */
void cost_rooms_least(struct cost_rooms *x, const struct cost *c, const struct cost_shape *s);
/* Lower bound, in bytes and for any schedule, of the buffers that a rank has for one layer of a kind; temporary:
 * bytes of its kernels' temporaries. */
double cost_layer_buffers(const struct cost_rooms *x, uint32_t kind, double temporary);
/* Memory of the fullest rank; false: some rank needs more than most_bytes, and e does not say by how much. */
bool cost_rooms_fullest(const struct cost_rooms *x, uint64_t most_bytes, struct estimate *e);

/* measured.c: Figures from the cluster file; 0 or NULL = not measured.  FLOP/s of a product; its seconds as a
 * multiple of a formula's; the nearest measured attention; seconds of a memory-bound instruction. */
double cost_measured_product_flop_s(const struct cost *c, double m, double n, double k, enum cost_number number);
double cost_measured_product_share(const struct cost *c, double m, double n, double k, enum cost_number number,
                                   double (*formula_s)(const struct cost *c, const struct topo_point *at,
                                                       void *context),
                                   void *context);
const struct topo_point *cost_measured_attention(const struct cost *c, double places, double head,
                                                 enum cost_number number);
double cost_measured_stream_s(const struct cost *c, enum op op, double bytes, bool half);
double cost_crowd(const struct cost *c);

/* fused.c: Are instructions priced as a GPU runs them fused, and the bytes that this one does not move then. */
bool cost_fuses(const struct cost *c);
double cost_fused_bytes(const struct program *p, const struct insn *x);

#endif
