#ifndef LLMC_EXEC_H
#define LLMC_EXEC_H

/* Replays one rank's program: in-order queues with wait lists between them, and no policy.
 *
 * One thread per rank.  A queue's head may start when its waits are done.  Kernels run to completion; communications
 * are posted and then polled, so several can be in progress while kernels run.  Nothing is allocated inside a step. */

#include "runtime/channels.h"

struct batch_source;
struct exec;
struct work;
struct gang;
struct player;

enum routine { ROUTINE_TRAIN, ROUTINE_EVAL, NROUTINES };

struct trace_span { /* one instruction of one run, world_now_ns(); a communication starts when it is posted */
    int64_t start_ns, end_ns;
    int64_t core_ns; /* time in which the process worked on it on a core; 0: not known */
};

struct exec_setup {
    const struct player *player;
    struct world *world;
    const struct channels *channels;
    const struct ranks *ranks;
    const struct program *const *programs[NROUTINES]; /* by role; the second may be NULL */
    uint64_t shuffle_seed;         /* 0 = heads in a fixed order; else adversarial: seeded order, delayed
                                      communication, and the step's memory poisoned before each run */
    double watchdog_s;             /* report and fail after so long without progress of any rank; 0 = never */
    const int64_t *const *pace_ns; /* for player_paced: times of training instructions by role */
    struct routing *routing;       /* recorded or replayed choices of experts in training, routing.h; or NULL */
    const struct work *work;       /* kinds of equal work, which are timed; or NULL */
    bool watched;                  /* waits are counted on CPU cores, waits.h */
    double slow;                   /* a test: after each kernel, do nothing for so many times as long as it took */
    struct gang *gang;             /* for player_d2d and player_nccl: the process's ranks on their GPU */
};

/* called before a kernel runs */
typedef void exec_hook(void *context, const struct program *p, uint32_t insn, const struct kernel_args *k);

/* resolves operands and checks all that kernels require; one sentence in error on failure */
enum status exec_open(struct exec **out, const struct exec_setup *s, struct error *error);
void exec_close(struct exec *e);

const struct program *exec_program(const struct exec *e, enum routine which);
/* scratch memory of kernels outside of the arena */
const void *exec_scratch(const struct exec *e, size_t *bytes);
void exec_set_hook(struct exec *e, exec_hook *hook, void *context); /* NULL = none */

/* Runs the whole program once.  trace: one span per instruction, or NULL. */
enum status exec_run(struct exec *e, enum routine which, const struct batch_source *batch, struct trace_span *trace);
/* Runs one phase of it.  If the program has seams, the next step's early phase may run before this step's check, and
 * must be run again if exec_clipped() is true after the check. */
enum status exec_run_phase(struct exec *e, enum routine which, enum phase phase, const struct batch_source *batch,
                           struct trace_span *trace);
bool exec_has_phases(const struct exec *e);
bool exec_clipped(const struct exec *e);

/* If operands are in a device's memory, the world's arena is the host's copy of it: exec_run() keeps the step block
 * and the metrics equal on both sides; these functions copy the persistent buffers.  They do nothing on CPU cores. */
enum status exec_to_device(struct exec *e); /* the host copy's memory is released afterwards */
enum status exec_from_device(struct exec *e);
/* offset after the highest byte of the arena that no longer holds the poison 0xff */
uint64_t exec_touched(struct exec *e);

/* a buffer's memory on this rank, in the host's copy; NULL if there is none of that kind */
void *exec_buffer(const struct exec *e, enum routine which, enum buffer_kind kind);

/* nanoseconds in training instructions of each kind of work since the start, WORK_KINDS of them */
const int64_t *exec_work(const struct exec *e);

/* after a training step that took step_ns: what of it was waited is published, if waits are counted */
void exec_tell_waits(struct exec *e, int64_t step_ns);

/* prints for every rank which instruction it is at and whom it waits for */
void exec_report(const struct exec *e, FILE *out);

#endif
