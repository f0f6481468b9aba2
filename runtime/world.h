#ifndef LLMC_WORLD_H
#define LLMC_WORLD_H

/* What the ranks of one machine share: one mapped region with a control block, the transport's state, and an arena
 * per rank.  Every process maps all of it, so peers read and write each other's operands directly.
 *
 * Nothing here blocks forever: whoever sleeps wakes when a peer bumps its event, when the run fails, or after a
 * tenth of a second. */

#include "runtime/isa.h"
#include "runtime/error.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { PAGE_BYTES = 4096, ARENA_ALIGNMENT = 256 };
enum {
    WORLD_FLIGHT = 32, /* instructions of each rank that are remembered */
    WORLD_HOST = 64,   /* a host's name, with its end */
    WORK_KINDS = 32,   /* of instructions, see work.h */
    WAITED_FOR = 3,    /* ranks that a rank names as waited for, see waits.h */
    WAITED_WORDS = 4 + 3 * WAITED_FOR
};
enum { TOLD_WORDS = 10, TOLD_LINES = 16, TOLD_LINE = 512 };
enum rank_state { RANK_STARTING, RANK_STEPPING, RANK_SAVING, RANK_ENDED };

/* what one rank publishes; written by the rank itself, except `event` */
struct world_rank {
    /* futex word: incremented by peers when something that the rank may wait for has happened */
    _Alignas(256) _Atomic uint32_t event;
    _Atomic uint32_t sleeping;
    _Atomic uint64_t progress; /* instructions finished since the start */
    _Atomic int32_t pid;
    _Atomic uint32_t state; /* enum rank_state */
    _Atomic uint32_t step, evaluating;
    _Atomic uint32_t head[NQUEUES]; /* instruction at each queue's head; NONE = queue empty */
    _Atomic uint32_t met;           /* meetings of checkpoints' writers that the rank has come to */
    _Atomic uint32_t running;       /* instruction that the process is executing; NONE */
    /* nanoseconds for which the process has had a core, as of the end of its last step */
    _Atomic int64_t core_ns;
    _Atomic uint32_t flight[WORLD_FLIGHT]; /* at progress modulo the size: instruction * 2, + 1 of the evaluation */
    /* steps for which the times are, twice, odd while they are written: see slowness.h; nanoseconds by kind of work */
    _Atomic uint32_t work_steps;
    _Atomic uint64_t work_ns[WORK_KINDS];
    _Atomic uint64_t waited[WAITED_WORDS]; /* with --watch: struct waited, waits.h */
    double margin; /* largest margin of expert choices that differ from recorded ones, see routing.h */
    uint64_t report[8], memory[2][8]; /* for the final summary, see summary.h and memory.h */
};

enum { SAVES_AHEAD = 4, ASKED_BY_SIGNAL = 1, ASKED_BY_SPIKE };
/* what a run's time goes to, see goodput.h; SPENT_STARTING: from the beginning of the process to that of the first step
 */
enum { SPENT_STARTING, SPENT_STEPS, SPENT_SAVING, SPENT_EVALUATING, NSPENT };
struct world;
struct mpi_ranks;
struct world_control {
    _Atomic uint64_t ready;            /* set by the creator when the block is valid */
    _Atomic int32_t creator;           /* process that created it */
    _Atomic uint32_t attached, failed; /* failed: enum status of the first failure */
    _Atomic uint32_t barrier_count, barrier_turn;
    _Atomic uint32_t message_ready;
    _Atomic uint64_t resumed; /* sum over ranks of the steps that had been taken before the run */
    /* saver.h.  asked: somebody asked for the run to stop; steps after which all take a checkpoint, each at its number
     * modulo SAVES_AHEAD, since ranks are not at the same step; the step after which all stop (0: none); ranks whose
     * checkpoint is being written, where they meet meanwhile, and whether one of them has failed */
    _Atomic uint32_t asked;
    _Atomic uint64_t save_after[SAVES_AHEAD], stop_after;
    _Atomic uint32_t saving, saving_count, saving_turn, save_failed;
    _Atomic uint32_t unsaved;         /* all steps were taken, but the last checkpoint could not be written */
    _Atomic int64_t spent_ns[NSPENT]; /* rank 0's */
    _Atomic uint64_t steps_ended;
    /* --watch, see told.h */
    _Atomic uint32_t told_turn, lines_said, lines_heard;
    _Atomic uint64_t told[TOLD_WORDS];
    char line[TOLD_LINES][TOLD_LINE];
    char message[2048]; /* message of the first failure */
};

