#ifndef LLMC_LOWER_BUILD_H
#define LLMC_LOWER_BUILD_H

/* Private to the lowering: matrices, slots and instructions, and the buffers behind a role's pieces, which the rules of
 * operators use. */

#include "compiler/lower/state.h"

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

/* The gradient of an operator's output.  In I it is kept for W from now on; in W it is the one that I kept. */
struct mat lower_output_gradient(struct lower *l, uint32_t piece, uint32_t value);

#endif
