#ifndef LLMC_COST_PRIVATE_H
#define LLMC_COST_PRIVATE_H

/* Between the files of cost/ and the search: blocks, the cached unit of the closed form.  A block is a layer, the
 * embedding or the head as one rank runs it for one microbatch; it depends on (tp, sp, cp, context, ep, etp,
 * microbatch, recompute) and on nothing else of a decision, so a search makes it once for thousands of decisions. */

#include "compiler/cost/cost.h"
#include "compiler/cost/pipeline.h"
#include "compiler/cost/walk.h"
#include "compiler/model/backward.h"

#include <string.h>

/* ways to make the loss: over all logits on every tensor-parallel rank, the same over split ones, one that is parallel
 * over the vocabulary from the start, the one that takes least */
enum cost_loss { LOSS_WHOLE, LOSS_SPLIT, LOSS_PARALLEL, LOSS_LEAST, NLOSSES };
/* a value, or what an operator keeps besides: in host memory between a layer's passes */
struct cost_parked {
    uint32_t value, opr, part; /* value or opr is NONE; part: of what the operator keeps */
    uint32_t place;            /* its number among all that a layer may keep */
    double bytes;
};
/* lives.c: bytes over a block's passes as llmrun has them, what the forward pass left among them */
enum lives_kind { LIVES_LAYER, LIVES_EMBED, LIVES_HEAD, LIVES_PREDICT };
/* A pass in steps, transfers between its kernels among them.  Of kernels: bytes while they run, and behind them; in a
 * backward pass walk_step.passes says whether gradients of matrices are made by then (1), of experts (2), and its
 * parameters have been used for the last time (4).  front: bytes in front of the first. */
struct cost_levels {
    uint32_t n;
    double front, all_s,
        fetch_s; /* fetch_s: of what a backward pass finds in host memory, which the block behind it has copied back */
    struct walk_step *step;
    struct cost_level {
        float during, behind;
    } * bytes;
};
struct cost_lives {
    double keep, left;                        /* what F leaves for B or I; what I leaves for W */
    double parked, left_parked, parked_input; /* of them: in host memory meanwhile; of that the block's input */
    double copied, fetched,
        fetched_input; /* bytes that go to host memory; of them, what W has copied back, and its input */
    double forward, backward, input, weight; /* at the fullest moment of F, B, I and W */
    double backward_of[8], input_of[8]; /* of B and I, by bits: gradients of matrices are made, of experts; behind the
                                         * last use of both as they were gathered */
    double sent[2];                     /* of B and W: behind the last product that makes gradients of matrices */
    double moved, ahead[3]; /* of F: from its last transfer on; what transfers bring in front of B, I and W */
    double workspace;
    const struct cost_levels
        *levels;   /* of F and of B, where two actions run together; NULL: nobody has asked for them */
    uint64_t mark; /* of levels: those of other ones have another */
};
/* those of a block, followed when they are asked for: most blocks of a search never are */
struct cost_lives_later {
    bool known;
    struct cost_lives lives;
    struct arena *arena; /* for its levels: a search's, or the block's, which then has them from the begin */
    const struct expansion *e;
    enum lives_kind kind;
    enum recompute recompute;
    uint32_t parts;
};
struct cost_block {
    const struct expansion *e;
    double forward_s, backward_s;           /* kernels; recomputation counts as backward */
    double forward_comm_s, backward_comm_s; /* exposed transfers of tp, cp, ep */
    double own_forward_s, own_backward_s;   /* of kernels: by themselves, without a host that launches them */
    double loss_late_s; /* more in backward where the loss's gradient does not follow its forward pass */
    double tail;        /* share of forward behind the last value that is kept */
    double again_s;     /* of backward: what runs again before any gradient is needed */
    double kept_s;      /* of forward: made for what is kept alone, so that recomputation may leave it out */
    double weight_s, weight_comm_s, input_s, input_comm_s; /* the same of a backward in two, of weights and of inputs */
    double unread_s; /* of both kinds' transfers: that of what only a stack runs again, for nobody */
    double apart_forward_s, apart_backward_s,
        apart_input_s; /* of them: hidden where rows to experts have their own queue */
    double forward_hidden_s,
        backward_hidden_s; /* of transfers: what another microbatch hides at most under schedules in pairs */
    double keep_bytes;     /* from F to B, per microbatch in flight */
    double late_bytes;     /* where the backward is split: from I to W, besides what F kept */
    double waits_bytes;    /* of what F kept, what W needs; */
    double stack_bytes;    /* of what is no value: what only other stacks keep */
    double eager_bytes;    /* the same of copies that only operators without fusion keep */
    double forward_bytes, backward_bytes; /* temporaries at their fullest */
    double loss_bytes[NLOSSES];           /* of the head: temporaries while the loss is made; 0: as the lines above */
    struct cost_lives_later *lives;       /* llmrun's alone */
    double shapes;                        /* elements of its matrices, one of several experts */
    double whole_matrices;                /* of matrices: those that tp does not split */
    double early_matrices;                /* elements of buckets of matrices that I makes gradients of */
    bool early;      /* where the backward is split, some of its matrices' gradients are made with I */
    bool whole_late; /* and some of whole_matrices' with W */
    /* parameter elements on this rank: matrices split or whole, vectors split or whole over tp, experts */
    double matrices, vectors_split, vectors_whole, experts;
    double key_matrices, key_vectors; /* of matrices and vectors_split: of key heads that several tp ranks hold */
};
struct cost_shape {
    uint32_t ndistinct;
    struct cost_block *layers;  /* distinct ones, as the decision recomputes */
    struct cost_block *spared;  /* the same without recomputation */
    const uint32_t *kind, *run; /* by layer of the model: distinct layer; how many from here on are the same */
    struct cost_block embed, head, predict;
    double boundary_bytes; /* residual stream of one microbatch on one rank */
};

