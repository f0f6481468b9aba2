#ifndef LLMC_SCHEDULE_FAMILY_H
#define LLMC_SCHEDULE_FAMILY_H

/* Between schedule.c and the families of schedules: an empty schedule, and appending to it.  A family appends
 * the actions of every rank in order; schedule.c adds the optimizer step. */

#include "compiler/schedule/schedule.h"

/* room: actions per rank at most, the optimizer step not counted */
struct schedule *schedule_empty(struct arena *a, uint32_t nranks, uint32_t nstages, uint32_t microbatches,
                                uint32_t room);
void schedule_append(struct schedule *s, uint32_t rank, char kind, uint32_t stage, uint32_t microbatch);
/* O as every rank's last action */
void schedule_finish(struct schedule *s);

/* 1f1b.c; microbatches >= 1, one stage per rank */
void schedule_gpipe(struct schedule *s);
void schedule_1f1b(struct schedule *s, bool eager);

#endif
