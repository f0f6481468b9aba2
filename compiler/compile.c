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

struct plan *compile_decision(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                              const struct compile_options *o, const char **why)
{
    struct cost *cost;
    struct plan *p = compile_lowered(a, job, topo, decision, o, false, &cost);
    compile_progress(o, "placing buffers");
    place_roles(a, p->train, p->eval, p->nroles, PLACE_FOR_USE);
    p->ranks = plan_ranks(p);
    compile_progress(o, "simulating");
    p->timeline = simulate(a, cost, (const struct program *const *)p->train, p->nroles, why);
    if (!p->timeline) {
        plan_close(p);
        return NULL;
    }
    return p;
}
