#ifndef LLMC_TESTS_ORACLE_H
#define LLMC_TESTS_ORACLE_H

/* The slow judge of order and races: all instructions of all ranks as one graph, its transitive closure by
 * brute force, and every pair of accesses of every rank byte by byte.  Shares nothing with compiler/verify.
 */

#include "compiler/emit/plan.h"

/* NULL, or why the plan can deadlock or race (in the arena) */
const char *oracle_order(struct arena *a, const struct plan *p, bool evaluation);

#endif
