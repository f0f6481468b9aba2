#ifndef LLMC_EXEC_PLAY_H
#define LLMC_EXEC_PLAY_H

/* Private to the executor, shared by exec_open.c (loading), exec_report.c and the players: exec.c, exec_paced.c and
 * runtime/cuda/gang*.c. */

#include "runtime/player.h"

struct play { /* a program as this rank replays it */
    const struct program *p;
    uint32_t *order; /* instructions, grouped by queue */
    uint32_t first[NQUEUES], count[NQUEUES];
    uint32_t *channel, *self;              /* of communications, by instruction */
    uint32_t phase[NPHASES + 1];           /* first instruction of each phase */
    uint32_t at[NPHASES + 1][NQUEUES];     /* first position of each phase on every queue */
    uint64_t *number;                      /* by instruction: number of its meeting within the phase */
    uint64_t *meetings;                    /* number of meetings by phase and channel */
    bool *kept;                            /* by buffer: does it outlive a run? */
    uint32_t done[NQUEUES], stop[NQUEUES]; /* positions finished; position at which this run ends */
    bool open[NQUEUES];                    /* the head is posted */
    int64_t began_ns;                      /* start of the phase */
    int64_t *ended_ns;                     /* paced: by instruction, its end by the plan */
    bool started[NQUEUES];                 /* paced: the head is running, until: */
    int64_t until_ns[NQUEUES];
    struct trace_span *trace;
    struct waits *waits; /* --watch: waits are counted; else NULL */
    const struct batch_source *batch;
};
struct exec {
    struct exec_setup s;
    struct transport *transport;
    /* base address of operands; on a device such that arena + offset is in device memory for offsets from host_bytes
     * on */
    uint8_t *arena;
    uint8_t *host;       /* pinned host memory for offsets below host_bytes */
    uint64_t host_bytes; /* 0 on cores */
    struct play play[NROUTINES];
    uint64_t *met; /* by channel: number of meetings in earlier runs */
    float *scratch;
    size_t scratch_bytes;
    uint64_t random;
    uint32_t allowed, patience; /* adversarial: queues that may move, passes until the next draw */
    exec_hook *hook;
    void *hook_context;
    const uint8_t *kind; /* of the training instructions' work, WORK_NONE where it does not count; NULL: of none */
    int64_t work_ns[WORK_KINDS];
};

static inline uint8_t *exec_address(const struct exec *e, uint64_t at)
{
    return at < e->host_bytes ? e->host + at : e->arena + at;
}

/* Moves operands to a GPU: those with offsets below host_bytes to `host`, the others to `device`. */
void exec_place(struct exec *e, uint8_t *host, uint64_t host_bytes, uint8_t *device);

/* fills in what a communication instruction sends and receives in this run */
void exec_make_meeting(const struct exec *e, const struct play *play, uint32_t insn, struct meeting *m);

/* a meeting at a queue's head is done: who came last to it, for whoever counts waits */
void exec_met(const struct exec *e, const struct play *play, uint32_t queue, const struct meeting *m);

/* resolves an instruction's operands and attributes for this rank */
void exec_resolve(const struct exec *e, const struct program *p, uint32_t insn, struct kernel_args *k);

/* the program that a rank is at, the evaluation's where it evaluates; exec_report.c */
const struct program *exec_program_of(const struct exec *e, uint32_t rank);
/* why no rank makes progress, as far as this one knows, in words; "": it does not; exec_cause.c */
void exec_cause(const struct exec *e, char *out, size_t size);

/* exec_paced.c */
enum progress exec_try_paced(struct exec *e, struct play *play, uint32_t queue, uint32_t insn);
int64_t exec_paced_rest(const struct play *play);

#endif
