#ifndef LLMC_EXECUTE_MACHINE_H
#define LLMC_EXECUTE_MACHINE_H

/* All ranks of a plan in one process, over the field (internal to compiler/execute/).
 *
 * Only queues, waits and rendezvous order events.  With a seed the order is adversarial: every queue of every rank
 * has a random priority that changes now and then.  A transfer reads its operands either when it is posted or when
 * it takes place, and its results appear either when it takes place or when it ends, both at random; until then what
 * it will write is undefined. */

#include "compiler/emit/plan.h"
#include "compiler/execute/kernel.h"
#include "compiler/execute/memory.h"

/* EXACT_MOVE: training programs before which nothing is lost: a transition's, which read what another plan's steps left
 * behind */
enum exact_program { EXACT_TRAIN, EXACT_EVAL, EXACT_MOVE };

/* the state of the first instruction of a queue */
enum exact_state { HEAD_IDLE, HEAD_POSTED, HEAD_MOVED };

struct exact_rank {
    const struct program *p;
    struct memory memory;
    uint32_t *order; /* indices of instructions, grouped by queue */
    uint32_t first[NQUEUES], count[NQUEUES], done[NQUEUES];
    enum exact_state state[NQUEUES];
    uint32_t *channel, *self;                 /* of transfers, by instruction: their channel, and this rank's index
                                               * among its members */
    uint32_t *number;                         /* number of earlier meetings of the same channel, in program order */
    uint32_t *met;                            /* by channel: number of meetings that this rank has ended */
    uint64_t *early[NQUEUES], *late[NQUEUES]; /* operands that were read at the post; results that are written at the
                                               * end */
};
struct exact_channel {
    uint32_t nmembers;
    uint32_t *members; /* ranks; of a pair: the sender, then the receiver */
    uint32_t *insn;    /* by member: the instruction that it has posted, or NONE */
    uint32_t nposted;
};
struct exact_machine {
    struct arena *arena;   /* for what lives as long as the machine */
    struct arena *step;    /* for buffers of transfers in flight; emptied with each run of the programs */
    struct arena *scratch; /* for a single instruction */
    const struct plan *plan;
    uint32_t nranks, nchannels;
    struct exact_rank *ranks;
    struct exact_channel *channels;
    uint64_t random;
    bool shuffled;
    uint8_t *priority;        /* by rank and queue */
    struct exact_fours fours; /* for all ranks; emptied with each run of the programs */
    uint64_t ninsns;          /* number executed so far */
    char why[1024];           /* the first failure */
    /* called after every optimizer instruction, with its operands */
    void (*update)(void *context, uint32_t rank, uint32_t insn, const struct exact_args *k);
    void *context;
};

/* Returns NULL on failure, and sets *why. */
struct exact_machine *exact_open(struct arena *a, const struct plan *p, uint64_t seed, const char **why);
void exact_close(struct exact_machine *m);
/* Runs every program of this kind once, from what exact_forget() leaves of each rank's memory; false: see m->why. */
bool exact_run(struct exact_machine *m, enum exact_program which);
/* Between two runs everything is lost except the training program's persistent buffers and the step block of the rank's
 * current program. */
void exact_forget(struct exact_machine *m, uint32_t rank);

/* The following are shared by machine.c, play.c and meet.c. */
uint64_t exact_random(struct exact_machine *m, uint64_t n); /* below n */
uint64_t exact_value(const struct exact_machine *m, uint32_t rank, uint32_t slot);
bool exact_is_meeting(const struct insn *in);
/* Resolves an operand on this rank; false if it is absent. */
bool exact_place(const struct exact_machine *m, uint32_t rank, uint32_t insn, uint32_t operand, struct place *out);
/* Records the first failure, with the instruction's text; always returns false. */
bool exact_fail(struct exact_machine *m, uint32_t rank, uint32_t insn, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
bool exact_compute(struct exact_machine *m, uint32_t rank, uint32_t insn);
/* meet.c: finds the channels of all programs of a kind; then posts transfers, performs them, and ends them. */
bool exact_meetings(struct exact_machine *m);
bool exact_may_post(const struct exact_machine *m, uint32_t rank, uint32_t insn);
void exact_post(struct exact_machine *m, uint32_t rank, uint32_t insn);
bool exact_complete(const struct exact_machine *m, uint32_t rank, uint32_t insn); /* all members have posted */
bool exact_move(struct exact_machine *m, uint32_t rank, uint32_t insn);
void exact_end(struct exact_machine *m, uint32_t rank, uint32_t insn);

#endif
