#ifndef LLMC_EXECUTE_MACHINE_H
#define LLMC_EXECUTE_MACHINE_H

/* All ranks of a plan in one process, over the field (inside of compiler/execute/).
 *
 * Only queues, waits and rendezvous order anything.  With a seed the order is adversarial: every queue of every rank
 * has a random priority that changes now and then; a transfer reads its operands when it is posted or when it takes
 * place, and its results appear when it takes place or when it ends, both by draw; what it will write is undefined
 * meanwhile. */

#include "compiler/emit/plan.h"
#include "compiler/execute/kernel.h"
#include "compiler/execute/memory.h"

enum exact_program { EXACT_TRAIN, EXACT_EVAL };

/* what a queue's head is doing */
enum exact_state { HEAD_IDLE, HEAD_POSTED, HEAD_MOVED };

struct exact_rank {
    const struct program *p;
    struct memory memory;
    uint32_t *order; /* instructions, grouped by queue */
    uint32_t first[NQUEUES], count[NQUEUES], done[NQUEUES];
    enum exact_state state[NQUEUES];
    uint32_t *channel, *self;                 /* of communications, by instruction */
    uint32_t *number;                         /* meetings of its channel before it, in program order */
    uint32_t *met;                            /* by channel: meetings that this rank has ended */
    uint64_t *early[NQUEUES], *late[NQUEUES]; /* operands read at the post; results that wait for the end */
};
struct exact_channel {
    uint32_t nmembers;
    uint32_t *members; /* ranks; of a pair: sender, receiver */
    uint32_t *insn;    /* by member: the instruction that it has posted; NONE */
    uint32_t nposted;
};
struct exact_machine {
    struct arena *arena;   /* what lives as long as the machine */
    struct arena *step;    /* buffers of transfers under way; emptied with each run of the programs */
    struct arena *scratch; /* one instruction */
    const struct plan *plan;
    uint32_t nranks, nchannels;
    struct exact_rank *ranks;
    struct exact_channel *channels;
    uint64_t random;
    bool shuffled;
    uint8_t *priority;        /* by rank and queue */
    struct exact_fours fours; /* of all ranks; emptied with each run of the programs */
    uint64_t ninsns;          /* executed so far */
    char why[1024];           /* the first failure */
    /* called with the operands of every optimizer instruction, after it */
    void (*update)(void *context, uint32_t rank, uint32_t insn, const struct exact_args *k);
    void *context;
};

/* NULL on failure, *why says what */
struct exact_machine *exact_open(struct arena *a, const struct plan *p, uint64_t seed, const char **why);
void exact_close(struct exact_machine *m);
/* every program of this kind once; false: m->why */
bool exact_run(struct exact_machine *m, enum exact_program which);

/* the rest is shared by machine.c, play.c and meet.c */
uint64_t exact_random(struct exact_machine *m, uint64_t n); /* below n */
uint64_t exact_value(const struct exact_machine *m, uint32_t rank, uint32_t slot);
bool exact_is_meeting(const struct insn *in);
/* an operand on this rank; false if it is absent */
bool exact_place(const struct exact_machine *m, uint32_t rank, uint32_t insn, uint32_t operand, struct place *out);
/* records the first failure, with the instruction's text; always false */
bool exact_fail(struct exact_machine *m, uint32_t rank, uint32_t insn, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
bool exact_compute(struct exact_machine *m, uint32_t rank, uint32_t insn);
/* meet.c: channels of all programs of a kind; posting, taking place, ending */
bool exact_meetings(struct exact_machine *m);
bool exact_may_post(const struct exact_machine *m, uint32_t rank, uint32_t insn);
void exact_post(struct exact_machine *m, uint32_t rank, uint32_t insn);
bool exact_complete(const struct exact_machine *m, uint32_t rank, uint32_t insn); /* everybody has posted */
bool exact_move(struct exact_machine *m, uint32_t rank, uint32_t insn);
void exact_end(struct exact_machine *m, uint32_t rank, uint32_t insn);

#endif
