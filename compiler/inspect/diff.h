#ifndef LLMC_DIFF_H
#define LLMC_DIFF_H

/* `llmc diff DIR TRACE`: the times that a run took (llmrun --trace) against the simulated step, by kind of
 * instruction and instruction by instruction. */

#include "compiler/emit/plan.h"

/* Prints the comparison.  STATUS_INPUT and one sentence if the file is not a trace of this plan.  Requires the
 * plan's timeline. */
enum status diff_trace(struct arena *a, const struct plan *p, const char *path, bool json, FILE *out,
                       struct error *error);

#endif
