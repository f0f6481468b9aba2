#ifndef LLMC_LOWER_SHARD_H
#define LLMC_LOWER_SHARD_H

/* Private to the lowering: parameters and gradients that ranks hold in shards. */

#include "compiler/lower/state.h"

/* params.c: buckets, tensors, persistent buffers */
void lower_params(struct lower *l);

/* shard.c: buckets as flat matrices, this rank's shard of them; gradient reduction; ZeRO 2 and 3 */
struct mat lower_flat(uint32_t buffer, enum dtype dtype, uint64_t elements);
struct mat lower_own_param(struct lower *l, uint32_t bucket);
struct mat lower_own_gradient(struct lower *l, uint32_t bucket);
bool lower_reduces(const struct lower *l, uint32_t bucket);
/* NULL: the piece has no part in that bucket */
const struct shard_part *lower_shard_part(const struct piece *pc, uint32_t bucket);
/* makes the buffers of gathered parameters and unreduced gradients */
void lower_shards(struct lower *l, const struct schedule *s);
void lower_gather_first(struct lower *l);
/* Called before a piece's parameters are read, and before its gradients are written; lower_close_gradients() adds
 * pending shards to their sums, at the latest in the optimizer. */
void lower_open_params(struct lower *l, uint32_t piece);
void lower_open_gradients(struct lower *l, uint32_t piece);
void lower_close_gradients(struct lower *l);
/* lower_bucket_scatter(): reduce-scatters one microbatch's gradient.  lower_bucket_reduce(): reduces the sum over
 * microbatches where it is kept whole, or whatever reductions are left for a scattered one. */
void lower_bucket_scatter(struct lower *l, uint32_t piece, uint32_t bucket, bool last);
void lower_bucket_reduce(struct lower *l, uint32_t bucket);

#endif
