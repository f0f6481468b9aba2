/* The list of passes: search decides; fit.c says which of its candidates becomes the plan, for which compile.c lowers
 * instructions, places buffers and simulates the step; then the plan is verified. */

#include "compiler/llmc.h"

#include "compiler/fit.h"
#include "compiler/model/sema.h"

#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum status compile_job(struct arena *a, struct diag *d, struct job *job, struct topo *topo,
                        const struct compile_options *o, struct plan **out, struct verdict **verdict)
{
    TRY(compile_best(a, d, job, topo, o, out, NULL));
    compile_progress(o, "verifying");
    *verdict = verify_plan(a, *out, o->full);
    compile_progress(o, "");
    return (*verdict)->nviolations ? STATUS_BUG : STATUS_OK;
}

/* Searches, and compiles the best candidate that fits with the capacity for expert rows that the job's wishes allow. */
static enum status compile_searched(struct arena *a, struct diag *d, struct job *job, struct topo *topo,
                                    const struct compile_options *o, struct plan **out, struct search_result **result)
{
    double start = now_s();
    uint32_t top = !o->top ? COMPILE_TOP : o->top < PLAN_MOST_TOP ? (uint32_t)o->top : PLAN_MOST_TOP;
    compile_progress(o, "searching");
    diag_show_progress(d, o->progress);
    struct search_result *found = search(a, d, job, topo, top, o->budget, true);
    double seconds = now_s() - start;
    if (result)
        *result = found;
    if (diag_errors(d) || !found->ncandidates)
        return STATUS_NO_PLAN;
    TRY(fit_plan(a, d, job, topo, found, top, o, out));
    (*out)->search = compile_found(a, *out, found, top);
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

struct plan_search compile_found(struct arena *a, const struct plan *p, const struct search_result *found, uint32_t top)
{
    double own = fit_worth(p->job, 1e-9 * (double)p->timeline->step_ns, &p->decision);
    return (struct plan_search){.top = top,
                                .budget = found->budget,
                                .space = found->space,
                                .evaluated = found->evaluated,
                                .pruned = found->pruned,
                                .spent = found->spent,
                                .refused = found->has_refused ? decision_text(a, p->job, &found->refused.decision)
                                                              : NULL,
                                .cannot = found->refused.cannot,
                                .refused_s = found->refused.estimate.step_time_s,
                                .gap = found->least < own ? 1 - found->least / own : 0};
}
