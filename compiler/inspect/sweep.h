#ifndef LLMC_SWEEP_H
#define LLMC_SWEEP_H

/* `llmc estimate --sweep`: the best plan for every value of some statements, as a table or as one JSON object per
 * line. */

#include "compiler/search/search.h"
#include "runtime/status.h"

struct sweep_options {
    const char *model; /* model file, read once per row */
    uint32_t nsets, nsweeps;
    const char *const *sets, *const *sweeps; /* KEY=VALUE; KEY=A,B,C or KEY=[A, B, C] */
    uint64_t budget;
    double price;   /* dollars per GPU hour, 0 = not said */
    bool json;      /* one JSON object per row, each on a line */
    uint32_t width; /* of the table, in columns; where a plan does not fit beside the figures, it stands below */
};
/* Prints one row for every combination of the lists' values, the last list varying fastest; the search runs with
 * KEY=VALUE after the other overrides.  Rows without a plan say why.  STATUS_OK if some row has a plan, else
 * STATUS_NO_PLAN; STATUS_USAGE for a malformed list and STATUS_INPUT if the language refuses every row, both with an
 * error in d and nothing on out. */
enum status sweep(struct arena *a, struct diag *d, struct topo *topo, const struct sweep_options *o, FILE *out);

#endif
