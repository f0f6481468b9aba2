#ifndef LLMC_TRACE_H
#define LLMC_TRACE_H

/* `llmc trace`: the simulated step as Chrome trace JSON, for ui.perfetto.dev and chrome://tracing, or the same in
 * Perfetto's own form, a twentieth of the size.
 *
 * One process per rank (pid = rank), one thread per queue, one for whole actions and one for idle time by its cause; a
 * counter of live bytes. "X" events of a thread do not overlap and ascend in time; a flow arrow ("s", "f") per send
 * whose receiver is written, too.  Times are in microseconds with three decimals, so nanoseconds are exact.  otherData
 * holds the figures of plan.json. */

#include "compiler/emit/plan.h"

/* ranks: distinct and ascending; NULL: the first rank of every role */
void trace_write(const struct plan *p, const uint32_t *ranks, uint32_t nranks, bool perfetto, FILE *out);

/* Parses "0,8-15" or "all" into an ascending array without repeats in the arena.  false, with a sentence in *why, if
 * the text is malformed. */
bool trace_parse_ranks(struct arena *a, const char *text, uint32_t world, uint32_t **ranks, uint32_t *nranks,
                       const char **why);

/* Writes planned times for `llmrun --paced`: "llmc-times 1 ROLES STEP_NS", then per role the number of its
 * instructions and the nanoseconds that each takes. */
void trace_times(const struct plan *p, FILE *out);

#endif
