#ifndef LLMC_REPLICAS_H
#define LLMC_REPLICAS_H

/* Ranks that hold the same part of the same parameters or moments hold the same bits: nothing in a plan lets them
 * differ.  Where they do, memory or a transfer has failed without saying so. */

#include "runtime/weights.h"
#include "runtime/world.h"

/* 64-bit words of world.coverage that the ranks need for it. */
uint64_t replicas_words(const struct program *const *programs, const struct ranks *ranks);

/* All ranks of one machine compare what they hold after `step` steps; base: the first of their words.  STATUS_WORLD on
 * all of them, with a sentence that names the rank that differs from the others of its kind, or both where there are
 * two.  Nobody may change the state meanwhile. */
enum status replicas_check(struct world *w, const struct weights_place *place, uint64_t base, uint64_t step,
                           struct error *error);

#endif
