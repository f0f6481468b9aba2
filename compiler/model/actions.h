#ifndef LLMC_ACTIONS_H
#define LLMC_ACTIONS_H

/* A schedule is data: per pipeline rank an ordered list of actions.  Letters are torch's
 * (pipelining/schedules.py): F forward, I input gradient, W weight gradient, B both.
 *
 * F(s, i) comes after F(s-1, i); B or I of (s, i) after that of (s+1, i), on the last stage after F; W after
 * I. DualPipe runs two copies of the model: its stages are those of one copy and then those of the other,
 * each copy is a chain of its own with microbatches of its own. */

#include <stdbool.h>
#include <stdint.h>

struct action {
    char kind; /* F B I W, or O: optimizer step, last on every rank */
    bool pair; /* F and the B behind it run together: both start when both can, and end together */
    uint32_t stage, microbatch;
};
struct schedule {
    uint32_t nranks, nstages;
    uint32_t copies;       /* chains of nstages / copies stages: 2 in DualPipe, else 1 */
    uint32_t microbatches; /* of each copy */
    bool forward_only;
    bool skews;         /* a rank's optimizer step follows its own last action: see pipeline_skews() */
    uint32_t *nactions; /* per pipeline rank */
    struct action **actions;
    uint32_t *stage_rank; /* by stage; NONE where no rank runs it (schedule_check() refuses that) */
};

#endif
