#ifndef LLMC_FIT_H
#define LLMC_FIT_H

/* From the candidates that the search found to the plan whose arena fits the devices. */

#include "compiler/llmc.h"

/* The first candidate whose placed arena fits, lowered, placed and simulated.  STATUS_NO_PLAN after a diagnostic where none
 * does, STATUS_BUG where a lowered step gets stuck. */
enum status fit_plan(struct arena *a, struct diag *d, struct job *job, struct topo *topo, const struct search_result *found,
                     const struct compile_options *o, struct plan **plan);

/* of the fullest role */
uint64_t fit_peak_bytes(const struct plan *p);

#endif
