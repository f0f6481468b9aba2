#ifndef LLMC_ORIGIN_H
#define LLMC_ORIGIN_H

/* Does a plan folder come from its own inputs?  The same model, cluster, overrides and bounds of the search give the
 * same plan to the byte, so it is made once more from the copies in the folder, and every file is compared.
 *
 * The proofs of compiler/verify/ say that programs train the model on the cluster; this says that they, and all that
 * plan.json tells of them, are what the plan block asks for and what this compiler predicts. */

#include "compiler/inspect/verdict.h"
#include "compiler/llmc.h"

/* p: as plan_read() left it; its timeline is not looked at */
struct origin *origin_check(struct arena *a, const struct plan *p);

/* parts of it, each appending to what was found */

/* does the decision obey the plan block, overrides included? (wishes.c) */
void origin_wishes(struct arena *a, const struct plan *p, struct origin *o);
/* are the files of p's folder those that q has? (files.c) */
void origin_files(struct arena *a, const struct plan *p, const struct plan *q, struct origin *o);

enum { ORIGIN_MOST = 20 }; /* differences that are kept */
/* one difference, unless there are enough */
void origin_add(struct origin *o, const struct difference *d);

#endif
