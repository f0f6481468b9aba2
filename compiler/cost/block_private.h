#ifndef LLMC_BLOCK_PRIVATE_H
#define LLMC_BLOCK_PRIVATE_H

/* Between the files that make a block's seconds: block.c, block_tp.c (tensor parallelism), block_context.c
 * (attention), block_experts.c. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/walk.h"
#include "compiler/model/backward.h"

struct block {
    const struct cost *c;
    const struct decision *d;
    const struct expansion *e;
    enum dtype dtype;
    double element, tokens, rows; /* tokens of a microbatch here; rows of a TOKENS value (split under SP) */
    double sequence;
    uint32_t cuts, runs; /* of rows of products that transfers hide behind; of a rank's own rows */
    double own_s,
        own_again_s; /* forward kernels on these since the last of others, all runs; what of them runs again */
    const struct cost_words *words; /* NULL: nothing is kept in 8 bits */
    struct backward plan;           /* where anything is recomputed */
    double forward_kernels, backward_kernels;
    double copies_s; /* where the backward is split: of gradients of the residual stream, which weights need later */
    double fixed_forward_s, fixed_backward_s; /* of kernels: counting and sorting of experts' rows by the profile */
    bool exchanges_apart; /* rows to experts may go on another queue than this block's other transfers */
    struct walk walk;
    struct decision whole; /* c's without recomputation, where d is that */
    struct cost_block out;
};

/* exposed share of an axis' transfers */
double block_shown(const struct block *b, uint32_t axis, double by_itself, double overlapped);
double block_value_bytes(const struct block *b, uint32_t v);
/* forward and backward kernels, n of one and nb of the other; again: forward runs once more under recomputation */
void block_add_time(struct block *b, double forward, double n, double backward, double nb, bool again);
/* forward kernels that run once more */
void block_add_again(struct block *b, double seconds, double n);
/* exposed transfers that either kind of backward pass has where it makes gradients of inputs */
void block_add_backward_comm(struct block *b, double seconds);
/* does backward run operator o once more? */
bool block_recomputes(const struct block *b, const struct opr *o);
/* an activation that moves so many bytes, or its gradient */
double block_act_s(const struct block *b, enum act act, bool back, double bytes);
void block_attention(struct block *b, const struct opr *o);
void block_experts(struct block *b, const struct opr *o);

/* as how many each of an operator's three products runs, of a part of the rows; whole: its weight is on every rank */
void block_cut_products(const struct block *b, const struct opr *o, bool whole, uint32_t parts[3]);
/* transfers around a product over tp: bytes of its whole output and input, seconds of all parts of its products */
void block_tensor_parallel(struct block *b, const struct opr *o, double out, double in, double forward_s,
                           double input_s, double weight_s);
void block_keys(struct block *b, const struct opr *o, double forward_s, double backward_s, bool again);
/* where rows are cut: does an operator work on the rank's rows run by run? */
bool block_on_own_rows(const struct block *b, const struct opr *o);
/* forward kernels on a rank's own rows, so far, into the walk */
void block_flush_own(struct block *b);

#endif
