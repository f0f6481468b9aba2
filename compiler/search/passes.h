#ifndef LLMC_SEARCH_PASSES_H
#define LLMC_SEARCH_PASSES_H

/* Private to the files of search/: a search's passes, in the order in which they come. */

#include "compiler/search/state.h"

/* Makes the space and everything else that a search needs before its first step; false after an error about the
 * wishes. */
bool search_prepare(struct searching *s, struct diag *d);
/* Runs a search given arena, job, topo, emit_only, top and budget, and fills in s->result; false after an error,
 * which is about the wishes only. */
bool search_run(struct searching *s, struct diag *d);

/* branch.c: the tree of meshes, families and leaves, best bound first, after a dive (dive.c) */
void search_branch(struct searching *s);

/* finalists.c: adds candidates with synthesised schedules to those of formulas, or replaces them where 'auto' was
 * asked for */
void search_finalists(struct searching *s);

/* neighbours.c: drops wish number `which` of SEARCH_WISHES; returns its name and sets its place, or NULL if it was
 * not stated */
#define SEARCH_WISHES (NDEGREES + 10)
const char *search_drop_wish(struct job *job, uint32_t which, struct span *at);

/* leftover.c: repeats search s with at most as many GPUs as asked for, if no degrees make exactly that many; returns
 * s if nothing comes of it.  search_warn_leftover(): warns that job asked for exactly so many and s has found a plan
 * on fewer. */
struct searching *search_leftover(struct searching *s);
void search_warn_leftover(const struct searching *s, const struct job *job, struct diag *d);

/* Can the job be emitted at all?  false after an error that names what cannot. */
bool search_emit_ready(const struct searching *s, struct diag *d);
/* search.c: what launch files of the job's target cannot say of it, "target megatron-core cannot be told of a soft cap
 * of scores"; NULL: nothing */
const char *search_untold(struct arena *a, const struct job *job);
/* Reports one error that says why nothing was found and what would help. */
void search_blame(struct searching *s, struct diag *d);

#endif
