#ifndef LLMC_SIMULATE_ENGINE_H
#define LLMC_SIMULATE_ENGINE_H

/* Between the engine (who runs when) and the attribution of idleness (why not earlier).
 *
 * A slot is one instruction in queue-major order: position k of queue q of role r is slot first[r * NQUEUES +
 * q] + k. An actor is one queue of one role: r * NQUEUES + q.  A meeting is a rendezvous of actors. */

#include "compiler/simulate/simulate.h"

struct sim_slot {
    int64_t duration_ns; /* where ranks share cores: that its rank has one */
    uint32_t insn, meeting; /* meeting: NONE = runs alone */
    uint32_t wait;          /* first, in the program's array */
    uint32_t nwaits;
};
struct sim_party {
    uint32_t slot, actor; /* slot NONE: the role has no such instruction */
};
struct sim_meeting {
    int64_t ready_ns, duration_ns;
    uint32_t first, nparties, narrived; /* first: in parties */
};
struct sim_actor {
    uint32_t first, count, next; /* slots; next: position to run */
    uint32_t phase[NPHASES + 1];   /* positions that the step's parts begin at */
    uint32_t stop;               /* position that the run ends at */
    uint32_t blocked_position;
    uint8_t blocked_queue; /* of the same role, while blocked on a wait */
    uint8_t waiters;       /* bits of the role's queues that wait for this one */
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
    struct cost_stack *around; /* NULL: unit costs */
    struct share *share;             /* ranks share cores; NULL: each has its own */
};

/* share.c */
struct share *share_new(struct arena *a, const struct cost *c, uint32_t nroles);
/* what run_positions() does where ranks share cores: every actor from .next to .stop */
void share_run(struct sim_engine *e);

/* slots, durations and meetings; false and one sentence if a program cannot be understood */
bool engine_prepare(struct arena *a, struct sim_engine *e, const struct cost *c, const char **why);
/* One step, or one part of it; every role begins when what it ran before ended.  false: stuck. */
bool engine_run(struct sim_engine *e);
bool engine_run_phase(struct sim_engine *e, enum phase which);
/* who is stuck where, after engine_run() said so */
const char *engine_stuck(struct arena *a, const struct sim_engine *e);
/* when a slot's queue and waits were ready for it in the latest run */
int64_t engine_ready(const struct sim_engine *e, uint32_t actor, uint32_t slot);

/* idle.c: busy, idle and waited times and the fractions, from the latest run */
void idle_attribute(struct arena *a, const struct sim_engine *e, struct timeline *t);

#endif
