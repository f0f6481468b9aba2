#ifndef LLMC_LESSON_H
#define LLMC_LESSON_H

/* `llmc estimate --formulas`: what is behind each figure of an estimate, with this job's values in it, for whoever
 * wants to learn or to check.  No figure is computed here a second time: values are those of the estimate and what went
 * into it.  Beside the bubble stands the textbook's share. */

#include "compiler/search/search.h"
#include "compiler/support/strbuf.h"

#include <stdio.h>

void lesson_print(const struct job *job, const struct topo *topo, const struct candidate *c, FILE *out);
/* prints the member "formulas", with a comma before it */
void lesson_json(const struct job *job, const struct topo *topo, const struct candidate *c, struct strbuf *out);

#endif
