#ifndef LLMC_AUTO_FEED_H
#define LLMC_AUTO_FEED_H

/* What the other ranks of a pipeline can feed a rank: bounds of the time that it stands idle. */

#include "compiler/support/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* What every microbatch goes through in turn, F of all stages and I of all stages back */
struct auto_line {
    uint32_t n, m, p;    /* positions, microbatches, ranks */
    uint32_t *rank;      /* by position */
    double *takes, *gap; /* by position; gap: a transfer to the next one */
    double *weight;      /* by position: what becomes possible behind it */
    double **head;       /* by position and microbatch: no order begins one sooner */
};
/* no order has the rank idle for less, from 0 to the end of its work */
double auto_feed_idle_s(struct arena *a, const struct auto_line *line, uint32_t rank);

/* a job of one machine: when it may begin, how long it takes, how much follows it elsewhere */
struct auto_timed {
    double head_s, takes_s, tail_s;
};
/* Jackson's schedule of n jobs, which it sorts: when the last tail has ended.  waiting: room for n + 1. */
double auto_machine_s(struct auto_timed *jobs, uint32_t n, struct auto_timed *waiting);

#endif