/* as fmax() of numbers, without a call */
static inline double cost_larger(double a, double b)
{
    return a > b ? a : b;
}
static inline double cost_smaller(double a, double b)
{
    return a < b ? a : b;
}

/* of bytes in words of eight: what tells them from others, in a table */
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

/* of a block's transfers, what schedules in pairs hide at most: behind another microbatch, or on a queue of their own
 */
static inline double cost_paired_forward_s(const struct cost_block *b)
{
    return cost_larger(b->forward_hidden_s, b->apart_forward_s);
}
static inline double cost_paired_backward_s(const struct cost_block *b)
{
    return cost_larger(b->backward_hidden_s, b->apart_backward_s);
}

/* parameter elements whose state is updated at a time */
struct cost_updated {
    double matrices, experts;
};
/* sums of a pipeline rank's blocks */
struct cost_stage {
    double forward_s, backward_s, forward_comm_s, backward_comm_s, forward_hidden_s, backward_hidden_s;
    double input_s, weight_s; /* of a backward in two, with transfers */
    double own_forward_s, own_backward_s;
    double kept_s;                    /* of forward: recomputation may leave it out */
    double matrices, experts, blocks; /* parameter elements; matrices with all vectors */
    struct cost_updated first[2];     /* what is updated first, then; of state in host memory alone */
};

void cost_device_init(struct cost *c);
/* bytes per second between a GPU and host memory, one way */
double cost_host_bytes_s(const struct cost *c);
/* groups of ZeRO state from the decision's shard */
void cost_set_shard(struct cost *c);
struct cost_group cost_run_group(const struct cost *c, uint32_t n, uint32_t stride);
/* of a mask of m's digits, the worst placed of its groups; 0: a rank alone */
struct cost_group cost_mask_group(const struct cost *c, const struct mesh *m, uint32_t mask);
/* the ranks that ZeRO state split over n of dp * cp is split over */
struct cost_group cost_shard_group(const struct cost *c, uint32_t n);
/* fills a group's lines from its members and the topology, for a set of moves (bits of enum cost_move) */
#define MOVES_ALL ((1u << NMOVES) - 1)
void cost_tune(const struct cost *c, struct cost_group *g, uint32_t moves);
/* floor.c: n members placed so that nothing is slower than where they really are, as a bound; its level says so */
#define COST_FLOOR COST_LEVELS
struct cost_group cost_floor_group(const struct cost *c, uint32_t n);
/* exchange.c: c->near and c->far, of the decision's ep_nodes or of those that its nodes make; n = 1 where there are
 * none */
void cost_split_experts(struct cost *c);
/* of a microbatch's tokens in a layer: seconds of their rows one way; what else travels forward and backward; memory
 * traffic, one way, that straight ones do without; rows that lie on this node's rank once per node, 0 where they go
 * straight; of way_s, what travels between nodes then; of ranks that share an expert, beside it */
