#ifndef LLMC_SIMULATE_ENGINE_H
#define LLMC_SIMULATE_ENGINE_H

/* Shared by the engine (when each instruction runs) and the attribution of idle time (why it did not run earlier).
 *
 * A slot is one instruction in queue-major order: position k of queue q of role r is slot first[r * NQUEUES + q] +
 * k.  An actor is one queue of one role: r * NQUEUES + q.  A meeting is a rendezvous of actors. */

#include "compiler/simulate/simulate.h"

struct sim_slot {
    int64_t duration_ns;    /* where ranks share cores: while its rank has a core to itself */
    uint32_t insn, meeting; /* meeting: NONE: it needs no other role */
    uint32_t wait;          /* index of its first wait in the program's array */
    uint32_t nwaits;
};
struct sim_party {
    uint32_t slot, actor; /* slot: NONE: the role has no such instruction, so the meeting cannot happen */
};
struct sim_meeting {
    int64_t ready_ns, duration_ns;
    uint32_t first, nparties, narrived; /* first: index in the engine's parties */
};
struct sim_actor {
    uint32_t first, count, next; /* first: its first slot; count: of its slots; next: position to run next */
    uint32_t phase[NPHASES + 1]; /* position at which each phase of the step begins */
    uint32_t stop;               /* position at which the current run ends */
    uint32_t blocked_position;
    uint8_t blocked_queue; /* queue of the same role that it waits for, while blocked */
    uint8_t waiters;       /* bit per queue of the role that waits for this one */
    bool stacked, arrived;
    int64_t free_ns;
};

struct sim_engine {
    const struct program *const *programs;
    uint32_t nroles, nslots, nmeetings;
    struct sim_slot *slots;
    struct sim_interval *times; /* by slot, of the latest run */
    struct sim_party *parties;
    struct sim_meeting *meetings;
    struct sim_actor *actors;
    int64_t *begin_ns, *end_ns; /* by role, of the latest run */
    uint32_t *stack, nstack;
    struct share *share; /* state of ranks that share cores; NULL: each rank has its own */
};

/* share.c */
struct share *share_new(struct arena *a, const struct cost *c, uint32_t nroles);
/* Runs every actor from .next to .stop where ranks share cores; engine.c's own loop does the same where they do not. */
void share_run(struct sim_engine *e);

/* Fills in slots, durations and meetings; false, with a sentence in *why, if a program cannot be interpreted. */
bool engine_prepare(struct arena *a, struct sim_engine *e, const struct cost *c, const char **why);
/* Runs one step, or one phase of it; every role begins when what it ran before has ended.  false: deadlock. */
bool engine_run(struct sim_engine *e);
bool engine_run_phase(struct sim_engine *e, enum phase which);
/* A sentence on which roles are blocked where, after engine_run() returned false. */
const char *engine_stuck(struct arena *a, const struct sim_engine *e);
/* when a slot's queue was free and its waits were over in the latest run, ns */
int64_t engine_ready(const struct sim_engine *e, uint32_t actor, uint32_t slot);

/* idle.c: busy, idle and waited times and the fractions, from the latest run */
void idle_attribute(struct arena *a, const struct sim_engine *e, struct timeline *t);

#endif
