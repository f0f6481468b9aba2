#ifndef LLMC_SPARE_H
#define LLMC_SPARE_H

/* Plans for fewer nodes, which `llmc plan --spare-plans` has laid beside a plan as DIR.minus1 and so on. */

#include "runtime/run.h"

/* Where a launcher has started another number of ranks than the plan is for, and a spare plan is for so many, r->o.dir
 * becomes that one, which the first rank says.  Everything else is left for run_open() to find out. */
void spare_choose(struct run *r, uint32_t started, bool first);

#endif
