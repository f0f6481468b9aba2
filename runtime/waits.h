#ifndef LLMC_WAITS_H
#define LLMC_WAITS_H

/* How long a rank on CPU cores waits in a training step, and for whom: for `llmrun --watch`.  The executor says when
 * nothing can move and which meeting ends that.  Time until the last member came to a meeting is waited for that rank;
 * time from then on, in which operands move, is a transfer.  A meeting that the compute queue does not need, over any
 * number of other queues, ends nothing. */

#include "runtime/world.h"

struct play;
struct waits;

/* means over recent steps, nanoseconds; words so that ranks can publish them (world_rank.waited) */
struct waited {
    uint64_t steps; /* 0: nothing is known */
    uint64_t step_ns, waits_ns, transfers_ns;
    struct {
        uint64_t rank, queue, ns; /* queue: on which most of it is waited; ns 0: no more ranks */
    } most[WAITED_FOR];           /* the longest first */
};

/* STATUS_WORLD: out of memory */
enum status waits_open(struct waits **out, uint32_t nranks);
void waits_close(struct waits *w);

/* nothing of the program can move: again and again, until */
void waits_stuck(struct waits *w, const struct play *play);
/* something has moved */
void waits_moved(struct waits *w);
/* a queue's head is a meeting that is done: who came last, NONE if that is not known, and when, INT64_MAX likewise */
void waits_met(struct waits *w, uint32_t queue, uint32_t last, int64_t came_ns);
/* that head has ended */
void waits_ended(struct waits *w, uint32_t queue);
/* a step has ended: its time, and what it adds to the means, which the rank publishes */
void waits_step(struct waits *w, struct world_rank *face, int64_t step_ns);
/* what a rank has published; a moment's mixture of two steps, if it does so just now */
struct waited waits_read(const struct world_rank *face);

#endif
