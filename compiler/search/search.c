/* A search: its state, its candidates and its gap.
 *
 * branch.c opens the tree of decisions, best bound first, and passes on what is feasible; here the best are kept.
 * When the tree is exhausted, nothing in the space (space.h) is better than the first candidate; when the budget
 * ends before that, the least remaining bound says how much better any other decision could be: `gap`.
 *
 * Candidates are ordered by step time (or GPU-seconds), raised by the share that each departure from plain data
 * parallelism must gain to be worth its complexity (price()): one to two percent in all, which is less than the
 * model can resolve; then by degrees, so that ties are broken deterministically.  What this preference may cost is
 * part of the gap, and the fastest decision is kept beside the candidates. */

#include "compiler/export/export.h"
#include "compiler/search/candidates.h"
#include "compiler/search/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* shares of the step that a candidate must gain */
#define DIMENSION_PRICE 0.002
#define SCHEDULE_PRICE 0.003
#define CHUNKS_PRICE 0.001
#define RECOMPUTE_PRICE 0.002
#define MEMORY_PRICE 0.003 /* for using all of the memory */

const char *const removal_names[NREMOVALS] = {"bound", "memory", "keep", "step time", "not emitted", "same transfers"};
const char *const dimension_names[NDIMENSIONS] = {
    "tp",    "sequence_parallel", "cp",        "context",  "pp",    "vpp", "ep", "etp", "zero",
    "shard", "microbatch",        "recompute", "schedule", "order", "gpus"};

double search_limit_s(const struct searching *s)
{
    const struct wishes *w = &s->job->wishes;
    const struct train *t = &s->job->train;
    double limit = w->step_time_s > 0 ? w->step_time_s : INFINITY;
    if (w->finish_s > 0 && t->total > 0)
        limit = fmin(limit, w->finish_s * (double)t->batch * (double)t->sequence / t->total);
    return limit;
}

double search_objective(const struct searching *s, double step_time_s, uint32_t gpus)
{
    if (s->fewest) /* ties by time, weighted so that it never outweighs a GPU */
        return step_time_s > search_limit_s(s) ? INFINITY : gpus + 0.25 * step_time_s / search_limit_s(s);
    return s->job->wishes.objective == MINIMIZE_GPU_TIME ? step_time_s * gpus : step_time_s;
}

/* The share of its step by which a candidate must be faster than one without its departures from the plain layout. */
static double price(const struct searching *s, const struct candidate *c)
{
    const struct decision *d = &c->decision;
    double used = (double)c->estimate.peak_bytes / (double)(s->memory_limit ? s->memory_limit : 1);
    int dimensions = (d->tp > 1) + (d->cp > 1) + (d->pp > 1) + (d->ep > 1);
    bool usual = d->schedule == SCHED_GPIPE || d->schedule == SCHED_1F1B || d->schedule == SCHED_INTERLEAVED;
    return DIMENSION_PRICE * dimensions + (d->pp == 1 || usual ? 0 : SCHEDULE_PRICE) + (d->vpp > 1 ? CHUNKS_PRICE : 0) +
           (d->recompute == RECOMPUTE_NONE ? 0 : RECOMPUTE_PRICE) + MEMORY_PRICE * fmin(1, used);
}

double search_priced(const struct searching *s, const struct candidate *c)
{
    return search_objective(s, c->estimate.step_time_s, c->decision.gpus_used) * (1 + price(s, c));
}

/* Tie breakers: fewer GPUs, smaller degrees, simpler schedules. */
enum { NTIES = 17 };
static void tie_values(const struct decision *d, uint32_t out[NTIES])
{
    uint32_t order = 0, spared = 0;
    for (uint32_t i = 0; i < NAXES; i++)
        order = order * NAXES + d->order[i];
    for (uint32_t i = 0; i < d->nstages; i++)
        spared += d->stages[i].spared;
    const uint32_t v[NTIES] = {d->gpus_used,
                               d->tp,
                               d->cp,
                               d->pp,
                               d->ep,
                               d->etp,
                               d->zero,
                               d->vpp,
                               d->recompute,
                               d->microbatch,
                               d->schedule == SCHED_GPIPE ? NSCHEDULES : d->schedule,
                               d->schedule_group,
                               d->sp,
                               d->context,
                               d->parts,
                               spared,
                               d->shard};
    memcpy(out, v, sizeof v);
    out[NTIES - 1] = out[NTIES - 1] * 256 + order;
}

