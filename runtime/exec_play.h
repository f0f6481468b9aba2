#ifndef LLMC_EXEC_PLAY_H
#define LLMC_EXEC_PLAY_H

/* Inside of the executor, shared by exec.c (the loop), exec_open.c (loading) and exec_report.c. */

#include "runtime/exec.h"

struct play { /* one program as this rank replays it */
    const struct program *p;
    uint32_t *order; /* instructions, grouped by queue */
    uint32_t first[NQUEUES], count[NQUEUES];
    uint32_t *channel, *self; /* of communications, by instruction */
    uint64_t *number;         /* meeting's number within the program */
    uint64_t *meetings;       /* by channel: how many the program holds */
    uint32_t done[NQUEUES];   /* positions finished in this run */
    bool open[NQUEUES];       /* the head is posted */
    const int64_t *pace_ns;   /* by instruction: how long it takes; NULL: it is done */
    int64_t *ended_ns;        /* paced: by instruction, when it ended by plan */
    bool started[NQUEUES];    /* paced: the head runs, and ends at: */
    int64_t until_ns[NQUEUES];
    struct trace_span *trace;
    const struct batch_source *batch;
};
struct exec {
    struct exec_setup s;
    struct transport *transport;
    uint8_t *arena;
    struct play play[NROUTINES];
    uint64_t *met; /* by channel: meetings of earlier runs */
    float *scratch;
    size_t scratch_bytes;
    uint64_t random;
    uint32_t allowed, patience; /* adversarial: queues that may move, passes until the next draw */
    exec_hook *hook;
    void *hook_context;
};

/* operands and attributes of an instruction on this rank */
void exec_resolve(const struct exec *e, const struct program *p, uint32_t insn, struct kernel_args *k);

#endif
