#ifndef LLMC_COMPARE_H
#define LLMC_COMPARE_H

/* `llmc diff DIR DIR`: in what two plans differ, and what that costs. */

#include "compiler/emit/plan.h"

/* Prints the keys of plan.json's inputs and decision that differ; its figures, causes of idle time and bytes per
 * network level of a mean rank; and whose programs differ, by number of instructions.  Requires both timelines. Returns
 * how many keys and programs differ: 0 for equal plans. */
uint32_t compare_plans(struct arena *a, const struct plan *x, const struct plan *y, bool json, FILE *out);

#endif
