#ifndef LLMC_FIT_H
#define LLMC_FIT_H

/* Chooses, among the candidates that the search found, the plan whose placed arena fits the devices. */

#include "compiler/compile.h"
#include "compiler/search/search.h"

/* Returns in *plan, lowered, placed and simulated, the candidate of `found` with the shortest simulated step among
 * those whose placed arena fits, or a simpler one that is slower by a fraction of a percent.  Where none fits,
 * repeats the search for less memory, keeping `top` candidates.
 *
 * Afterwards each compiled candidate of `found` holds its placed bytes and simulated seconds, and found->least is no
 * more than the objective of the fastest plan compiled.  STATUS_NO_PLAN, after a diagnostic, where nothing fits;
 * STATUS_BUG where a lowered step deadlocks. */
enum status fit_plan(struct arena *a, struct diag *d, struct job *job, struct topo *topo, struct search_result *found,
                     uint32_t top, const struct compile_options *o, struct plan **plan);

/* Is the capacity for expert rows (`expert_room`) left open, by a model with experts that may drop no tokens? */
bool fit_room_is_open(const struct job *job);

/* Compiles one decision with the largest capacity for expert rows that fits in memory.  Capacity below the usual is
 * accepted only where the job's wishes allow it (tight_experts).  *placed: bytes of the fullest arena.  NULL where
 * they exceed the memory, or, with the reason in *why, where the lowered step deadlocks, which is a bug. */
struct plan *fit_decision(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                          const struct compile_options *o, uint64_t *placed, const char **why);

/* the job's objective: seconds of a step, or GPU-seconds of a step */
double fit_worth(const struct job *job, double step_s, const struct decision *d);

/* bytes of device memory that the fullest role's arena takes */
uint64_t fit_peak_bytes(const struct plan *p);

#endif
