#ifndef LLMC_SIMULATE_H
#define LLMC_SIMULATE_H

/* Discrete-event run of the very instructions emitted, one rank per role: queues in order, waits, rendezvous
 * between roles (the k-th send of a channel meets the k-th receive; collectives over the pp axis or GROUP_TIE
 * meet over their roles); members of a group within a role are alike and meet at once.  A rendezvous starts
 * when all parties are ready and holds their queues for its duration.  Integer nanoseconds.  The step is run
 * twice back to back (a rank's queues drain between); what is reported is the second step, time 0 = the first
 * rank begins it.  Linear in instructions. */

#include "compiler/cost/cost.h"
#include "compiler/cost/pipeline.h"
#include "compiler/schedule/schedule.h"

struct sim_interval {
    int64_t start_ns, end_ns; /* start = all parties ready */
};

/* Why a role's compute queue was idle.  An idle interval ends with the start of instruction i, whose last
 * dependency D ended then.  While D itself ran (all its parties ready) the interval is COMM: exposed
 * communication.  The rest is WARMUP     before the end of the rank's first F action, COOLDOWN   after its
 * last F, B, I or W instruction until the step's end, IMBALANCE  else, as far as the rank is faster than the
 * slowest: in all at most the slowest rank's time in F, B, I and W instructions minus its own, WAIT else: a
 * dependency was not ready, mostly for a peer's compute; waited_ns says whose. The causes add up to step_ns -
 * busy_ns exactly. */
enum idle_cause { IDLE_WARMUP, IDLE_COOLDOWN, IDLE_COMM, IDLE_WAIT, IDLE_IMBALANCE, NIDLE };
extern const char *const idle_names[NIDLE]; /* "warm-up", ... */
struct sim_role {
    uint32_t ninsns;
    struct sim_interval *insns; /* by instruction of the role's program */
    int64_t *core_ns;           /* by instruction: that it keeps a core busy; NULL where each rank has its own */
    int64_t begin_ns, end_ns;   /* of the role's step: queues drained before and after */
    int64_t busy_ns, idle_ns[NIDLE];
    int64_t *waited_ns;        /* by role: WAIT and IMBALANCE; own entry: for its own communication queues */
    int64_t first_ns, last_ns; /* of its compute queue */
    uint64_t peak_live_bytes;  /* of step buffers defined and still to be used, persistent ones included */
    int64_t peak_ns;
};
struct timeline {
    int64_t step_ns; /* period: the longest of the roles' second steps, end to end */
    uint32_t nroles;
    struct sim_role *roles;
    double bubble_fraction, exposed_comm_fraction; /* means over ranks, of step_ns */
    int64_t idle_ns[NIDLE];                        /* sums over roles */
};

/* programs: placed, ordered, with waits.  NULL and one sentence when the run gets stuck (a deadlock). */
struct timeline *simulate(struct arena *a, const struct cost *c, const struct program *const *programs,
                          uint32_t nroles, const char **why);

/* Live bytes over time of one role, from the intervals of its instructions: changes in order of time, the
 * first at the step's begin with the persistent buffers.  A buffer (a slot of a ring) is live from the start
 * of the instruction that defines it to the end of its last use before the next definition. */
struct live_point {
    int64_t at_ns;
    uint64_t bytes; /* from then on */
};
const struct live_point *simulate_memory(struct arena *a, const struct program *p, const struct sim_role *r,
                                         uint32_t *npoints);
/* live bytes of every step buffer at one moment, by buffer; persistent buffers: their size */
const uint64_t *simulate_memory_at(struct arena *a, const struct program *p, const struct sim_role *r,
                                   int64_t at_ns);

/* Run of a schedule's actions alone, with the stages' own times; stages in the decision's numbering.  Returns seconds
 * from the first action to the end of the last, or from one step's end to the next one's where the schedule is meant
 * to be skewed and the times say that it is, or with times->moves from one update of all ranks to the next; INFINITY where
 * the order cannot run.  bytes: NULL: 1 from F to B or W.
 * ranks: NULL, or one per pipeline rank to fill in.  A microsecond per 100 actions or so; linear. */
struct act_bytes {
    const double *keep; /* by stage of the decision: what one microbatch leaves there from F to I or B */
    const double *late; /* from I to W; NULL: as keep */
};
struct act_rank {
    double start_s, end_s, busy_s; /* held transfers count as busy */
    double idle_s;                 /* of the makespan */
    double peak_bytes, live_bytes; /* live: at the end, 0 */
    uint32_t peak, live;           /* microbatches in flight, summed over the rank's stages */
};
double simulate_actions(struct arena *a, const struct schedule *s, const struct pipeline_times *times,
                        const struct act_bytes *bytes, struct act_rank *ranks);

#endif
