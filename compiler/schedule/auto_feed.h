#ifndef LLMC_AUTO_FEED_H
#define LLMC_AUTO_FEED_H

/* Lower bounds on the time that a rank of a pipeline idles because the other ranks cannot deliver its inputs any
 * earlier. */

#include "compiler/support/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* The positions that every microbatch passes through in turn: F of all stages, then I of all stages in reverse. */
struct auto_line {
    uint32_t n, m, p;    /* positions, microbatches, ranks */
    uint32_t *rank;      /* by position */
    double *takes, *gap; /* takes: seconds, by position; gap: seconds of the transfer to the next position */
    double *weight;      /* by position: seconds of weight gradient that become runnable after it */
    double **head;       /* by position and microbatch: earliest start in any order, seconds */
};
/* Returns a lower bound, over all orders, on the seconds that a rank idles from time 0 to the end of its work. */
double auto_feed_idle_s(struct arena *a, const struct auto_line *line, uint32_t rank);

/* a job of one machine: release time, processing time, and how much must follow it on other machines */
struct auto_timed {
    double head_s, takes_s, tail_s;
};
/* Jackson's preemptive schedule of n jobs, which it sorts: returns when the last tail has ended.  waiting: scratch
 * for n + 1 jobs. */
double auto_machine_s(struct auto_timed *jobs, uint32_t n, struct auto_timed *waiting);

#endif
