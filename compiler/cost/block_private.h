#ifndef LLMC_BLOCK_PRIVATE_H
#define LLMC_BLOCK_PRIVATE_H

/* Between the files that make a block's seconds: block.c, block_context.c (attention), block_experts.c. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/walk.h"

struct block {
    const struct cost *c;
    const struct decision *d;
    const struct expansion *e;
    enum dtype dtype;
    double element, tokens, rows; /* tokens of a microbatch here; rows of a TOKENS value (split under SP) */
    double sequence;
    const uint8_t *again;         /* by operator: full recomputation runs it once more, because backward reads on it */
    double forward_kernels, backward_kernels;
    double copies_s; /* where the backward is split: of gradients of the residual stream, which weights need later */
    double fixed_forward_s, fixed_backward_s; /* of kernels: counting and sorting of experts' rows by the profile */
    bool exchanges_apart; /* rows to experts may go on another queue than this block's other transfers */
    struct walk walk;
    struct decision whole;                    /* c's without recomputation, where d is that */
    struct cost_block out;
};

/* exposed share of an axis' transfers */
double block_shown(const struct block *b, uint32_t axis, double by_itself, double overlapped);
double block_value_bytes(const struct block *b, uint32_t v);
/* forward and backward kernels, n of one and nb of the other; again: forward runs once more under recomputation */
void block_add_time(struct block *b, double forward, double n, double backward, double nb, bool again);
/* exposed transfers that either kind of backward pass has where it makes gradients of inputs */
void block_add_backward_comm(struct block *b, double seconds);
/* does backward run operator o once more? part: the words of selective recomputation that name it */
bool block_recomputes(const struct block *b, const struct opr *o, uint32_t part);
void block_attention(struct block *b, const struct opr *o);
void block_experts(struct block *b, const struct opr *o);

#endif
