#ifndef LLMC_BLOCK_PRIVATE_H
#define LLMC_BLOCK_PRIVATE_H

/* Shared by the files that compute a block's seconds: block.c, block_tp.c (tensor parallelism), block_context.c
 * (attention), block_experts.c. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/walk.h"
#include "compiler/model/backward.h"

struct block {
    const struct cost *c;
    const struct decision *d;
    const struct expansion *e;
    enum dtype dtype;
    double element, tokens, rows; /* tokens of a microbatch on this rank; rows of a TOKENS value (split under SP) */
    double sequence;
    uint32_t cuts, runs; /* the number of parts that rows are cut into: of products, whose transfers then overlap; of
                          * a rank's own rows */
    double own_s, own_again_s; /* forward kernels on a rank's own rows since the last other kernel, over all parts; of
                                * them, what is recomputed */
    const struct cost_words *words; /* NULL: nothing is kept in 8 bits */
    struct backward plan;           /* only where something is recomputed */
    double forward_kernels, backward_kernels;
    double forward_graphed, backward_graphed; /* of these, what CUDA graphs save the host */
    double copies_s; /* where the backward pass is split: copies of gradients of the residual stream, which weight
                      * gradients need later */
    double fixed_forward_s, fixed_backward_s; /* of kernels: counting and sorting of experts' rows, by the profile */
    bool exchanges_apart;     /* rows to experts may use another queue than this block's other transfers */
    enum walk_queue tp_queue; /* of transfers over tp */
    struct walk walk;
    struct decision whole; /* c's decision without recomputation, where d points to it */
    struct cost_block out;
};

/* The exposed share of an axis' transfers. */
double block_shown(const struct block *b, uint32_t axis, double by_itself, double overlapped);
double block_value_bytes(const struct block *b, uint32_t v);
/* Adds seconds of n forward and nb backward kernels; again: the forward kernels run once more in recomputation. */
void block_add_time(struct block *b, double forward, double n, double backward, double nb, bool again);
/* Adds n forward kernels that run once more. */
void block_add_again(struct block *b, double seconds, double n);
/* Adds exposed transfers of the backward pass, which the pass for input gradients has as well where the backward
 * pass is split. */
void block_add_backward_comm(struct block *b, double seconds);
/* Does the backward pass run operator o once more? */
bool block_recomputes(const struct block *b, const struct opr *o);
/* Seconds of an activation function that moves `bytes` bytes, or of its gradient (back). */
double block_act_s(const struct block *b, enum act act, bool back, double bytes);
void block_attention(struct block *b, const struct opr *o);
void block_experts(struct block *b, const struct opr *o);

/* The number of parts in which each of an operator's three products runs; whole: its weight is on every rank. */
void block_cut_products(const struct block *b, const struct opr *o, bool whole, uint32_t parts[3]);
/* Adds the transfers around a product over tp.  out, in: bytes of its whole output and input; seconds: of all parts
 * of its products. */
void block_tensor_parallel(struct block *b, const struct opr *o, double out, double in, double forward_s,
                           double input_s, double weight_s);
void block_keys(struct block *b, const struct opr *o, double forward_s, double backward_s, bool again);
/* Where rows are cut: does an operator process the rank's rows part by part? */
bool block_on_own_rows(const struct block *b, const struct opr *o);
/* Adds the forward kernels on a rank's own rows, collected so far, to the walk. */
void block_flush_own(struct block *b);

#endif
