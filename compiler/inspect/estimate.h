#ifndef LLMC_ESTIMATE_H
#define LLMC_ESTIMATE_H

/* `llmc estimate`: what the search predicts, as a table for people or the object of the contract. */

#include "compiler/emit/plan.h"
#include "compiler/search/search.h"
#include "runtime/status.h"

struct strbuf;

/* best candidate itemised, then the runners-up, one line each */
void estimate_print(const struct job *job, const struct topo *topo, const struct search_result *r, FILE *out);
/* the contract's keys for the best candidate; "search" with seconds; "candidates": the others in short */
void estimate_json(const struct job *job, const struct topo *topo, const struct search_result *r,
                   struct strbuf *out);

struct predicted estimate_predicted(const struct job *job, const struct topo *topo, const struct candidate *c);
/* "megatron-core", the profile, and a warning where the GPUs' kernels are not calibrated by any measured run
 */
const char *estimate_basis(struct arena *a, const struct job *job, const struct topo *topo,
                           const struct decision *d);

#endif
