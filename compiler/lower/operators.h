#ifndef LLMC_LOWER_OPERATORS_H
#define LLMC_LOWER_OPERATORS_H

/* Private to the lowering: the rules of operators, and what they share. */

#include "compiler/lower/state.h"
#include "compiler/model/expert_rows.h"

/* rules of operators (compiler/model/opr.def): forward; backward: first the input's gradient, then the weights' */
#define OPR(kind, name, reads, beside, word, meaning)                                                                  \
    void lower_##name(struct lower *l, uint32_t piece, uint32_t opr);                                                  \
    void lower_##name##_back(struct lower *l, uint32_t piece, uint32_t opr);
#include "compiler/model/opr.def"
#undef OPR
#define EXPERTS_ACT 2 /* index of the auxiliary result of OPR_EXPERTS that is the activation's output */
enum norm_kind lower_norm_kind(const struct lower *l, const struct opr *o);
uint32_t lower_normed_heads(const struct lower *l, const struct opr *o);

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

#endif
