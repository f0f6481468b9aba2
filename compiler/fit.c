/* Which candidate of the search becomes the plan.  Search ranks decisions by its estimate of memory; what counts is the
 * placed arena, so the first candidate whose arena fits is taken, with as much room for rows that come to experts as there is;
 * one with a synthesised schedule must also beat the next ones by its instructions. */

#include "compiler/fit.h"

#include "compiler/support/units.h"

#include <math.h>
#include <string.h>

uint64_t fit_peak_bytes(const struct plan *p)
{
    uint64_t peak = 0;
    for (uint32_t r = 0; r < p->nroles; r++) {
        const struct program *both[] = {p->train[r], p->eval[r]};
        for (int k = 0; k < 2 && both[k]; k++) { /* the evaluation's arena begins behind the training's host memory, too */
            uint64_t bytes = both[k]->arena_bytes - program_host_bytes(both[0]);
            peak = bytes > peak ? bytes : peak;
        }
    }
    return peak;
}

/* does any rank hold rows for experts of others, so that it is a choice how many? */
static bool has_room(const struct job *job, const struct decision *d)
{
    bool experts = false;
    for (uint32_t i = 0; i < job->model.nlayers; i++)
        experts |= job->model.layers[i]->is_moe && !(job->model.layers[i]->moe.capacity > 0);
    return experts && d->ep > 1 && !(d->room > 0) && !(job->train.expert_room > 0);
}

static double usual_room(const struct job *job, const struct topo *topo, const struct decision *d)
{
    return has_room(job, d) ? cost_usual_room(job, &topo->types[d->type].gpu) : d->room;
}

/* The peak with some room for experts' rows.  Buffers are as many with a few microbatches per stage as with all of them, but
 * for what the ends of the step leave lying; who takes a plan by this looks at its own peak. */
static double peak_of_room(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision, double room,
                           const struct compile_options *o)
{
    enum { FILL = 4 };
    struct arena_mark mark = arena_mark(a);
    struct decision d = *decision;
    struct cost *cost;
    d.room = room;
    if (d.schedule != SCHED_AUTO && d.schedule != SCHED_FILE && d.microbatches > FILL * d.pp)
        d.microbatches = FILL * d.pp;
    struct plan *p = compile_placed(a, job, topo, &d, o, true, &cost);
    double bytes = (double)fit_peak_bytes(p);
    plan_close(p);
    arena_reset(a, mark);
    return bytes;
}

/* A plan that is too large with the usual room for rows that come to experts, or with room for all of them (0): with as much
 * room as fits, which placement takes almost linearly, so that the plan with room for the mean and this one, of `peak` bytes,
 * say it.  NULL if even the mean does not fit. */
static struct plan *fit_room(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                                 const struct compile_options *o, double usual, double peak, uint64_t limit, const char **why)
{
    struct decision d = *decision;
    double least = peak_of_room(a, job, topo, decision, 1, o);
    if (!(usual > 1)) {
        usual = 1.5;
        peak = peak_of_room(a, job, topo, decision, usual, o);
    }
    if (least > (double)limit || peak <= least)
        return NULL;
    d.room = floor((1 + (usual - 1) * 0.98 * ((double)limit - least) / (peak - least)) * 100) / 100;
    struct plan *p = NULL;
    for (; !p && d.room > 0; d.room = d.room > 1 ? 1 : 0) {
        p = compile_decision(a, job, topo, &d, o, why);
        if (p && fit_peak_bytes(p) > limit) {
            plan_close(p);
            p = NULL;
        }
    }
    return p;
}

static void does_not_fit(struct arena *a, struct diag *d, const struct job *job, const struct decision *nearest,
                         uint64_t peak, uint64_t limit)
{
    diag_error(d, job->wishes.memory_span, "no-plan", "nothing fits in %s bytes. Closest: %s, placed in %s bytes",
               units_show_commas(limit).s, decision_text(a, job, nearest), units_show_commas(peak).s);
    diag_help(d, "allow recompute full, more stages (pp) or a higher zero");
}

