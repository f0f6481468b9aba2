#ifndef LLMC_SWEEP_H
#define LLMC_SWEEP_H

/* `llmc estimate --sweep`: the best plan for every value of some statements, as a table or as JSON lines. */

#include "compiler/search/search.h"
#include "runtime/status.h"

struct sweep_options {
    const char *model; /* file, read once per row */
    uint32_t nsets, nsweeps;
    const char *const *sets, *const *sweeps; /* KEY=VALUE; KEY=A,B,C or KEY=[A, B, C] */
    uint64_t budget;
    bool json; /* one object per row and line */
};
/* One row for every combination of the lists' values, the last list fastest; the search runs with KEY=VALUE
 * after the other sets.  Rows without a plan say why.  STATUS_OK if some row has a plan, else STATUS_NO_PLAN;
 * STATUS_USAGE for a malformed list and STATUS_INPUT where the language refuses every row, both with an error
 * in d and nothing on out. */
enum status sweep(struct arena *a, struct diag *d, struct topo *topo, const struct sweep_options *o,
                  FILE *out);

#endif
