#ifndef LLMC_FMT_H
#define LLMC_FMT_H

/* `llmc fmt`: the canonical form of a model file.  Four blanks per block, one statement per line, values of
 * neighbouring one-value statements in one column, comments and single blank lines kept, lines broken at 110
 * columns. Formatting what is canonical already changes nothing. */

#include "compiler/support/arena.h"
#include "compiler/support/diag.h"

/* The text in the arena; NULL after a syntax error, which is in the diagnostics. */
char *fmt_text(struct arena *a, struct diag *d, const struct source *source);

#endif