int search_compare(const struct searching *s, const struct candidate *x, const struct candidate *y)
{
    double a = search_priced(s, x), b = search_priced(s, y);
    if (a != b)
        return a < b ? -1 : 1;
    uint32_t u[NTIES], v[NTIES];
    tie_values(&x->decision, u);
    tie_values(&y->decision, v);
    for (size_t i = 0; i < NTIES; i++)
        if (u[i] != v[i])
            return u[i] < v[i] ? -1 : 1;
    return 0;
}

double search_worst(const struct searching *s)
{
    return s->result->ncandidates < s->top ? INFINITY : search_priced(s, &s->result->candidates[s->top - 1]);
}

double search_best(const struct searching *s)
{
    return s->result->ncandidates ? search_priced(s, &s->result->candidates[0]) : INFINITY;
}

void search_copy(struct searching *s, const struct candidate *c, struct candidate *own)
{
    *own = *c;
    own->decision.stages = ARENA_ARRAY(s->arena, struct stage, c->decision.nstages);
    memcpy(own->decision.stages, c->decision.stages, c->decision.nstages * sizeof *c->decision.stages);
}

static void note_fastest(struct searching *s, const struct candidate *c)
{
    struct candidate *f = &s->result->fastest;
    if (!f->decision.nstages || search_objective(s, c->estimate.step_time_s, c->decision.gpus_used) <
                                    search_objective(s, f->estimate.step_time_s, f->decision.gpus_used))
        search_copy(s, c, f);
}

void search_keep(struct searching *s, const struct candidate *c)
{
    struct search_result *r = s->result;
    uint32_t at = r->ncandidates;
    note_fastest(s, c);
    while (at > 0) {
        int order = search_compare(s, c, &r->candidates[at - 1]);
        if (order == 0)
            return; /* already found by the dive */
        if (order > 0)
            break;
        at--;
    }
    if (at >= s->top)
        return;
    uint32_t moved = (r->ncandidates < s->top ? r->ncandidates : s->top - 1) - at;
    memmove(&r->candidates[at + 1], &r->candidates[at], moved * sizeof *c);
    search_copy(s, c, &r->candidates[at]);
    if (r->ncandidates < s->top)
        r->ncandidates++;
}

uint64_t search_dimension_value(const struct decision *d, enum dimension k)
{
    uint64_t v = 0;
    switch (k) {
    case DIM_TP:
        return d->tp;
    case DIM_SP:
        return d->sp;
    case DIM_CP:
        return d->cp;
    case DIM_CONTEXT:
        return d->context;
    case DIM_PP:
        return d->pp;
    case DIM_VPP:
        return d->vpp;
    case DIM_EP:
        return d->ep;
    case DIM_ETP:
        return d->etp;
    case DIM_ZERO:
        return d->zero;
    case DIM_SHARD:
        return d->shard;
    case DIM_MICROBATCH:
        return d->microbatch;
    case DIM_RECOMPUTE:
        return (uint64_t)d->recompute << 32 | d->parts;
    case DIM_SCHEDULE:
        return (uint64_t)d->schedule << 32 | d->schedule_group;
    case DIM_ORDER:
        for (uint32_t i = 0; i < NAXES; i++)
            v = v * NAXES + d->order[i];
        return v;
    case DIM_GPUS:
        return d->gpus_used;
    case NDIMENSIONS:
        break;
    }
    return 0;
}

/* Reads the layout, a wish that a search takes as given; false after an error. */
static bool read_layout(struct searching *s, struct diag *d)
{
    const struct wishes *w = &s->job->wishes;
    if (!w->layout)
        return true;
    struct decision x = {0};
    const char *why;
    if (!decision_parse_layout(s->arena, &x, s->job->model.nlayers, w->layout, &why)) {
        diag_error(d, w->layout_span, "no-plan", "no plan: %s", why);
        return false;
    }
    s->layout_stages = x.stages;
    s->layout_nstages = x.nstages;
    return true;
}

/* .refused: what the target's launch files cannot say of the job */
static struct export told(struct arena *a, const struct job *job)
{
    struct export x = {.arena = a};
    export_try_job(&x, job);
    export_free(&x);
    return x;
}

static const char *untold_text(struct arena *a, const struct job *job, const char *what)
{
    return arena_printf(a, "target %s cannot be told of %s", job_target(job), what);
}

