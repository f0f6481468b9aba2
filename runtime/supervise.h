#ifndef LLMC_SUPERVISE_H
#define LLMC_SUPERVISE_H

/* Goes on after a failure: the ranks are started anew, from the newest checkpoint.  What a restart cannot mend ends the
 * run as ever: bad input, a plan that does not match the machine, a wrong option; a failure that comes three times
 * running in the same words, and ten in a row that keep the run from its next checkpoint. */

#include "runtime/run.h"

/* Calls attempt(), which loads a run and runs it, until it succeeds or nothing is left to try.  r->o is the command
 * line; everything else is made anew for each attempt. */
enum status supervise(struct run *r, enum status (*attempt)(struct run *r, struct error *error), struct error *error);

#endif
