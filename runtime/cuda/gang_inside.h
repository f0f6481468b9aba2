#ifndef LLMC_GANG_INSIDE_H
#define LLMC_GANG_INSIDE_H

/* Private to a gang: gang.c (devices, memory), gang_plan.c (orders, events, staging), gang_issue.c (the player),
 * gang_watch.c (waiting, failing). */

#include "runtime/cuda/gang.h"
#include "runtime/exec_play.h"

/* Bytes that the gang's process holds on the device, out of what the driver reports as taken since the context was
 * made (total).  Of its own allocation: arenas as planned, workspaces of products and attention, staged words.  By
 * difference: libraries (their handles and kernels), communicators, and the rest, which is graphs and kernels loaded
 * later. */
struct gang_memory {
    uint64_t arena, workspace, staging, libraries, communicators, rest, total;
};
/* Counts of graphs made; of steps and their replayed instructions, and the host's nanoseconds for launching them,
 * without unusual steps (a routine's first one, traced ones, those that capture); of launches that execute several
 * instructions. */
struct gang_counts {
    uint64_t graphs, steps, replayed, issue_ns, fused;
};

enum { MARK_ENDED = NQUEUES, MARK_COMPUTE = 2 * NQUEUES, NMARKS = 16 };

struct staged { /* what the host computes for one instruction before the step */
    uint32_t insn;
    size_t at; /* bytes in the rank's staging area */
};
struct stretch { /* consecutive instructions of the compute queue that depend on no other queue until they end */
    uint32_t first, last; /* positions in the queue's order */
    cuda_graph_exec graph;
};
struct gang_play {        /* one program on streams */
    uint32_t n;           /* instructions */
    cuda_event *event;    /* by instruction: event recorded after it; NULL if nobody waits for it */
    const int32_t **data; /* by instruction: staged, on the device */
    struct staged *staged;
    uint32_t nstaged;
    struct stretch *runs;
    uint32_t nruns;
    uint32_t *run_of; /* by instruction: its run, or NONE */
    /* by instruction: how many one launch executes, starting with it; 0: an earlier launch executes it */
    uint8_t *fused;
    uint32_t *place; /* by instruction of the compute queue: its position there */
};
struct gang_rank {
    struct exec *e;
    cuda_stream stream[NQUEUES];
    bool used[NQUEUES];
    cuda_event end[NQUEUES]; /* end of the step on each stream */
    void *workspace[NQUEUES];
    size_t workspace_bytes[NQUEUES];
    const struct buffer *placed; /* the compute queue's workspace, if the plan placed it in the arena; else NULL */
    /* [NMARKS], in mapped memory, each an instruction + 1: by queue, the communication started last; MARK_ENDED +
     * queue: the one ended last; MARK_COMPUTE: how far the compute queue has come */
    uint32_t *mark;
    uint8_t *stage, *stage_device; /* the same bytes in pinned memory and on the device */
    size_t stage_bytes;
    uint8_t *host; /* pinned part of the arena */
    struct gang_play play[NROUTINES];
    int32_t seen[NQUEUES][NQUEUES]; /* [on][of]: highest position whose event the stream has waited for */
};
struct gang_entry {
    uint32_t rank, insn; /* rank: index in the gang */
    uint32_t seq, channel;
};
struct gang_step { /* one routine of all ranks, in the order of issue */
    struct gang_entry *order;
    uint32_t n, done; /* done: steps so far */
    cuda_graph_exec graph;
};
struct gang {
    struct gang_setup s;
    const struct cuda_runtime *cu;
    struct gang_rank *ranks;
    struct gang_step step[NROUTINES];
    struct meet *meet;
    struct meet_part *parts; /* scratch: as many as ranks */
    struct cuda_libraries *libraries;
    uint8_t *memory, *pinned;
    size_t memory_bytes, pinned_bytes;
    struct gang_memory lines;
    size_t free_at_start;
    cuda_event begin, clock;
    cuda_event *stamps; /* traced step: two per entry */
    bool failed, capturing;
    _Atomic uint32_t joined, left, freed; /* ranks that have joined, that have left; set once the device is released */
    uint32_t first;                       /* the first rank's number */
    int sm;
    uint32_t noted;   /* number of instructions of the first rank's step that do not run as their attributes ask */
    const char *note; /* why the first of them does not */
    struct gang_counts counts;
};

static inline cuda_stream gang_origin(const struct gang *g)
{
    return g->ranks[0].stream[QUEUE_COMPUTE];
}

void gang_memory(const struct gang *g, struct gang_memory *m);
/* the players' copy() */
enum status gang_copy(struct exec *e, uint64_t at, uint64_t bytes, bool to_device);

/* gang_plan.c; NULL = fine, else out of memory */
enum status gang_plan(struct gang *g, struct error *error);
void gang_plan_free(struct gang *g);
/* Is the first output of instruction `insn` read by nobody after instruction `last`, because it is overwritten or
 * never read again?  Not to be asked where the end of a step may run twice. */
bool gang_dies(const struct program *p, uint32_t insn, uint32_t last);
/* bytes that a rank stages */
size_t gang_stage_bytes(const struct exec *e, enum routine which);
void gang_stage_fill(struct gang *g, struct gang_rank *r, enum routine which);

/* gang_issue.c */
enum status gang_issue(struct gang *g, enum routine which);
void gang_call(const struct gang *g, const struct gang_rank *r, enum routine which, uint32_t insn,
               struct kernel_args *k, struct cuda_call *c);

/* prepares calls that execute several instructions, after all single ones; NULL: fine */
const char *gang_prepare_fused(const struct gang *g, const struct gang_rank *r, enum routine which);

/* Launches every kernel once, on arbitrary contents of memory, so that CUDA loads all of them.  CUDA loads a kernel
 * at its first launch and may then wait for an idle device, which never comes while a communication waits for peers.
 * NULL: launched. */
const char *gang_load(struct gang *g);

/* gang_watch.c */
/* waits until the origin stream is idle */
enum status gang_wait(struct gang *g, enum routine which);
/* records the failure, with rank and instruction, and aborts the communicators */
enum status gang_fail(struct gang *g, uint32_t rank, enum routine which, uint32_t insn, const char *why);
/* the same for a refused call: names the instruction that it was for, unless an earlier one has broken the device */
enum status gang_refused(struct gang *g, uint32_t rank, enum routine which, uint32_t insn, const char *why);

#endif