const char *search_untold(struct arena *a, const struct job *job)
{
    struct export x = told(a, job);
    return x.refused.n ? untold_text(a, job, x.refused.at[0]) : NULL;
}

static void certify(struct searching *s)
{
    struct search_result *r = s->result;
    const char *untold = search_untold(s->arena, s->job);
    r->budget = s->most ? s->most : s->budget;
    r->removed[REMOVED_KEEP] = s->space.keeps_refused;
    for (uint32_t i = 0; i < r->ncandidates; i++) {
        struct candidate *x = &r->candidates[i];
        const char *why = untold;
        x->emittable = !why && decision_emittable(s->arena, s->job, &x->decision, &why);
        x->cannot = x->emittable ? NULL : why;
    }
    if (!r->ncandidates)
        return;
    const struct candidate *x = &r->candidates[0];
    r->has_refused &= search_compare(s, &r->refused, x) < 0;
    double best = search_objective(s, x->estimate.step_time_s, x->decision.gpus_used);
    const struct candidate *y = &r->fastest;
    double seen = fmin(best, search_objective(s, y->estimate.step_time_s, y->decision.gpus_used));
    r->least = fmin(seen, s->cut_short ? s->rest_bound : INFINITY);
    r->given_up = (best - seen) / best;
    r->gap = (best - r->least) / best;
}

/* Does the GPU have more multiprocessors than are reserved for communication? */
static bool can_leave(const struct searching *s, struct diag *d)
{
    const struct topo_gpu *gpu = &s->topo->types[s->space.type].gpu;
    uint32_t wish = s->job->wishes.comm_sms, all = cost_device_sms(gpu);
    if (!wish || wish < all)
        return true;
    if (all)
        diag_error(d, s->job->wishes.span, "no-plan", "no plan: %u sms can't be left for comm, %s has %u", wish,
                   gpu->model, all);
    else
        diag_error(d, s->job->wishes.span, "no-plan", "no plan: sms can't be left for comm, those of %s are not known",
                   gpu->model);
    return false;
}

/* Does the device support the 16-bit format asked for, if any?  Devices without either format round in fp32, as CPUs
 * do in any case. */
static bool can_compute(const struct searching *s, struct diag *d)
{
    const struct topo_gpu *gpu = &s->topo->types[s->space.type].gpu;
    const struct train *t = &s->job->train;
    bool fp16 = t->precision == DT_FP16;
    if (t->precision == DT_FP32 || topo_is_cpu(gpu) || gpu->peak_flop_s[fp16 ? TOPO_FP16 : TOPO_BF16] > 0 ||
        gpu->peak_flop_s[fp16 ? TOPO_BF16 : TOPO_FP16] <= 0)
        return true;
    diag_error(d, t->precision_span, "no-plan", "no plan: %s does not compute in %s", gpu->model,
               fp16                     ? "fp16"
               : t->precision == DT_FP8 ? "bf16, which fp8 needs beside it"
                                        : "bf16");
    diag_help(d, "write 'precision %s', or a <peak> of that type into the cluster file", fp16 ? "bf16" : "fp16");
    return false;
}

bool search_prepare(struct searching *s, struct diag *d)
{
    struct search_result *r = s->result;
    if (!space_new(s->arena, d, s->job, s->topo, s->anything, &s->space) || !read_layout(s, d) || !can_leave(s, d) ||
        !can_compute(s, d))
        return false;
    s->memory_limit = r->memory_limit_bytes = cost_memory_limit(s->job, &s->topo->types[s->space.type].gpu);
    r->candidates = ARENA_ARRAY(s->arena, struct candidate, s->top + 1);
    s->products = cost_products_new(s->arena);
    s->pairs = moments_pairs_new(s->arena);
    s->kinds = cost_kinds_new(s->arena, &s->job->model);
    s->ranks = ARENA_ARRAY(s->arena, struct cost_stage, s->job->model.nlayers + 3);
    s->stages = ARENA_ARRAY(s->arena, struct pipeline_stage, s->job->model.nlayers + 3);
    for (uint32_t i = 0; i < ROW_KINDS; i++) {
        s->row_ranks[i] = ARENA_ARRAY(s->arena, struct cost_stage, s->job->model.nlayers + 3);
        s->row_stages[i] = ARENA_ARRAY(s->arena, struct pipeline_stage, s->job->model.nlayers + 3);
    }
    s->scratch = ARENA_ARRAY(s->arena, struct stage, s->job->model.nlayers + 3);
    s->stages_known = cost_stages_new(s->arena);
    s->layer_s = ARENA_ARRAY(s->arena, double, s->job->model.nlayers + 1);
    s->may_spare = s->spare;
    for (uint32_t i = 0; i < s->space.nrecompute; i++)
        s->may_spare |= s->space.recompute[i].spare;
    for (uint32_t i = 0; i < s->space.nrecompute; i++)
        s->first_layers |= s->space.recompute[i].layers > 0;
    for (uint32_t i = 0; i < s->space.nschedules; i++) {
        enum schedule_kind k = s->space.schedules[i].kind;
        s->overlapping |= decision_pairs(k);
    }
    s->rest_bound = INFINITY;
    return true;
}

