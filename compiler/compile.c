/* The list of passes.  Search ranks decisions by its estimate of memory; what counts is the placed arena, so the first
 * candidate whose arena fits is taken. */

#include "compiler/compile.h"

#include "compiler/lower/lower.h"
#include "compiler/place/place.h"

static void progress(const struct compile_options *o, const char *pass)
{
    if (o->progress)
        fprintf(stderr, "\r\033[K%s", pass);
}

uint64_t compile_memory_limit(const struct job *job, const struct topo *topo, const struct decision *d)
{
    const struct topo_gpu *g = &topo->types[d->type].gpu;
    uint64_t most = g->memory_bytes > g->reserve_bytes ? g->memory_bytes - g->reserve_bytes : 0;
    return job->wishes.memory && job->wishes.memory < most ? job->wishes.memory : most;
}

uint64_t compile_peak_bytes(const struct plan *p)
{
    uint64_t peak = 0;
    for (uint32_t r = 0; r < p->nroles; r++) {
        peak = p->train[r]->arena_bytes > peak ? p->train[r]->arena_bytes : peak;
        peak = p->eval[r]->arena_bytes > peak ? p->eval[r]->arena_bytes : peak;
    }
    return peak;
}

struct plan *compile_decision(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                              const struct compile_options *o, const char **why)
{
    struct plan *p = ARENA_NEW(a, struct plan);
    p->job = job;
    p->topo = topo;
    p->decision = *decision;
    p->mesh = plan_mesh(decision);
    struct cost *cost = cost_new(a, job, topo, &p->decision);
    if (o->unit)
        cost->unit = o->costs;
    progress(o, "lowering");
    lower_plan(a, cost, p);
    progress(o, "placing buffers");
    for (uint32_t r = 0; r < p->nroles; r++) {
        place_program(a, p->train[r]);
        place_program(a, p->eval[r]);
    }
    p->ranks = plan_ranks(p);
    progress(o, "simulating");
    p->timeline = simulate(a, cost, (const struct program *const *)p->train, p->nroles, why);
    if (!p->timeline) {
        plan_close(p);
        return NULL;
    }
    return p;
}
