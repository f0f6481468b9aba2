#ifndef LLMC_SEARCH_CANDIDATES_H
#define LLMC_SEARCH_CANDIDATES_H

/* Private to the files of search/: what was found, what is better, and what was counted. */

#include "compiler/search/state.h"

/* the stricter of the limits 'step_time' and 'finish' in seconds per step; INFINITY without either */
double search_limit_s(const struct searching *s);
double search_objective(const struct searching *s, double step_time_s, uint32_t gpus);
/* objective of the worst candidate kept; INFINITY while fewer than `top` are kept */
double search_worst(const struct searching *s);
/* objective of the best candidate; INFINITY while there is none */
double search_best(const struct searching *s);
/* keeps a complete, feasible and timed decision if it is among the best */
void search_keep(struct searching *s, const struct candidate *c);
/* a candidate's objective with what its departures from the plain layout must gain; which of two comes first (< 0) */
double search_priced(const struct searching *s, const struct candidate *c);
int search_compare(const struct searching *s, const struct candidate *x, const struct candidate *y);
void search_copy(struct searching *s, const struct candidate *c, struct candidate *own); /* its stages as well */
uint64_t search_dimension_value(const struct decision *d, enum dimension k);

/* are they equal except in order of axes, state, context kind, recomputation, and schedules of one placement? */
bool search_alike(const struct decision *x, const struct decision *y);

/* Is it certain that something will be found?  Then the closest miss is not needed. */
bool search_found(const struct searching *s);
/* Counts x, which does not fit, and remembers it if it is the closest miss. */
void search_too_full(struct searching *s, const struct candidate *x);
/* bytes of a rank from which on it is of no interest: the memory, or, as long as nothing is found, the closest miss */
uint64_t search_miss_bytes(const struct searching *s);

/* count.c: counts an evaluated configuration of the space, once; computes the sizes of the space when the search is
 * over */
void search_count(struct searching *s, const struct decision *d);
void search_count_space(struct searching *s);
/* can schedule k of the space run a pipeline with d's ranks and microbatches? */
bool search_schedule_applies(const struct searching *s, const struct decision *d, uint32_t k);

#endif
