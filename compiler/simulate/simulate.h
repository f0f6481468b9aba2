#ifndef LLMC_SIMULATE_H
#define LLMC_SIMULATE_H

/* Discrete-event run of the very instructions emitted, one rank per role: queues in order, waits, rendezvous between
 * roles; members of a group within a role are alike and meet at once.  Integer nanoseconds.  The step is run twice back
 * to back (queues drained between); step_ns is the period.  Cost: linear in instructions. */

#include "compiler/cost/cost.h"
#include "compiler/schedule/schedule.h"

struct sim_interval {
    int64_t start_ns, end_ns; /* start = all parties ready */
};

/* why a role's compute queue was idle; the causes add up to all its idle time */
enum idle_cause { IDLE_WARMUP, IDLE_COOLDOWN, IDLE_COMM, IDLE_WAIT, IDLE_IMBALANCE, NIDLE };
struct sim_role {
    uint32_t ninsns;
    struct sim_interval *insns; /* by instruction of the role's program */
    int64_t busy_ns, idle_ns[NIDLE];
    int64_t first_ns, last_ns;     /* of its compute queue */
    uint64_t peak_live_bytes;      /* of step buffers defined and still to be used, persistent ones included */
    int64_t peak_ns;
};
struct timeline {
    int64_t step_ns;
    uint32_t nroles;
    struct sim_role *roles;
    double bubble_fraction, exposed_comm_fraction; /* means over ranks, of step_ns */
    int64_t idle_ns[NIDLE];
};

/* programs: placed, ordered, with waits.  NULL and one sentence when the run gets stuck (a deadlock). */
struct timeline *simulate(struct arena *a, const struct cost *c, const struct program *const *programs, uint32_t nroles,
                          const char **why);

/* Run of actions alone, for the search: seconds of one microbatch's forward and backward by stage, and of one boundary
 * transfer by boundary (transfer_s[s]: between stages s and s + 1, both ways; nothing if both are on one rank).  I and W
 * take half of the backward each, O nothing.  Returns the makespan in seconds; the schedule must be runnable. */
double simulate_actions(struct arena *a, const struct schedule *s, const double *forward_s, const double *backward_s,
                        const double *transfer_s);

#endif
