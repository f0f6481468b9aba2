/* The list of passes: search decides; then, for a decision, instructions are lowered, buffers placed, the step simulated and
 * the plan verified.  fit.c says which of the search's candidates becomes the plan. */

#include "compiler/llmc.h"

#include "compiler/fit.h"
#include "compiler/lower/lower.h"
#include "compiler/model/sema.h"
#include "compiler/place/place.h"

#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void progress(const struct compile_options *o, const char *pass)
{
    if (o->progress)
        fprintf(stderr, "\r\033[K%s", pass);
}

enum status compile_job(struct arena *a, struct diag *d, struct job *job, struct topo *topo, const struct compile_options *o,
                        struct plan **out, struct verdict **verdict)
{
    TRY(compile_best(a, d, job, topo, o, out, NULL));
    progress(o, "verifying");
    *verdict = verify_plan(a, *out, o->full);
    progress(o, "");
    return (*verdict)->nviolations ? STATUS_BUG : STATUS_OK;
}

/* the best that fits with the room for experts' rows that the job's wishes say */
static enum status compile_searched(struct arena *a, struct diag *d, struct job *job, struct topo *topo,
                                    const struct compile_options *o, struct plan **out, struct search_result **result)
{
    double start = now_s();
    uint32_t top = !o->top ? COMPILE_TOP : o->top < PLAN_MOST_TOP ? (uint32_t)o->top : PLAN_MOST_TOP;
    progress(o, "searching");
    struct search_result *found = search(a, d, job, topo, top, o->budget, true);
    double seconds = now_s() - start;
    if (result)
        *result = found;
    if (diag_errors(d) || !found->ncandidates)
        return STATUS_NO_PLAN;
    TRY(fit_plan(a, d, job, topo, found, top, o, out));
    (*out)->search = compile_found(*out, found, top);
    (*out)->search.seconds = seconds;
    return STATUS_OK;
}

enum status compile_best(struct arena *a, struct diag *d, struct job *job, struct topo *topo,
                         const struct compile_options *o, struct plan **out, struct search_result **result)
{
    job_emits(a, job);
    job->wishes.tight_experts = false;
    if (!fit_room_is_open(job))
        return compile_searched(a, d, job, topo, o, out, result);
    struct diag *own = diag_new(a);
    enum status s = compile_searched(a, own, job, topo, o, out, result);
    if (s != STATUS_NO_PLAN) {
        diag_append(d, own);
        return s;
    }
    job->wishes.tight_experts = true;
    return compile_searched(a, d, job, topo, o, out, result);
}

struct plan_search compile_found(const struct plan *p, const struct search_result *found, uint32_t top)
{
    double own = fit_worth(p->job, 1e-9 * (double)p->timeline->step_ns, &p->decision);
    return (struct plan_search){.top = top,
                                .budget = found->budget,
                                .space = found->space,
                                .evaluated = found->evaluated,
                                .pruned = found->pruned,
                                .spent = found->spent,
                                .refused = found->removed[REMOVED_EMIT],
                                .gap = found->least < own ? 1 - found->least / own : 0};
}

/* all programs; the fullest role's memory counts, so what takes less than one before it is placed as is usual */
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
    progress(o, "placing buffers");
    place_roles(a, p);
    p->ranks = plan_ranks(p);
    progress(o, "simulating");
    p->timeline = simulate(a, cost, (const struct program *const *)p->train, p->nroles, why);
    if (!p->timeline) {
        plan_close(p);
        return NULL;
    }
    return p;
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
    progress(o, "lowering");
    (training_alone ? lower_training : lower_plan)(a, cost, p);
    return p;
}