/* What ranks that share no memory do in place of it; `context` is whatever serves them. */
struct world_remote {
    /* all ranks meet, and values become sums over them: STATUS_WORLD and a sentence if that cannot be */
    enum status (*sum)(void *context, uint64_t *values, uint32_t n, struct error *error);
    /* tells the others of a failure; NULL: the end of this process does */
    void (*fail)(void *context, const char *words);
    /* now and then, while ranks step: tells how far this one is and learns it of others; NULL: nobody asks */
    void (*look)(void *context, const struct world *w);
    void *context;
};

struct world {
    uint32_t rank, nranks; /* rank: NONE in the process that only launches */
    struct world_control *control;
    struct world_rank *ranks;
    uint8_t *transport, *trace, *coverage, *logits; /* zeroed regions of the requested sizes */
    uint8_t **arena;                                /* by rank, ending at an inaccessible page */
    uint64_t *arena_size;                           /* by rank */
    uint64_t arena_bytes;                           /* the largest */
    uint8_t *map;
    size_t map_bytes, control_bytes; /* control_bytes: all but the arenas */
    uint8_t *arenas;                 /* where these are: behind the rest, or in another world's region */
    size_t arenas_bytes;
    const struct world *within[2]; /* worlds of the same processes that fail with this one; or NULL */
    /* for ranks that share no memory, whose region is this rank's alone; else NULL */
    const struct world_remote *remote;
    struct mpi_ranks *mpi;           /* where operands go by MPI; else NULL */
    const char (*hosts)[WORLD_HOST]; /* names of hosts by rank where they are known and differ, at rank 0; else NULL */
    bool named;                      /* ranks were started from outside, so nobody else watches for dead ones */
    int32_t parent;                  /* of the process that opened it */
    uint32_t spins;                  /* polls before sleeping: few if ranks outnumber cores */
};

struct world_sizes {
    uint32_t nranks;
    uint64_t arena_bytes; /* of every rank, where each == NULL */
    const uint64_t *each; /* by rank */
    size_t transport_bytes, trace_bytes, coverage_bytes, logits_bytes;
};

/* name NULL: anonymous memory, inherited by fork.  Else a POSIX shared-memory object: rank 0 makes it, all
 * attach (at most timeout_s), and then it is unlinked. */
enum status world_open(struct world *w, const struct world_sizes *sizes, const char *name, uint32_t rank,
                       double timeout_s, struct error *error);
void world_close(struct world *w);

uint32_t world_event(const struct world *w);
void world_bump(const struct world *w, uint32_t rank);
/* sleeps until the rank's event differs from `event`, the run fails, or 100 ms have passed; with MPI, where nobody can
 * wake the rank, a moment only */
void world_sleep(const struct world *w, uint32_t event);
/* the same, but at most ns nanoseconds */
void world_sleep_for(const struct world *w, uint32_t event, int64_t ns);

/* records the first failure of the run and wakes everyone; later ones are ignored */
void world_fail(const struct world *w, enum status st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
enum status world_failed(const struct world *w);
/* what the kernel says of a rank's process that cannot move by itself, as ", but its process is stopped"; "" if it can
 */
const char *world_trouble(const struct world *w, uint32_t rank);
/* all ranks meet; returns the failure if the run fails meanwhile */
enum status world_barrier(const struct world *w);
/* Values become sums over all ranks, which is for ranks that share no memory: `remote` is set.  All ranks give equally
 * many, of any number. */
enum status world_sum(const struct world *w, uint64_t *values, uint32_t n);
/* the same of words that ranks of one machine share, where nothing is left to add */
enum status world_share(const struct world *w, _Atomic uint64_t *values, uint64_t n);

/* for ranks that share no memory, to be called again and again while they step: remote->look() */
void world_look(const struct world *w);

int64_t world_now_ns(void);
/* nanoseconds that this process has had a core */
int64_t world_core_ns(void);

#endif