struct cost_exchange {
    double way_s, forward_s, backward_s, copies_s, rows, far_s, shared_s;
};
struct cost_exchange cost_exchange(const struct cost *c, const struct moe *m, double tokens, double row_bytes);
/* n expert ranks, `stride` apart: for all-to-all */
struct cost_group cost_expert_group(const struct cost *c, uint32_t n, uint32_t stride);
/* of such a group, with once_per_node */
double cost_floor_dispatch_s(const struct cost *c, double bytes, double copies, uint32_t groups, uint32_t pick,
                             uint32_t n);
/* share of a NIC's bandwidth that many short sends reach, of what a ring does (dispatch over 16 to 64 H100) */
#define DIRECT_NET 0.94
/* c->net, after c->device.nic_factor */
void cost_net_init(struct cost *c);
/* bytes/s of one GPU's links inside the group's domain, as large transfers reach them; direct: of all-to-all */
double cost_link_bytes_s(const struct cost *c, const struct cost_group *g, bool direct);
const char *cost_way_name(uint32_t way);
/* where cost_group.curve keeps an operation; 6 = nowhere */
uint32_t cost_curve_slot(enum op op);

/* distinct layers by pointer, and their expansions: made once per job */
struct cost_kinds {
    uint32_t n;
    uint32_t *kind, *run;                                     /* by layer */
    const struct expansion **layers, *embed, *head, *predict; /* layers: by kind */
};
struct cost_kinds cost_kinds_new(struct arena *a, const struct model *m);
/* block.c: of one expansion; layer: not the embedding or the head */
struct cost_block cost_block_make(struct arena *a, const struct cost *c, const struct expansion *e, bool layer);
/* the steps of the passes of one of s's blocks, in a's memory */
struct walk;
struct cost_shape;
void cost_block_walk(struct arena *a, const struct cost *c, const struct cost_shape *s, const struct cost_block *block,
                     struct walk *w);
/* of an expansion, as c's decision recomputes */
void cost_expansion_walk(struct arena *a, const struct cost *c, const struct expansion *e, bool layer, struct walk *w);
void cost_shape_init(struct arena *a, const struct cost *c, const struct cost_kinds *k, struct cost_shape *s);
/* Its blocks that have no experts, which are the same for all ep and etp; those of the embedding and the head without
 * recomputation alone.  Then the rest beside these, or all of them where plain is NULL. */
void cost_shape_plain(struct arena *a, const struct cost *c, const struct cost_kinds *k, struct cost_shape *s);
void cost_shape_fill(struct arena *a, const struct cost *c, const struct cost_kinds *k, const struct cost_shape *plain,
                     struct cost_shape *s);
/* the same from the shape without recomputation of the decision that is otherwise c's */
void cost_shape_vary(struct arena *a, const struct cost *c, const struct cost_kinds *k, const struct cost_shape *none,
                     const struct cost_shape *plain, struct cost_shape *s);
void cost_shape_layers(const struct cost_shape *s, uint32_t nlayers, double *layer_s, double *embed_s, double *head_s);

/* keep.c: bytes and parameter elements of a block into out; layer: not the embedding or the head */
void cost_keep(struct arena *a, const struct cost *c, const struct expansion *e, bool layer, struct cost_block *out);
const struct cost_lives *cost_lives(const struct cost *c, const struct cost_block *b);
const struct cost_lives *cost_paired_lives(const struct cost *c, const struct cost_block *b); /* with levels */
/* what a block keeps in host memory, in the order in which it is copied */
uint32_t cost_parked(struct arena *a, const struct cost *c, const struct cost_block *b, struct cost_parked **each);
/* exchange.c: rows of experts that travel and are kept for each that is expected on average */
double cost_rows_moved(const struct cost *c, const struct moe *m);
double cost_rows_kept(const struct cost *c, const struct moe *m);
/* Room for experts' rows in memory, over the mean, 0: for all that can come.  Where nothing fits with the usual one, a
 * plan that is too large gets less, down to the mean. */
double cost_room_kept(const struct cost *c);
/* of `tokens` tokens, those that lie on their way between nodes, before they are spread there; 0: they go straight */
double cost_far_rows(const struct cost *c, const struct moe *m, double tokens);
/* Rows of a microbatch to the experts of a layer and back, as the profile's stack sends them, with what ranks that
 * share an expert gather and sum: seconds by themselves; each of the ways. */
