#ifndef LLMC_SUMMARY_H
#define LLMC_SUMMARY_H

/* Figures that every rank reports at its end, and the summary of them that rank 0 prints with --json. */

#include "runtime/memory.h"
#include "runtime/run.h"

enum {
    REPORT_ARENA_TOUCHED, /* offset after the highest byte that was ever written */
    REPORT_SCRATCH,
    REPORT_ALLOCATIONS /* after the first step */,
    REPORT_INSTRUCTIONS /* of a step */,
    REPORT_LOADED,
    REPORT_END /* resident bytes */,
    REPORT_COMPARED, /* tokens at routers, with --routing-compare */
    REPORT_FLIPS,    /* tokens whose choices differ from the recorded ones */
    NREPORTS
};

struct summary {
    uint64_t steps, tokens;
    double loss, eval_loss;                   /* of the last step; NaN = not measured */
    double loss_scale;                        /* of the next step; 0: none */
    uint64_t skipped;                         /* steps whose gradients overflowed */
    struct saver_figures checkpoints;         /* rank 0's */
    double seconds;                           /* of all steps but the first */
    uint64_t before[NMEMORY], after[NMEMORY]; /* sums over ranks: after loading, at the end */
};
void summary_print(const struct run *r, const struct exec *e, const struct summary *s, FILE *out);

#endif
