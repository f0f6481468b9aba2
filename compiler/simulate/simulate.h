#ifndef LLMC_SIMULATE_H
#define LLMC_SIMULATE_H

/* Discrete-event simulation of the emitted instructions, with one rank per role.
 *
 * Queues run in order and respect waits.  Roles meet in rendezvous: the k-th send of a channel meets its k-th
 * receive, and collectives over the pp axis or GROUP_TIE meet across their roles; members of a group within a role
 * behave alike and meet at once.  A rendezvous starts when all parties are ready and occupies their queues for its
 * duration.  Times are integer nanoseconds.  The step is run twice back to back (a rank's queues drain in between);
 * what is reported is the second step, with time 0 where the first rank begins it.  Linear in instructions. */

#include "compiler/cost/cost.h"
#include "compiler/cost/pipeline.h"
#include "compiler/schedule/schedule.h"

struct sim_interval {
    int64_t start_ns, end_ns; /* start: when all parties are ready */
};

/* Why a role's compute queue was idle.  An idle interval ends with the start of instruction i, when its last
 * dependency D has ended.  While D itself ran (all its parties were ready) the interval is COMM: exposed
 * communication.  The rest is
 *   WARMUP     before the end of the rank's first F action
 *   COOLDOWN   after its last F, B, I or W instruction until the end of the step
 *   IMBALANCE  otherwise, as far as the rank is faster than the slowest: in all at most the slowest rank's time in
 *              F, B, I and W instructions minus its own
 *   WAIT       otherwise: a dependency was not ready, mostly because of a peer's compute; waited_ns says whose.
 * The causes add up to step_ns - busy_ns exactly. */
enum idle_cause { IDLE_WARMUP, IDLE_COOLDOWN, IDLE_COMM, IDLE_WAIT, IDLE_IMBALANCE, NIDLE };
extern const char *const idle_names[NIDLE]; /* "warm-up", ... */
/* One idle interval of a role's compute queue, or a part of one with a cause of its own: before instruction insn
 * (NONE: at the step's end), which waited for instruction `on` of the same role (NONE: for none) and in the end for
 * role who.  No interval is IMBALANCE: which of a rank's waits these are is not known, only how long. */
struct sim_idle {
    int64_t start_ns, end_ns;
    enum idle_cause cause;
    uint32_t insn, on, who;
};
struct sim_role {
    uint32_t ninsns;
    struct sim_interval *insns; /* by instruction of the role's program */
    /* by instruction: how long it keeps a core busy; NULL where each rank has its own core */
    int64_t *core_ns;
    int64_t begin_ns, end_ns; /* of the role's step; its queues are drained before and after */
    int64_t busy_ns, idle_ns[NIDLE];
    /* WAIT and IMBALANCE, by the role that is waited for; the role's own entry: for its own communication queues */
    int64_t *waited_ns;
    uint32_t nidles;
    struct sim_idle *idles;    /* in order of time; by cause their sums are idle_ns, but IMBALANCE counts as WAIT */
    int64_t first_ns, last_ns; /* first start and last end on its compute queue */
    /* most bytes live at a time: persistent buffers, and step buffers between definition and last use */
    uint64_t peak_live_bytes;
    int64_t peak_ns;
};
struct timeline {
    int64_t step_ns; /* the longest of the roles' second steps, from begin to end */
    uint32_t nroles;
    struct sim_role *roles;
    double bubble_fraction, exposed_comm_fraction; /* shares of step_ns, means over ranks */
    int64_t idle_ns[NIDLE];                        /* sums over roles */
};

/* programs: placed, ordered and with waits.  NULL, with a sentence in *why, where the run deadlocks. */
struct timeline *simulate(struct arena *a, const struct cost *c, const struct program *const *programs, uint32_t nroles,
                          const char **why);

/* Live bytes over time of one role, from its instructions' intervals: changes in order of time, the first at the
 * beginning of the step with the persistent buffers.  A buffer (or a slot of a ring) is live from the start of the
 * instruction that defines it to the end of its last use before the next definition. */
struct live_point {
    int64_t at_ns;
    uint64_t bytes; /* from then on */
};
const struct live_point *simulate_memory(struct arena *a, const struct program *p, const struct sim_role *r,
                                         uint32_t *npoints);
/* Those lives of step buffers, in no particular order: of buffer `buffer`, or of one slot of its ring, from the start
 * of instruction first to the end of instruction last. */
struct live_span {
    uint32_t buffer, first, last;
};
const struct live_span *simulate_lives(struct arena *a, const struct program *p, const struct sim_role *r, uint32_t *n);
/* live bytes at time at_ns, by buffer; of persistent buffers their size */
const uint64_t *simulate_memory_at(struct arena *a, const struct program *p, const struct sim_role *r, int64_t at_ns);

/* Runs a schedule's actions alone, without instructions, with the times of its stages (in the decision's numbering).
 *
 * Returns the seconds of a step: from the first action to the end of the last; or, where the schedule is meant to be
 * skewed and the times say that it is, from the end of one step to the end of the next; or, with times->moves, from
 * one optimizer update of all ranks to the next.  INFINITY where the order deadlocks.  bytes: NULL: 1 per microbatch
 * from F to B or W.  ranks: NULL, or one per pipeline rank to fill in.  Linear; takes about a microsecond per 100
 * actions. */
struct act_bytes {
    const double *keep; /* by stage of the decision: bytes that one microbatch keeps there from F to I or B */
    const double *late; /* bytes from I to W; NULL: as keep */
};
struct act_rank {
    double start_s, end_s, busy_s; /* busy includes the share of transfers during which the sender computes nothing */
    double idle_s;                 /* seconds of the step in which the rank is not busy */
    double peak_bytes, live_bytes; /* live: at the end of the step, which is 0 */
    uint32_t peak, live;           /* microbatches in flight, summed over the rank's stages */
};
double simulate_actions(struct arena *a, const struct schedule *s, const struct pipeline_times *times,
                        const struct act_bytes *bytes, struct act_rank *ranks);

#endif
