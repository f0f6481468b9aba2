#ifndef LLMC_CHAIN_H
#define LLMC_CHAIN_H

/* A run by two plans: the first one's steps, then a transition that moves weights and moments in memory ('llmc
 * transition'), then the second one's steps, in the same processes.  A rank of the transition is a place, which is a
 * rank of one plan or of both; its arena has the first plan's at offset 0, and behind it the second plan's. */

#include "runtime/run.h"

/* r->o says which plans, and after how many steps; the three folders must belong together. */
enum status chain_run(struct run *r, struct error *error);

#endif
