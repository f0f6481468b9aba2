#ifndef LLMC_COST_LIVES_H
#define LLMC_COST_LIVES_H

/* Inside of the memory of llmrun's blocks: stores, and instructions that read and write them.  lives.c follows the
 * passes, lives_rules.c and lives_experts.c have the instructions of each kind of operator. */

#include "compiler/cost/cost_private.h"
#include "compiler/model/backward.h"
#include "compiler/model/expert_rows.h"
#include "compiler/support/vec.h"

#define LIVES_AUX 6
#define LIVES_MOVING 8
#define LIVES_WIDTHS 4
/* whole rows of what is split: inputs of products, gradients of their outputs, sums of ranks' parts, rotated keys;
 * programs have one of each width */
enum lives_whole { WHOLE_INPUT, WHOLE_GRADIENT, WHOLE_PART, WHOLE_KEYS, NWHOLES };
#define LIVES_EXPERTS_ACT 2 /* of OPR_EXPERTS: the activation's output */
enum { LIVES_INPUT = 1, LIVES_WEIGHT = 2 };

struct lives_store {
    double bytes;
    bool parks;          /* kept in host memory between a layer's passes */
    bool beside, counts; /* statistics of an operator; integers or doubles */
};
struct lives_touch {
    uint32_t store;
    bool reads, writes, covers; /* covers: writes all of it, and needs nothing that was there */
};
/* opr: whose it is; again: of what runs again in front of the pass; moves: a transfer's begin or end; parts: of the
 * time of its operator's products, 0: it is none */
struct lives_insn {
    uint32_t touch; /* its first */
    uint32_t opr;
    bool again, moves;
    float parts;
};
struct lives_pass {
    VEC(struct lives_touch) touches;
    VEC(struct lives_insn) insns;
    uint32_t
        begun[2];  /* the instructions that are the first to make gradients of matrices, of experts; NONE: none does */
    uint32_t used; /* the last one that reads parameters as they were gathered; NONE: none does */
    uint32_t made; /* the last one that makes gradients; NONE: none does */
};
struct lives {
    struct arena *arena;
    const struct cost *c;
    const struct decision *d;
    const struct expansion *e;
    enum lives_kind kind;
    uint32_t again;
    uint32_t opr; /* the one that is followed */
    struct backward plan;
    double element, tokens, local; /* rows of a microbatch: whole; of this rank's TOKENS values */
    bool sp;
    uint32_t nodes; /* that experts' rows travel to once, 1: straight */
    VEC(struct lives_store) stores;
    struct lives_pass pass; /* the one that is written down */
    /* stores, or NONE; kept: from the forward pass on; value, aux, gradient: of this pass; late: between I and W */
    uint32_t *kept, *value, *gradient, *late_value, *late_gradient, *late;
    uint8_t *eight; /* by value: parts in 8 bits, as the backward pass has it; 0: the numbers */
    uint32_t *kept_words, *late_words, *words; /* stores of these */
    uint32_t (*kept_aux)[LIVES_AUX], (*aux)[LIVES_AUX];
    uint32_t tokens_store, targets_store, stream; /* stream: of the residual stream's gradient */
    uint32_t choices_gradient;
    struct cost_parked *each; /* NULL: nobody asks for them */
    uint32_t nparked;
    struct arena *levels_arena; /* NULL: nobody asks for levels; else: */
    struct cost_levels *levels;
    struct lives_order {
        struct walk_strand strand;
        uint32_t first;  /* the first step that needs what another rank has sent */
        double *seconds; /* of kernels, by operator, those of what runs again behind them */
    } order[2];          /* of F and B */
    bool *has;           /* by value: its gradient has a first contribution */
    uint32_t halves;
    bool recomputing, undivided, sizing; /* sizing: the first pass, which says how much workspace there must be */
    const struct moe *moe;               /* of `rows` */
    struct expert_rows rows;
    double workspace; /* the most that an instruction needs besides */
    /* the queue of transfers within a layer: instructions in front of its next one; its last transfers, as far as
     * nothing has used what they bring */
    uint32_t queue_at, nmoving;
    struct {
        double cols;
        uint32_t store;
    } whole[NWHOLES][LIVES_WIDTHS];
    struct {
        uint32_t to, from;
    } moving[LIVES_MOVING];
};

/* the most bytes behind the last product of a pass that makes gradients, and from its last transfer on */
struct lives_ends {
    double made, moved;
};
uint32_t lives_store(struct lives *l, double bytes);
/* the steps of the block's F and B, in their order */
void lives_find_order(struct lives *l);
/* The most bytes at a time.  live: by store, what is still needed behind the pass; then, what it needs of what was
 * before. parts: the same by what has been made and used (cost_lives.backward_of), or NULL; levels: the pass in steps,
 * or NULL. */
double lives_most(const struct lives *l, const struct lives_pass *p, bool *live, double *parts, struct lives_ends *ends,
                  struct cost_levels *levels);
/* bytes that transfers bring before a pass has any kernel */
double lives_ahead(const struct lives *l, const struct lives_pass *p);
uint32_t lives_rows(struct lives *l, double rows, double cols);
uint32_t lives_whole(struct lives *l, enum lives_whole kind, double cols);
/* an instruction, and then what it touches; part: writes some of it */
void lives_insn(struct lives *l);
/* one that makes gradients of a block's matrices, or of its experts; one that reads them */
void lives_makes(struct lives *l, bool experts);
void lives_uses(struct lives *l);
/* the last one is so many products of its operator's */
void lives_takes(struct lives *l, float parts);
void lives_read(struct lives *l, uint32_t store);
void lives_write(struct lives *l, uint32_t store);
void lives_part(struct lives *l, uint32_t store);
void lives_give(struct lives *l, uint32_t store, bool adds);
/* one that writes a store from another, or changes one in place */
void lives_move(struct lives *l, uint32_t to, uint32_t from);
void lives_update(struct lives *l, uint32_t store);
/* By the queue of transfers: `from` is taken until something uses `to`.  early: begins as soon as that queue is free
 * and `from` is there and `to` is free, in front of what was written down before.  from: NONE, if it is of another
 * block. */
void lives_transfer(struct lives *l, uint32_t to, uint32_t from, bool early);

double lives_cols(const struct lives *l, uint32_t v);
double lives_key_heads(const struct lives *l, const struct attn *t); /* of a rank */
double lives_value_rows(const struct lives *l, uint32_t v);
uint32_t lives_value(struct lives *l, uint32_t v);
/* as the backward pass reads it: expanded, where it is kept in 8 bits */
uint32_t lives_kept(struct lives *l, uint32_t v);
uint32_t lives_aux(struct lives *l, uint32_t opr, uint32_t k, double bytes);
uint32_t lives_gradient(struct lives *l, uint32_t v, bool *adds);
uint32_t lives_output_gradient(struct lives *l, uint32_t v);

void lives_forward(struct lives *l, uint32_t opr);
void lives_backward(struct lives *l, uint32_t opr);
void lives_router(struct lives *l, uint32_t opr);
void lives_router_back(struct lives *l, uint32_t opr);
void lives_experts(struct lives *l, uint32_t opr);
void lives_experts_back(struct lives *l, uint32_t opr);
void lives_context(struct lives *l, uint32_t opr);
void lives_context_back(struct lives *l, uint32_t opr);

#endif
