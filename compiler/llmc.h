#ifndef LLMC_LLMC_H
#define LLMC_LLMC_H

/* All passes in order, from a checked job and cluster to a verified plan in memory. */

#include "compiler/compile.h"
#include "compiler/search/search.h"
#include "compiler/verify/verify.h"

enum { COMPILE_TOP = 16 }; /* candidates that are kept where nobody says how many */

/* The best plan that fits.  STATUS_NO_PLAN after diagnostics when nothing satisfies the constraints; STATUS_BUG and the
 * verdict when what was lowered does not verify. */
enum status compile_job(struct arena *a, struct diag *d, struct job *job, struct topo *topo, const struct compile_options *o,
                        struct plan **plan, struct verdict **verdict);

/* The same without the proofs: what a plan of these inputs and bounds is.  found: NULL, or the search that it comes from, also
 * where no plan did (STATUS_NO_PLAN). */
enum status compile_best(struct arena *a, struct diag *d, struct job *job, struct topo *topo,
                         const struct compile_options *o, struct plan **plan, struct search_result **found);
/* The figures of the search that p comes from, which kept `top` candidates.  Its gap is the plan's: between its simulated
 * step and the least that the search's bounds leave to any other decision. */
struct plan_search compile_found(const struct plan *p, const struct search_result *found, uint32_t top);

#endif
