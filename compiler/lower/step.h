#ifndef LLMC_LOWER_STEP_H
#define LLMC_LOWER_STEP_H

/* Private to the lowering: what a role's program consists of beside its operators: chunks and pieces, the beginning of
 * a step and its end, and actions that are copies of earlier ones. */

#include "compiler/lower/state.h"

/* pieces.c: the role's chunks and pieces; step block and metrics; step buffers */
void lower_chunks(struct lower *l, const struct schedule *s);
void lower_blocks(struct lower *l);
/* After all instructions: scratch memory for kernels that need more than their operands.  train: NULL, or the
 * training program. */
void lower_workspace(struct lower *l, const struct program *train);
void lower_step_buffers(struct lower *l);
/* "embed", "head", or the layer's number after a prefix */
const char *lower_piece_name(const struct lower *l, uint32_t piece, const char *layer);

/* optimizer.c: the beginning of a step, and the optimizer */
void lower_head_of_step(struct lower *l);
void lower_first_seam(struct lower *l);
void lower_optimizer(struct lower *l);
void lower_copy(struct lower *l, struct mat to, struct mat from); /* on the copy queue */
void lower_metrics_reduce(struct lower *l);
/* words of the metrics block */
struct mat lower_metric(const struct lower *l, uint32_t first, uint32_t n);
/* fp16's loss scale, the factor that gradients start from */
struct mat lower_loss_factor(const struct lower *l);

/* repeat.c: writes an action (or a pair) as copies of what an earlier one wrote; false: it must be written, then
 * remembered */
bool lower_repeat(struct lower *l, const struct schedule *s, const struct action *a);
void lower_remember(struct lower *l, const struct schedule *s, const struct action *a, uint32_t first);

#endif
