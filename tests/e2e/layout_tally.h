#ifndef LLMC_LAYOUT_TALLY_H
#define LLMC_LAYOUT_TALLY_H

/* How often each value of each dimension occurred in drawn layouts: a generator that never draws something
 * tests nothing of it.  A value counts only where it means something: a schedule with several pipeline ranks,
 * a way to attend with cp > 1. */

#include "compiler/model/decision.h"

enum { TALLY_ROWS = 128 };
struct layout_tally {
    uint32_t layouts, nrows;
    uint32_t count[TALLY_ROWS]; /* by row, in the order of tally_layout() */
};

/* one more layout; `job` with the wishes that it was drawn under */
void tally_layout(struct layout_tally *t, const struct job *job, const struct decision *d);
void tally_add(struct layout_tally *to, const struct layout_tally *t);
/* a table on stdout */
void tally_print(const struct layout_tally *t);
/* rows of the three kinds of models together that occurred less often than `least`, each named on stdout */
uint32_t tally_rare(const struct layout_tally *t, uint32_t least);

#endif