double cost_travel_s(const struct cost *c, const struct moe *m, struct cost_exchange *to, struct cost_exchange *from);
/* the same seconds of another stack's in the ways of the emitted programs: far_s of each */
void cost_emitted_ways(const struct cost *c, const struct moe *m, struct cost_exchange *to, struct cost_exchange *from);
double cost_sent_bytes(const struct cost *c); /* of a token's row, or its gradient, on its way to an expert */
/* words.c: conversions of a layer's values to 8 bits and back, of operator i: forward, when it runs again, and
 * backward; kernels, and seconds.  NULL: there are none.  Bytes of rows in 8 bits, in parts side by side */
struct cost_words {
    struct backward plan;
    uint32_t again;       /* what it was made of */
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
/* bytes that one microbatch leaves on a stage; eager: with the copies of operators that are not fused */
double cost_stage_keep(const struct cost *c, const struct cost_shape *s, uint32_t stage, bool eager);
/* of them, what is kept in host memory meanwhile; 0 unless activations are offloaded */
double cost_stage_parked(const struct cost *c, const struct cost_shape *s, uint32_t stage);
/* what a microbatch leaves in llmrun's rings from I to W */
double cost_stage_late(const struct cost *c, const struct cost_shape *s, uint32_t stage);
uint32_t cost_stage_rank(const struct decision *d, uint32_t stage);
bool cost_ends_meet(const struct decision *d); /* has the last stage's rank the first stage, too? */
/* the j-th of the vpp stages of rank r */
uint32_t cost_rank_stage(const struct decision *d, uint32_t r, uint32_t j);
/* the stage's layers as runs of equal blocks: length of the run at its layer i, and its block */
uint32_t cost_run(const struct cost_shape *s, const struct stage *st, uint32_t i);
const struct cost_block *cost_layer(const struct cost_shape *s, const struct stage *st, uint32_t i);
/* sums by pipeline rank, and the stages' times for pipeline.c and the run of actions */
void cost_pipeline(const struct cost *c, const struct cost_shape *s, struct cost_stage *ranks,
                   struct pipeline_stage *stages, struct pipeline_times *times);
void cost_clear_transfers(const struct decision *d, struct pipeline_stage *stages);
/* stages' times without copies to host memory, which cost_pipeline() has beside them */
void cost_clear_copies(const struct cost *c, const struct cost_shape *s, struct pipeline_stage *stages);
/* the step's items from a pipeline of pipeline_s seconds, of which free_s are left if transfers cost nothing */
void cost_step(const struct cost *c, const struct cost_stage *ranks, double pipeline_s, double free_s,
               struct estimate *e);
/* The same in parts: what no schedule of the stages changes, no more than of the same stages with layers that
 * recompute; what ZeRO and shards leave alone; both with a pipeline's seconds.  For schedules that are too
 * long to be run. */
void cost_tail(const struct cost *c, const struct cost_stage *ranks, struct estimate *e); /* dp_comm_s, optimizer_s */
/* least.c: seconds of a run of actions with what travels beside them, of times with moves, from below: beyond
 * the actions alone; the same where layers recompute more, to be added to a bound that knows of it; of the
 * whole run.  longer: any of the layers may recompute more than times' do. */
struct cost_least {
    double beside_s, beside_longer_s, whole_s;
};
struct cost_least cost_least(const struct cost *c, const struct pipeline_times *times, bool longer);
/* Actions no longer than with what travels beside them, into stages, one for each of times'; returns seconds
 * that the run takes at least beyond these alone, 0: they are the same. */
double cost_least_stretch(const struct cost *c, const struct pipeline_times *times, struct pipeline_stage *stages);
/* does the decision's schedule run gradients of inputs and of weights apart? */
bool cost_splits(const struct decision *d);
/* prefetch.c: uses ahead that ZeRO 3 gathers parameters, as the decision says or its shape suggests */
uint32_t cost_uses_ahead(const struct cost *c, const struct cost_shape *s);
/* elements of the embedding's table that the last stage's rank has a copy of, for prediction modules */
double cost_copied_table(const struct cost *c, const struct cost_shape *s);
/* moves.c: what travels beside the actions of a pipeline, into times; ranks: their sums */
void cost_moves(struct arena *a, const struct cost *c, const struct cost_shape *s, const struct cost_stage *ranks,
                struct pipeline_times *times);
/* Who sums what of one kind of bucket: over which ranks it is split, over which the parts are summed then. Of
 * dense buckets, of weights of key heads that ranks of tp hold copies of, of experts; the same for all stages
 * of a ZeRO level and shard. */
struct cost_mover {
    struct cost_group shard, replicas;
    double gradient, parameter; /* bytes of an element on its way */
    double sum;                 /* of a gradient where microbatches are added up */
    double slow;                /* of ZeRO 3's transfers, as the profile has them */
    double bucket;              /* elements that travel at a time, whatever pieces they are of; 0: pieces */
};
struct cost_movers {
    struct cost_mover dense, keys, experts;
};
struct cost_movers cost_movers(const struct cost *c);
void cost_moves_by(struct arena *a, const struct cost *c, const struct cost_shape *s, const struct cost_stage *ranks,
                   const struct cost_movers *by, struct pipeline_times *times);
/* Seconds of copies of what a layer keeps to host memory, or back; fetch_s: of what weights need, back.  received: its
 * input is another rank's output, which stays. */
double cost_park_s(const struct cost *c, const struct cost_shape *s, const struct cost_block *b, bool received,
                   double *fetch_s);
/* copies.c: the same value by value; n: how many */
const struct pipeline_copy *cost_copies(struct arena *a, const struct cost *c, const struct cost_shape *s,
                                        const struct cost_block *b, bool received, double park_s, double fetch_s,
                                        uint32_t *n);
/* elements of parameters and gradients that travel at a time, of whatever pieces of the model; 0: a piece's */
double cost_bucket(const struct cost *c);
/* of a pipeline rank; what all ranks sum of the norm between */
struct pipeline_update cost_rank_update(const struct cost *c, const struct cost_stage *ranks, uint32_t r);
double cost_agree_s(const struct cost *c);
/* The same where a run of actions had them beside it and took beside_s longer: what the profile adds to that. */
void cost_rest(const struct cost *c, const struct cost_stage *ranks, double beside_s, struct estimate *e);
/* exposed share of an axis' transfers: as asked for, else as the stack does by itself; both are its profile's */
double cost_shown(const struct cost *c, uint32_t axis, double by_itself, double overlapped);
/* of tensor parallelism's; llmrun's plans hide them themselves */
double cost_tp_shown(const struct cost *c);
/* the sums of one stage */
struct cost_stage cost_sum_stage(const struct cost *c, const struct cost_shape *s, uint32_t stage);
/* of data-parallel transfers: what stays exposed because the profile's stack does not hide it; what hidden ones take
 * of kernels */
struct cost_seen {
    double shown_s, stolen_s;
};
struct cost_seen cost_seen(const struct cost *c, const struct cost_stage *ranks);
/* what a step takes for them and for its seam, of the stages; least: or of the same with layers that
 * recompute, from below */
double cost_seam_s(const struct cost *c, const struct cost_stage *ranks, bool least);
struct cost_body {
    double stage_forward_s, stage_backward_s, compute_s, comm_s, slow;
    double least_s; /* of a pipeline: the work of ranks that share cores; 0 where they do not */
};
struct cost_body cost_body(const struct cost *c, const struct cost_stage *ranks);
/* of slow, whatever the stages: other recomputation may give them more slack */
double cost_slow_least(const struct cost *c);
void cost_items(const struct cost_body *x, double pipeline_s, double free_s, struct estimate *e);
/* time and memory of c->decision from its shape; ranks and stages: scratch, one of each */
void cost_time(const struct cost *c, const struct cost_shape *s, struct cost_stage *ranks,
               struct pipeline_stage *stages, struct estimate *e);
void cost_memory(const struct cost *c, const struct cost_shape *s, struct estimate *e);
/* memory alone, of one pipeline rank; cost_memory() is that of the fullest */
void cost_rank_memory(const struct cost *c, const struct cost_shape *s, uint32_t r, struct estimate *e);
/* Bytes of parameters, gradients and optimizer state that some rank holds at least, however the model is cut; from the
 * decision's pp, zero and shard and the shape without recomputation. */
uint64_t cost_state_least(const struct cost *c, const struct cost_shape *s);
/* the same of all pipeline ranks together, without what a stack takes for itself */
double cost_state_all(const struct cost *c, const struct cost_shape *s);
struct own_stages; /* what stages of a decision come to, of equal ones once */
struct own_stages *cost_stages_new(struct arena *a);
/* the same rank by rank of one decision, whose stages may spare more or fewer layers from call to call */
struct cost_held {
    double dense, experts,
        largest;            /* of a block: parameter elements, buckets padded; of both what is gathered at a time */
    double own, vectors[2]; /* of dense: matrices; vectors split over tp, whole */
    /* those that stay until the update, without vectors': of matrices, of experts, of tables that a block in front
     * completes or another rank; are they summed between ranks once complete; all of them after all other actions of
     * the step */
    double gradients[3];
    bool sums[3], tied;
    double begun; /* the head's, whose first product a prediction module begins with, and which the head completes */
    double made, part;          /* gradients of a microbatch that are scattered; a rank's part of them */
    double state, expert_state; /* elements whose state this rank has, of matrices and of experts; */
    double whole_state;         /* of matrices that are whole on every rank of tp */
};
#define COST_HELD 8
struct cost_rooms {
    const struct cost *c;
    const struct cost_shape *s;
    double parameter, gradient, copy, state; /* bytes per parameter element; of gradients, at least */
    double made, reduced;                    /* of a gradient as it is made, as it is summed between ranks */
    double place;                            /* of state that is fetched from the host */
    double limit, buckets;                   /* bytes of the GPU; elements that buckets are padded to */
    uint64_t communicator_bytes;
    bool splits, least; /* I and W; bounds for any schedule */
    double kept;        /* activations of the rank that is asked for, where they are known; else 0 */
    uint32_t expert_shard, expert_shares, ahead; /* shares: ranks that have the same experts */
    struct own_stages *known;                    /* where they are kept for the next call; NULL: nowhere */
    uint32_t nlayers;                            /* distinct ones that are here */
    struct cost_held layers[COST_HELD], embed, head, predict;
};
void cost_rooms_init(struct cost_rooms *x, const struct cost *c, const struct cost_shape *s);
/* from here on stages are kept, for as long as the decision is the same but for layers that are spared */
void cost_rooms_keep(struct cost_rooms *x, struct own_stages *known);
void cost_rooms_rank(const struct cost_rooms *x, uint32_t r, struct estimate *e);
/* does it need no more than most_bytes?  By how much more or less is not told. */
bool cost_rooms_within(const struct cost_rooms *x, uint32_t r, uint64_t most_bytes, struct estimate *e);
/* Another schedule that holds as many microbatches may give some bytes back earlier, and another shard be
 * smaller: of what a rank of llmrun's has beside state, the share that all take
 * (tests/compiler/search/test_certificate.c). */
#define LEAST_OWN 0.9
/* No more than the rooms of any decision of c's ZeRO level, whose shards are at most c's: buckets without
 * padding, parameters gathered one use ahead. */
void cost_rooms_least(struct cost_rooms *x, const struct cost *c, const struct cost_shape *s);
/* buffers that a rank has at least for one layer of a kind, under any schedule; temporary: those of its kernels */
double cost_layer_buffers(const struct cost_rooms *x, uint32_t kind, double temporary);
/* of the fullest rank; false: some rank needs more than most_bytes, by how much is not told */
bool cost_rooms_fullest(const struct cost_rooms *x, uint64_t most_bytes, struct estimate *e);

/* measured.c: of the cluster file, 0 or NULL = nothing: operations per second of a product; its seconds as a multiple
 * of a formula's; the nearest attention; seconds of a memory-bound instruction */
double cost_measured_product_flop_s(const struct cost *c, double m, double n, double k, enum cost_number number);
double cost_measured_product_share(const struct cost *c, double m, double n, double k, enum cost_number number,
                                   double (*formula_s)(const struct cost *c, const struct topo_point *at,
                                                       void *context),
                                   void *context);
const struct topo_point *cost_measured_attention(const struct cost *c, double places, double head,
                                                 enum cost_number number);
double cost_measured_stream_s(const struct cost *c, enum op op, double bytes, bool half);
double cost_crowd(const struct cost *c);

/* joined.c: are instructions priced as a GPU does them together, and the bytes that this one then does not move */
bool cost_joins(const struct cost *c);
double cost_joined_bytes(const struct program *p, const struct insn *x);

#endif