/* what compiling candidates has shown so far */
struct finding {
    uint64_t limit, least;           /* bytes; least: of what is too large */
    const struct decision *nearest;  /* that */
    bool stuck;
};

/* The plan of a candidate, with as much room for experts' rows as fits; NULL if it is too large, or stuck. */
static struct plan *fit_candidate(struct arena *a, struct diag *d, struct job *job, struct topo *topo,
                                      const struct candidate *x, const struct compile_options *o, struct finding *f)
{
    const char *why = "";
    struct arena_mark mark = arena_mark(a);
    struct decision roomy = x->decision;
    roomy.room = usual_room(job, topo, &roomy);
    bool bounds = has_room(job, &x->decision);
    f->limit = decision_memory_bytes(job, topo, &roomy);
    uint64_t peak = bounds ? (uint64_t)peak_of_room(a, job, topo, &x->decision, roomy.room, o) : 0;
    if (peak <= f->limit) {
        struct plan *p = compile_decision(a, job, topo, &roomy, o, &why);
        if (!p) {
            diag_error(d, (struct span){0}, "bug", "the lowered step gets stuck: %s", why);
            f->stuck = true;
            return NULL;
        }
        peak = fit_peak_bytes(p);
        if (peak <= f->limit)
            return p;
        plan_close(p);
    }
    struct plan *bounded =
        bounds ? fit_room(a, job, topo, &x->decision, o, roomy.room, (double)peak, f->limit, &why) : NULL;
    if (bounded)
        return bounded;
    if (peak < f->least) {
        f->least = peak;
        f->nearest = &x->decision;
    }
    arena_reset(a, mark);
    return NULL;
}

/* A synthesised schedule is made for times of whole actions; instructions know more (transfers that wait for one another,
 * gradients among them).  So it is taken only where its instructions are no slower than those of the best candidates that
 * have a schedule by formula: p, or the fastest of RIVALS of them. */
static struct plan *fastest_of(struct arena *a, struct diag *d, struct job *job, struct topo *topo, struct plan *p,
                               const struct search_result *found, uint32_t next, const struct compile_options *o,
                               struct finding *f)
{
    enum { RIVALS = 2 };
    bool by_gpus = job->wishes.objective == MINIMIZE_GPU_TIME;
    for (uint32_t i = next, n = 0; i < found->ncandidates && n < RIVALS; i++) {
        if (found->candidates[i].decision.schedule == SCHED_AUTO)
            continue;
        struct plan *rival = fit_candidate(a, d, job, topo, &found->candidates[i], o, f);
        if (!rival)
            continue;
        n++;
        double own = (double)p->timeline->step_ns * (by_gpus ? p->decision.gpus_used : 1);
        double other = (double)rival->timeline->step_ns * (by_gpus ? rival->decision.gpus_used : 1);
        plan_close(other < own ? p : rival);
        p = other < own ? rival : p;
    }
    return p;
}

enum status fit_plan(struct arena *a, struct diag *d, struct job *job, struct topo *topo, const struct search_result *found,
                     const struct compile_options *o, struct plan **plan)
{
    struct plan *p = NULL;
    struct finding f = {.least = UINT64_MAX};
    uint32_t next = 0;
    while (!p && !f.stuck && next < found->ncandidates)
        p = fit_candidate(a, d, job, topo, &found->candidates[next++], o, &f);
    if (p && p->decision.schedule == SCHED_AUTO)
        p = fastest_of(a, d, job, topo, p, found, next, o, &f);
    *plan = p;
    if (f.stuck)
        return STATUS_BUG;
    if (!p)
        does_not_fit(a, d, job, f.nearest, f.least, f.limit);
    return p ? STATUS_OK : STATUS_NO_PLAN;
}
