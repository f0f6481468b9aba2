#ifndef LLMC_EXPLAIN_H
#define LLMC_EXPLAIN_H

/* `llmc explain`: why this plan was chosen.  Time and memory itemised, plans that differ in one dimension and what
 * they lose, what ruled out the rest, what the answer depends on, what would be better, and how certain the choice
 * is; for a request that nothing satisfies, the smallest changes that make it satisfiable. */

#include "compiler/emit/plan.h"
#include "compiler/search/search.h"

struct explain_options {
    bool all; /* everything instead of one screen */
    bool json;
    bool colour, quiet; /* errors on stderr: in colour; not printed at all */
    uint64_t budget;    /* the search's budget, as for other commands */
    uint32_t width;     /* of lines, in columns */
};
/* plan: of a plan folder, with its timeline, or NULL to decide here.  STATUS_NO_PLAN if nothing satisfies the
 * request: the reason goes to stderr, and what would fit is printed. */
enum status explain(struct arena *a, struct diag *d, struct job *job, struct topo *topo, const struct plan *plan,
                    const struct explain_options *o, FILE *out);

#endif
