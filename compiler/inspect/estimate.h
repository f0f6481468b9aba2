#ifndef LLMC_ESTIMATE_H
#define LLMC_ESTIMATE_H

/* `llmc estimate`: what the search predicts, as a table for people or the object of the contract. */

#include "compiler/search/search.h"
#include "runtime/status.h"

struct strbuf;

/* best candidate itemised, then the runners-up, one line each */
void estimate_print(const struct job *job, const struct topo *topo, const struct search_result *r, FILE *out);
/* the contract's keys for the best candidate; "search" with seconds; "candidates": the others in short */
void estimate_json(const struct job *job, const struct topo *topo, const struct search_result *r, struct strbuf *out);

/* The best candidate for every value of --sweep KEY=LIST (a,b,c or [a, b, c]), one row each, or a JSON array.  The model
 * file is read once per value, with KEY=VALUE after the other sets.  STATUS_USAGE for a malformed list, STATUS_INPUT
 * for values that the language refuses; values without a plan are rows that say so. */
enum status estimate_sweep(struct arena *a, struct diag *d, const char *model, const char *const *sets, uint32_t nsets,
                           const struct topo *topo, const char *sweep, uint64_t budget, bool json, FILE *out);

#endif
