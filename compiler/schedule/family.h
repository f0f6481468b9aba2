#ifndef LLMC_SCHEDULE_FAMILY_H
#define LLMC_SCHEDULE_FAMILY_H

/* Private to schedule.c and the families of schedules.  A family appends the actions of every rank, in order, to an
 * empty schedule; schedule.c adds the optimizer step. */

#include "compiler/schedule/schedule.h"

/* room: most actions per rank, not counting the optimizer step */
struct schedule *schedule_empty(struct arena *a, uint32_t nranks, uint32_t nstages, uint32_t microbatches,
                                uint64_t room);
void schedule_append(struct schedule *s, uint32_t rank, char kind, uint32_t stage, uint32_t microbatch);
/* a forward and a backward that run together */
void schedule_append_pair(struct schedule *s, uint32_t rank, struct action forward, struct action backward);
/* appends O as the last action of every rank */
void schedule_finish(struct schedule *s);

/* 1f1b.c: one stage per rank */
void schedule_gpipe(struct schedule *s);
void schedule_1f1b(struct schedule *s, bool eager);
/* interleaved.c: stage s on rank s mod p; group >= 1; pairs: F and B of the steady state overlap, with one more
 * warm-up forward */
void schedule_interleaved(struct schedule *s, uint32_t group, bool pairs);
/* zb.c: one stage per rank, backward split */
void schedule_zb_h1(struct schedule *s);
void schedule_zb_h2(struct schedule *s);
/* zbv.c, controllable.c: stages r and 2p - 1 - r on rank r */
void schedule_zb_v(struct schedule *s);
/* V-Half or V-Min */
void schedule_block(struct schedule *s, enum schedule_kind kind);
/* dualpipe.c: DualPipeV with the V-shaped placement above; DualPipe with two copies of p stages in opposite
 * directions; scratch: room for 4p actions */
void schedule_dualpipe_v(struct schedule *s, struct action *scratch);
void schedule_dualpipe(struct schedule *s, struct action *scratch);

#endif