bool search_run(struct searching *s, struct diag *d)
{
    if (!search_prepare(s, d))
        return false;
    search_branch(s);
    if (s->diag)
        diag_progress(s->diag, "timing the best that were found");
    search_finalists(s);
    certify(s);
    return true;
}

bool search_gpus_needed(struct arena *a, const struct job *job, const struct topo *topo, bool emit_only,
                        struct candidate *out)
{
    struct searching *s = ARENA_NEW(a, struct searching);
    *s = (struct searching){.arena = a,
                            .job = job,
                            .topo = topo,
                            .emit_only = emit_only,
                            .top = 1,
                            .fewest = true,
                            .budget = SEARCH_BUDGET / 20,
                            .result = ARENA_NEW(a, struct search_result)};
    if (isinf(search_limit_s(s)) || !search_run(s, diag_new(a)) || !s->result->ncandidates)
        return false;
    *out = s->result->candidates[0];
    return true;
}

/* If nothing satisfies the wishes and memory is not the reason: searches again including values that are seldom
 * worthwhile; returns the first search if that finds nothing either. */
static struct searching *search_anything(struct searching *s)
{
    struct searching *x = ARENA_NEW(s->arena, struct searching);
    *x = (struct searching){.arena = s->arena,
                            .diag = s->diag,
                            .job = s->job,
                            .topo = s->topo,
                            .emit_only = s->emit_only,
                            .keeps_refused = s->keeps_refused,
                            .anything = true,
                            .top = s->top,
                            .budget = s->budget,
                            .most = s->most,
                            .result = ARENA_NEW(s->arena, struct search_result)};
    return search_run(x, diag_new(s->arena)) && x->result->ncandidates ? x : s;
}

/* Can the target's launch files say this job?  false after an error for each thing that they cannot. */
static bool can_be_told(const struct searching *s, struct diag *d)
{
    struct export x = told(s->arena, s->job);
    for (size_t i = 0; i < x.refused.n; i++)
        diag_error(d, (struct span){0}, "target", "no plan: %s", untold_text(s->arena, s->job, x.refused.at[i]));
    return !x.refused.n;
}

struct search_result *search(struct arena *a, struct diag *d, const struct job *job, const struct topo *topo,
                             uint32_t top, uint64_t budget, bool emit_only)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    uint64_t most = budget ? budget : SEARCH_BUDGET, first = most / 20 > SEARCH_FIRST ? most / 20 : SEARCH_FIRST;
    first = first < most ? first : most;
    struct searching *s = ARENA_NEW(a, struct searching);
    *s = (struct searching){.arena = a,
                            .diag = d,
                            .job = job,
                            .topo = topo,
                            .emit_only = emit_only,
                            .keeps_refused = emit_only,
                            .top = top ? top : 1,
                            .budget = first,
                            .most = most,
                            .result = ARENA_NEW(a, struct search_result)};
    bool ran = (!emit_only || can_be_told(s, d)) && search_emit_ready(s, d) && search_run(s, d);
    if (ran && !s->result->ncandidates && !s->result->has_closest)
        s = search_anything(s);
    if (ran && !s->result->ncandidates && !s->result->has_closest)
        s = search_leftover(s);
    if (ran && s->job != job)
        search_warn_leftover(s, job, d);
    if (ran)
        search_count_space(s);
    if (ran && s->result->ncandidates == 0)
        search_blame(s, d);
    clock_gettime(CLOCK_MONOTONIC, &end);
    s->result->seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    return s->result;
}
