#ifndef LLMC_LR_H
#define LLMC_LR_H

/* The learning rate of a step. */

#include "runtime/program.h"

/* total_steps ends linear and cosine decay where the job names no end */
double lr_at(const struct job_info *job, uint64_t step, uint64_t total_steps);
/* does it depend on total_steps? */
bool lr_needs_total(const struct job_info *job);

#endif
