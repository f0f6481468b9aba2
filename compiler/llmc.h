#ifndef LLMC_LLMC_H
#define LLMC_LLMC_H

/* All passes in order, from a checked job and cluster to a verified plan in memory. */

#include "compiler/compile.h"
#include "compiler/search/search.h"
#include "compiler/verify/verify.h"

enum { COMPILE_TOP = 16 }; /* candidates kept by default */

/* Returns in *plan the best plan that fits.  STATUS_NO_PLAN, after diagnostics, where nothing satisfies the
 * constraints; STATUS_BUG, with the verdict, where the lowered programs do not verify. */
enum status compile_job(struct arena *a, struct diag *d, struct job *job, struct topo *topo,
                        const struct compile_options *o, struct plan **plan, struct verdict **verdict);

/* The same without verification.  found: NULL, or receives the search that the plan comes from, also where no plan
 * came of it (STATUS_NO_PLAN). */
enum status compile_best(struct arena *a, struct diag *d, struct job *job, struct topo *topo,
                         const struct compile_options *o, struct plan **plan, struct search_result **found);
/* Returns the figures of the search that p comes from, which kept `top` candidates.  Their gap is the plan's own:
 * between its simulated step and the least that the search's bounds leave to any other decision. */
struct plan_search compile_found(struct arena *a, const struct plan *p, const struct search_result *found,
                                 uint32_t top);

#endif
