/* simulate(): runs two steps by the engine, then derives what is reported from the second one. */

#include "compiler/simulate/engine.h"

#include "compiler/support/parallel.h"

/* Copies the run's intervals from queue order to program order, with time 0 at t0. */
static void report_role(struct arena *a, const struct sim_engine *e, uint32_t role, int64_t t0, struct sim_role *r)
{
    r->ninsns = e->programs[role]->ninsns;
    r->insns = ARENA_ARRAY(a, struct sim_interval, (size_t)r->ninsns + 1);
    r->begin_ns = e->begin_ns[role] - t0;
    r->end_ns = e->end_ns[role] - t0;
    r->first_ns -= t0;
    r->last_ns -= t0;
    for (uint32_t i = 0; i < r->nidles; i++) {
        r->idles[i].start_ns -= t0;
        r->idles[i].end_ns -= t0;
    }
    r->core_ns = e->share ? ARENA_ARRAY(a, int64_t, (size_t)r->ninsns + 1) : NULL;
    const struct sim_actor *actors = &e->actors[(size_t)role * NQUEUES];
    uint32_t last = actors[NQUEUES - 1].first + actors[NQUEUES - 1].count;
    for (uint32_t s = actors[0].first; s < last; s++) {
        const struct sim_interval *t = &e->times[s];
        if (r->core_ns)
            r->core_ns[e->slots[s].insn] = e->slots[s].duration_ns;
        r->insns[e->slots[s].insn] = (struct sim_interval){t->start_ns - t0, t->end_ns - t0};
    }
}

struct peaks {
    const struct program *const *programs;
    struct sim_role *roles;
};

static void find_peak(void *context, uint32_t role)
{
    const struct peaks *p = context;
    struct sim_role *r = &p->roles[role];
    struct arena *scratch = arena_new();
    uint32_t npoints;
    const struct live_point *points = simulate_memory(scratch, p->programs[role], r, &npoints);
    for (uint32_t i = 0; i < npoints; i++) {
        if (points[i].bytes > r->peak_live_bytes) {
            r->peak_live_bytes = points[i].bytes;
            r->peak_ns = points[i].at_ns;
        }
    }
    arena_free(scratch);
}

/* Runs a step twice.  Where programs have seams, a step is its early phase, the check of the previous step, and its
 * body; the first step has nothing to check. */
static bool run_twice(struct sim_engine *e)
{
    uint32_t phase[NPHASES + 1];
    if (!program_phases(e->programs[0], phase))
        return engine_run(e) && engine_run(e);
    return engine_run_phase(e, PHASE_EARLY) && engine_run_phase(e, PHASE_BODY) && engine_run_phase(e, PHASE_EARLY) &&
           engine_run_phase(e, PHASE_CHECK) && engine_run_phase(e, PHASE_BODY);
}

struct timeline *simulate(struct arena *a, const struct cost *c, const struct program *const *programs, uint32_t nroles,
                          const char **why)
{
    struct sim_engine e = {.programs = programs, .nroles = nroles};
    struct timeline *t = ARENA_NEW(a, struct timeline);
    t->nroles = nroles;
    t->roles = ARENA_ARRAY(a, struct sim_role, nroles);
    if (!engine_prepare(a, &e, c, why))
        return NULL;
    if (!run_twice(&e)) {
        *why = engine_stuck(a, &e);
        return NULL;
    }
    int64_t t0 = INT64_MAX;
    for (uint32_t r = 0; r < nroles; r++) {
        int64_t step_ns = e.end_ns[r] - e.begin_ns[r];
        t->step_ns = step_ns > t->step_ns ? step_ns : t->step_ns;
        t0 = e.begin_ns[r] < t0 ? e.begin_ns[r] : t0;
    }
    idle_attribute(a, &e, t);
    for (uint32_t r = 0; r < nroles; r++)
        report_role(a, &e, r, t0, &t->roles[r]);
    parallel_each(nroles, find_peak, &(struct peaks){programs, t->roles});
    return t;
}
