#ifndef LLMC_FIT_H
#define LLMC_FIT_H

/* From the candidates that the search found to the plan whose arena fits the devices. */

#include "compiler/llmc.h"

/* The fastest by simulation of the candidates whose placed arena fits, lowered, placed and simulated; searches for less memory
 * where none does, keeping `top` candidates.  STATUS_NO_PLAN after a diagnostic where nothing fits, STATUS_BUG where a lowered
 * step gets stuck. */
enum status fit_plan(struct arena *a, struct diag *d, struct job *job, struct topo *topo, const struct search_result *found,
                     uint32_t top, const struct compile_options *o, struct plan **plan);

/* of the fullest role */
uint64_t fit_peak_bytes(const struct plan *p);

#endif
