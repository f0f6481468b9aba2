#ifndef LLMC_FIT_H
#define LLMC_FIT_H

/* From the candidates that the search found to the plan whose arena fits the devices. */

#include "compiler/compile.h"
#include "compiler/search/search.h"

/* The fastest by simulation of the candidates whose placed arena fits, lowered, placed and simulated, or a plainer one within a
 * fraction of a percent; searches for less memory where none fits, keeping `top` candidates.  Those of `found` that were
 * compiled say afterwards what came out, and `least` is no more than the fastest of them.  STATUS_NO_PLAN after a diagnostic
 * where nothing fits, STATUS_BUG where a lowered step gets stuck. */
enum status fit_plan(struct arena *a, struct diag *d, struct job *job, struct topo *topo, struct search_result *found,
                     uint32_t top, const struct compile_options *o, struct plan **plan);

/* does nobody say how much room there is for experts' rows? */
bool fit_room_is_open(const struct job *job);

/* The plan of one decision, with as much room for experts' rows as fits, which may be less than usual only where the job's wishes
 * let it be tight; `placed` are the bytes of its fullest arena.  NULL
 * where they are too many, or, with the reason in `why`, where the lowered step gets stuck, which is a bug. */
struct plan *fit_decision(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                          const struct compile_options *o, uint64_t *placed, const char **why);

/* what the job minimises: seconds or GPU-seconds of a step */
double fit_worth(const struct job *job, double step_s, const struct decision *d);

/* of the fullest role */
uint64_t fit_peak_bytes(const struct plan *p);

#endif
