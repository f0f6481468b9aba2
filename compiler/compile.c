/* Turns one decision into a plan: lower, place, simulate. */

#include "compiler/compile.h"

#include "compiler/lower/lower.h"
#include "compiler/place/place.h"
#include "compiler/simulate/simulate.h"

void compile_progress(const struct compile_options *o, const char *pass)
{
    if (o->progress)
        fprintf(stderr, "\r\033[K%s", pass);
}

struct plan *compile_lowered(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                             const struct compile_options *o, bool training_alone, struct cost **costs)
{
    struct plan *p = ARENA_NEW(a, struct plan);
    p->job = job;
    p->topo = topo;
    p->decision = *decision;
    if (!p->decision.ep_nodes)
        p->decision.ep_nodes = cost_exchange_nodes(cost_new(a, job, topo, decision));
    p->mesh = decision_mesh(job, &p->decision);
    struct cost *cost = *costs = cost_new(a, job, topo, &p->decision);
    if (!p->decision.prefetch && !(job->wishes.never_overlap & OVERLAP_DP))
        p->decision.prefetch = cost_prefetch(a, cost);
    if (p->decision.room <= 0)
        p->decision.room = job->train.expert_room;
    if (o->unit)
        cost->unit = o->costs;
    compile_progress(o, "lowering");
    (training_alone ? lower_training : lower_plan)(a, cost, p);
    return p;
}

/* Places the buffers of all programs.  Only the memory of the fullest role decides whether a plan fits, so where a
 * role already takes no more than an earlier one, its live ranges are not placed one by one. */
static void place_roles(struct arena *a, struct plan *p)
{
    uint64_t peak = 0;
    for (uint32_t r = 0; r < p->nroles; r++) {
        place_within(a, p->train[r], 0, 0, peak + program_host_bytes(p->train[r]));
        uint64_t host_bytes = program_host_bytes(p->train[r]), bytes = p->train[r]->arena_bytes - host_bytes;
        peak = bytes > peak ? bytes : peak;
        if (p->eval[r])
            place_within(a, p->eval[r], host_bytes, 0, peak + host_bytes);
    }
}

struct plan *compile_decision(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                              const struct compile_options *o, const char **why)
{
    struct cost *cost;
    struct plan *p = compile_lowered(a, job, topo, decision, o, false, &cost);
    compile_progress(o, "placing buffers");
    place_roles(a, p);
    p->ranks = plan_ranks(p);
    compile_progress(o, "simulating");
    p->timeline = simulate(a, cost, (const struct program *const *)p->train, p->nroles, why);
    if (!p->timeline) {
        plan_close(p);
        return NULL;
    }
    return p;
}
