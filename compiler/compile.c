/* The list of passes.  Search ranks decisions by its estimate of memory; what counts is the placed arena, so the first
 * candidate whose arena fits is taken. */

#include "compiler/compile.h"

#include "compiler/lower/lower.h"
#include "compiler/place/place.h"
#include "compiler/support/units.h"

#include <math.h>
#include <string.h>
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
        const struct program *both[] = {p->train[r], p->eval[r]};
        for (int k = 0; k < 2; k++) {
            uint64_t bytes = both[k]->arena_bytes - program_host_bytes(both[k]);
            peak = bytes > peak ? bytes : peak;
        }
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
    p->mesh = decision_mesh(job, decision);
    struct cost *cost = cost_new(a, job, topo, &p->decision);
    p->decision.offload = job->wishes.offload;
    if (!p->decision.prefetch)
        p->decision.prefetch = cost_prefetch(a, cost);
    if (p->decision.room <= 0)
        p->decision.room = job->train.expert_room;
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

/* does any rank hold rows for experts of others, so that it is a choice how many? */
static bool has_room(const struct job *job, const struct decision *d)
{
    bool experts = false;
    for (uint32_t i = 0; i < job->model.nlayers; i++)
        experts |= job->model.layers[i]->is_moe && !(job->model.layers[i]->moe.capacity > 0);
    return experts && d->ep > 1 && !(d->room > 0) && !(job->train.expert_room > 0);
}

/* Blocks of experts' rows travel whole, so room costs time.  CPU ranks have room for all that can come; on GPUs room is for
 * half as much again as the expected unevenness, and a step that needs more stops with the figure it needs. */
static double usual_room(const struct job *job, const struct topo *topo, const struct decision *d)
{
    bool cpu = !strcmp(topo->types[d->type].gpu.model, "cpu");
    return cpu || !has_room(job, d) ? d->room : 1.5 * job->train.imbalance;
}

/* A plan that is too large with room for all rows that can come to experts: with as much room as fits, which placement
 * takes almost linearly, so that two plans say the third.  NULL if even the mean does not fit. */
static struct plan *compile_room(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                                 const struct compile_options *o, uint64_t limit, const char **why)
{
    struct decision d = *decision;
    double room = 1, bytes[2];
    for (int turn = 0; turn < 2; turn++, room = 1.5) {
        d.room = room;
        struct plan *p = compile_decision(a, job, topo, &d, o, why);
        if (!p)
            return NULL;
        bytes[turn] = (double)compile_peak_bytes(p);
        plan_close(p);
    }
    if (bytes[0] > (double)limit || bytes[1] <= bytes[0])
        return NULL;
    d.room = floor((1 + 0.5 * 0.98 * ((double)limit - bytes[0]) / (bytes[1] - bytes[0])) * 100) / 100;
    struct plan *p = compile_decision(a, job, topo, &d, o, why);
    if (p && compile_peak_bytes(p) <= limit)
        return p;
    if (p)
        plan_close(p);
    d.room = 1;
    return compile_decision(a, job, topo, &d, o, why);
}

static void does_not_fit(struct arena *a, struct diag *d, const struct job *job, const struct decision *nearest,
                         uint64_t peak, uint64_t limit)
{
    diag_error(d, job->wishes.memory_span, "no-plan", "nothing fits in %s bytes. Closest: %s, placed in %s bytes",
               units_show_commas(limit).s, decision_text(a, nearest), units_show_commas(peak).s);
    diag_help(d, "allow recompute full, more stages (pp) or a higher zero");
}

enum status compile_job(struct arena *a, struct diag *d, struct job *job, struct topo *topo, const struct compile_options *o,
                        struct plan **out, struct verdict **verdict)
{
    double start = now_s();
    progress(o, "searching");
    struct search_result *found = search(a, d, job, topo, o->top ? (uint32_t)o->top : 16, o->budget, true);
    double seconds = now_s() - start;
    if (diag_errors(d) || !found->ncandidates)
        return STATUS_NO_PLAN;
    struct plan *p = NULL;
    uint64_t limit = 0, least = UINT64_MAX;
    const struct decision *nearest = NULL;
    for (uint32_t i = 0; i < found->ncandidates; i++) {
        const char *why = "";
        struct arena_mark mark = arena_mark(a);
        struct decision roomy = found->candidates[i].decision;
        roomy.room = usual_room(job, topo, &roomy);
        p = compile_decision(a, job, topo, &roomy, o, &why);
        if (!p) {
            diag_error(d, (struct span){0}, "bug", "the lowered step gets stuck: %s", why);
            return STATUS_BUG;
        }
        limit = compile_memory_limit(job, topo, &p->decision);
        uint64_t peak = compile_peak_bytes(p);
        if (peak <= limit)
            break;
        if (has_room(job, &found->candidates[i].decision)) {
            struct plan *bounded = compile_room(a, job, topo, &found->candidates[i].decision, o, limit, &why);
            if (bounded) {
                plan_close(p);
                p = bounded;
                break;
            }
        }
        if (peak < least) {
            least = peak;
            nearest = &found->candidates[i].decision;
        }
        plan_close(p);
        p = NULL;
        arena_reset(a, mark);
    }
    if (!p) {
        does_not_fit(a, d, job, nearest, least, limit);
        return STATUS_NO_PLAN;
    }
    p->search_space = found->space;
    p->search_evaluated = found->evaluated;
    p->search_pruned = found->pruned;
    p->search_gap = found->gap;
    p->search_seconds = seconds;
    progress(o, "verifying");
    *verdict = verify_plan(a, p, o->full);
    progress(o, "");
    *out = p;
    return (*verdict)->nviolations ? STATUS_BUG : STATUS_OK;
}
