#ifndef LLMC_COST_LIVES_H
#define LLMC_COST_LIVES_H

/* Internals of the memory model of llmrun's blocks: stores, and the instructions that read and write them.  lives.c
 * follows the passes; lives_rules.c and lives_experts.c have the instructions of each kind of operator. */

#include "compiler/cost/cost_private.h"
#include "compiler/model/backward.h"
#include "compiler/model/expert_rows.h"
#include "compiler/support/vec.h"

#define LIVES_AUX 6
#define LIVES_MOVING 8
#define LIVES_WIDTHS 4
/* Gathered rows of what sequence parallelism splits: inputs of products, gradients of their outputs, partial sums of
 * the ranks, rotated keys.  Programs have one store of each kind and width. */
enum lives_whole { WHOLE_INPUT, WHOLE_GRADIENT, WHOLE_PART, WHOLE_KEYS, NWHOLES };
#define LIVES_EXPERTS_ACT 2 /* of OPR_EXPERTS: the activation's output */
enum { LIVES_INPUT = 1, LIVES_WEIGHT = 2 };

struct lives_store {
    double bytes;
    bool parks;          /* it is in host memory between a layer's passes */
    bool beside, counts; /* statistics of an operator; of integers or doubles */
};
struct lives_touch {
    uint32_t store;
    bool reads, writes, covers; /* covers: overwrites all of it without reading what was there */
};
/* opr: the operator it belongs to; again: it is part of the recomputation before the pass; moves: a transfer's begin
 * or end; parts: the number of its operator's products that it computes, 0: it is no product. */
struct lives_insn {
    uint32_t touch; /* index of its first touch */
    uint32_t opr;
    bool again, moves;
    float parts;
};
struct lives_pass {
    VEC(struct lives_touch) touches;
    VEC(struct lives_insn) insns;
    uint32_t begun[2]; /* the first instructions that make gradients of matrices, and of experts; NONE: there is none */
    uint32_t used;     /* the last instruction that reads gathered parameters; NONE: there is none */
    uint32_t made;     /* the last instruction that makes gradients; NONE: there is none */
};
struct lives {
    struct arena *arena;
    const struct cost *c;
    const struct decision *d;
    const struct expansion *e;
    enum lives_kind kind;
    uint32_t again;
    uint32_t opr; /* the operator that is being followed */
    struct backward plan;
    double element, tokens, local; /* rows of a microbatch: all of them; those of a TOKENS value on this rank */
    bool sp;
    uint32_t nodes; /* nodes to which experts' rows are sent once each; 1: rows are sent straight */
    VEC(struct lives_store) stores;
    struct lives_pass pass; /* the pass that is being recorded */
    /* Stores by value, or NONE.  kept: from the forward pass on; value, aux, gradient: of this pass; late: between I
     * and W. */
    uint32_t *kept, *value, *gradient, *late_value, *late_gradient, *late;
    uint8_t *eight; /* by value: number of parts in 8 bits that the backward pass reads; 0: it is kept in its own
                     * format */
    uint32_t *kept_words, *late_words, *words; /* stores of the parts in 8 bits */
    uint32_t (*kept_aux)[LIVES_AUX], (*aux)[LIVES_AUX];
    uint32_t tokens_store, targets_store, stream; /* stream: the gradient of the residual stream */
    uint32_t choices_gradient;
    struct cost_parked *each; /* NULL: not requested */
    uint32_t nparked;
    struct arena *levels_arena; /* for levels; NULL: these are not requested */
    struct cost_levels *levels;
    struct lives_order {
        struct walk_strand strand;
        uint32_t first;  /* the first step that needs what another rank has sent */
        double *seconds; /* kernel seconds by operator, followed by those of the recomputation */
    } order[2];          /* of F and of B */
    bool *has;           /* by value: its gradient has a first contribution */
    uint32_t halves;
    bool recomputing, undivided, sizing; /* sizing: the first pass, which determines the size of the workspace */
    const struct moe *moe;               /* the experts that `rows` describes */
    struct expert_rows rows;
    double workspace; /* the most bytes of scratch that an instruction needs */
    /* The queue of transfers within a layer: the index of the instruction before which its next one may begin; its
     * last transfers, as long as nothing has used what they bring. */
    uint32_t queue_at, nmoving;
    struct {
        double cols;
        uint32_t store;
    } whole[NWHOLES][LIVES_WIDTHS];
    struct {
        uint32_t to, from;
    } moving[LIVES_MOVING];
};

/* Most bytes from the last product on that makes gradients, and from the last transfer of a pass on. */
struct lives_ends {
    double made, moved;
};
uint32_t lives_store(struct lives *l, double bytes);
/* Finds the order of the steps of the block's F and B. */
void lives_find_order(struct lives *l);
/* Returns the peak bytes of a pass.  live, by store: on entry what is needed after the pass, on return what the pass
 * needs from before.  parts: the same peak by kinds of moments (cost_lives.backward_of), or NULL; levels: the pass
 * step by step, or NULL. */
double lives_most(const struct lives *l, const struct lives_pass *p, bool *live, double *parts, struct lives_ends *ends,
                  struct cost_levels *levels);
/* Bytes that transfers bring before the first kernel of a pass. */
double lives_ahead(const struct lives *l, const struct lives_pass *p);
uint32_t lives_rows(struct lives *l, double rows, double cols);
uint32_t lives_whole(struct lives *l, enum lives_whole kind, double cols);
/* Adds an instruction; the calls that follow add what it touches.  lives_part(): it writes some of a store. */
void lives_insn(struct lives *l);
/* Adds an instruction that makes gradients of a block's matrices, or of its experts; one that reads these
 * parameters. */
void lives_makes(struct lives *l, bool experts);
void lives_uses(struct lives *l);
/* The last instruction computes `parts` of its operator's products. */
void lives_takes(struct lives *l, float parts);
void lives_read(struct lives *l, uint32_t store);
void lives_write(struct lives *l, uint32_t store);
void lives_part(struct lives *l, uint32_t store);
void lives_give(struct lives *l, uint32_t store, bool adds);
/* Adds an instruction that writes one store from another, or updates one in place. */
void lives_move(struct lives *l, uint32_t to, uint32_t from);
void lives_update(struct lives *l, uint32_t store);
/* Adds a transfer on its queue: `from` stays occupied until something uses `to`.  early: it begins as soon as the
 * queue is free, `from` is written and `to` is free, possibly before instructions recorded earlier.  from: NONE, if
 * it belongs to another block. */
void lives_transfer(struct lives *l, uint32_t to, uint32_t from, bool early);

double lives_cols(const struct lives *l, uint32_t v);
double lives_key_heads(const struct lives *l, const struct attn *t); /* on this rank */
double lives_value_rows(const struct lives *l, uint32_t v);
uint32_t lives_value(struct lives *l, uint32_t v);
/* The value as the backward pass reads it: expanded where it is kept in 8 bits. */
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
