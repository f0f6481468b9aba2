#ifndef LLMC_DIFF_H
#define LLMC_DIFF_H

/* `llmc diff DIR TRACE`: what a run really took (llmrun --trace) against the simulated step, by kind of instruction and
 * instruction by instruction. */

#include "compiler/emit/plan.h"

/* Prints the comparison.  STATUS_INPUT and one sentence if the file is no trace of this plan.  A timeline is needed. */
enum status diff_trace(struct arena *a, const struct plan *p, const char *path, bool json, FILE *out,
                       struct error *error);

#endif
