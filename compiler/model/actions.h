#ifndef LLMC_ACTIONS_H
#define LLMC_ACTIONS_H

/* A schedule is data: an ordered list of actions per pipeline rank.  The letters are torch's
 * (pipelining/schedules.py): F forward, I input gradient, W weight gradient, B both.
 *
 * Dependencies: F(s, i) follows F(s-1, i); B or I of (s, i) follows B or I of (s+1, i), or F(s, i) on the last
 * stage; W follows the I of the same stage and microbatch.  DualPipe runs two copies of the model: the stages of one
 * copy are numbered first, then those of the other, and each copy is a chain of its own with its own microbatches. */

#include <stdbool.h>
#include <stdint.h>

struct action {
    char kind; /* F B I W, or O: optimizer step, last on every rank */
    bool pair; /* an F and the B listed after it overlap: both start when both can, and the pair ends as one */
    uint32_t stage, microbatch;
};
struct schedule {
    uint32_t nranks, nstages;
    uint32_t copies;       /* chains of nstages / copies stages: 2 in DualPipe, else 1 */
    uint32_t microbatches; /* of each copy */
    bool forward_only;
    /* each rank starts its optimizer step after its own last action, without a barrier: see pipeline_skews() */
    bool skews;
    uint32_t *nactions; /* per pipeline rank */
    struct action **actions;
    uint32_t *stage_rank; /* by stage; NONE where no rank runs it (schedule_check() refuses that) */
};

#endif
