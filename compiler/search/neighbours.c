/* What would happen if one thing were different: the winner's neighbours, plans without one wish, and changes that
 * make a decision fit.
 *
 * The first two are searches of their own for a job with changed wishes: for a neighbour everything is pinned to the
 * winner's values except one dimension, dp, and what follows from them.  These spaces are small, and the answer is
 * as exact as any search.  Changes of a decision are evaluated one by one. */

#include "compiler/search/passes.h"

#include <string.h>

#define NEIGHBOUR_BUDGET 4000

static void pin(struct wishes *w, enum degree k, uint64_t value)
{
    w->degree[k].relation = REL_EQ;
    w->degree[k].value = value;
}

static void pin_schedule(struct arena *a, struct wishes *w, const struct decision *d)
{
    if (d->schedule == SCHED_FILE) /* no other schedule has the file's kind */
        return;
    struct schedule_wish *wish = ARENA_NEW(a, struct schedule_wish);
    *wish = (struct schedule_wish){.kind = d->schedule, .group = d->schedule_group};
    w->schedules = wish;
    w->nschedules = 1;
}

/* Pins everything that d chooses, as wishes.  dp follows from the number of GPUs, and a shard of all of dp * cp
 * follows from both unless one was asked for. */
static void pin_all(struct arena *a, struct wishes *w, const struct decision *d)
{
    pin(w, DEG_TP, d->tp);
    pin(w, DEG_CP, d->cp);
    pin(w, DEG_PP, d->pp);
    pin(w, DEG_VPP, d->vpp);
    pin(w, DEG_EP, d->ep);
    pin(w, DEG_ETP, d->etp);
    pin(w, DEG_ZERO, d->zero);
    pin(w, DEG_MICROBATCH, d->microbatch);
    pin(w, DEG_GPUS, d->gpus_used);
    w->degree[DEG_DP].relation = REL_ANY;
    if (d->zero && d->shard != d->dp * d->cp)
        pin(w, DEG_SHARD, d->shard);
    w->sequence_parallel = d->sp ? TRI_YES : TRI_NO;
    w->context = d->context;
    pin_schedule(a, w, d);
    w->recompute = d->recompute;
    w->parts = d->parts;
    w->recompute_layers = d->recompute_layers;
    for (uint32_t i = 0; i < NAXES; i++)
        w->order[i] = axis_names[d->order[i]];
    w->norder = NAXES;
}

static void set_degree(struct wishes *w, enum degree k, const struct wishes *as)
{
    w->degree[k] = as->degree[k];
}

/* Sets the dimension's wishes to those of `as`. */
static void set_free(struct wishes *w, enum dimension k, const struct wishes *as)
{
    static const int degree[NDIMENSIONS] = {[DIM_TP] = DEG_TP,
                                            [DIM_SP] = -1,
                                            [DIM_CP] = DEG_CP,
                                            [DIM_CONTEXT] = -1,
                                            [DIM_PP] = DEG_PP,
                                            [DIM_VPP] = DEG_VPP,
                                            [DIM_EP] = DEG_EP,
                                            [DIM_ETP] = DEG_ETP,
                                            [DIM_ZERO] = DEG_ZERO,
                                            [DIM_SHARD] = DEG_SHARD,
                                            [DIM_MICROBATCH] = DEG_MICROBATCH,
                                            [DIM_RECOMPUTE] = -1,
                                            [DIM_SCHEDULE] = DEG_VPP,
                                            [DIM_ORDER] = -1,
                                            [DIM_GPUS] = DEG_GPUS};
    if (degree[k] >= 0)
        set_degree(w, (enum degree)degree[k], as);
    if (k == DIM_TP || k == DIM_SP) /* without tp there is no sequence parallelism to keep */
        w->sequence_parallel = as->sequence_parallel;
    if (k == DIM_CP || k == DIM_CONTEXT)
        w->context = as->context;
    if (k == DIM_ZERO)
        set_degree(w, DEG_SHARD, as);
    if (k == DIM_SCHEDULE || k == DIM_VPP || k == DIM_PP) { /* chunks and schedules go together */
        w->schedules = as->schedules;
        w->nschedules = as->nschedules;
        set_degree(w, DEG_VPP, as);
    }
    if (k == DIM_RECOMPUTE) {
        w->recompute = as->recompute;
        w->parts = as->parts;
        w->recompute_layers = as->recompute_layers;
    }
    if (k == DIM_ORDER) {
        memcpy(w->order, as->order, sizeof w->order);
        w->norder = as->norder;
    }
}

/* do the wishes leave no choice in the dimension? */
static bool pinned(const struct wishes *w, enum dimension k)
{
    static const struct wishes none = {.recompute = RECOMPUTE_AUTO};
    struct wishes a = none, b = none;
    set_free(&a, k, w);
    set_free(&b, k, &none);
    for (uint32_t i = 0; i < NDEGREES; i++)
        if (a.degree[i].relation != b.degree[i].relation)
            return true;
    return a.sequence_parallel != b.sequence_parallel || a.context != b.context || a.nschedules != b.nschedules ||
           a.recompute != b.recompute || a.norder != b.norder;
}

static bool spares(const struct decision *d)
{
    for (uint32_t i = 0; i < d->nstages; i++)
        if (d->stages[i].spared && !d->recompute_layers)
            return true;
    return false;
}

static double worth(const struct wishes *w, const struct candidate *c)
{
    return c->estimate.step_time_s * (w->objective == MINIMIZE_GPU_TIME ? c->decision.gpus_used : 1);
}

/* Finds the neighbour in one dimension.  `as`: the wishes on that dimension. */
static void find_neighbour(struct arena *a, const struct job *job, const struct topo *topo,
                           const struct candidate *winner, bool emit_only, const struct wishes *as,
                           struct neighbour *out)
{
    struct job pinned_job = *job;
    struct searching *s = ARENA_NEW(a, struct searching);
    pin_all(a, &pinned_job.wishes, &winner->decision);
    set_free(&pinned_job.wishes, out->dimension, as);
    *s = (struct searching){.arena = a,
                            .job = &pinned_job,
                            .topo = topo,
                            .emit_only = emit_only,
                            .top = 1,
                            .budget = NEIGHBOUR_BUDGET,
                            .result = ARENA_NEW(a, struct search_result),
                            .unlike = &winner->decision,
                            .dimension = out->dimension,
                            .spare = spares(&winner->decision)};
    struct search_result *r = s->result;
    out->found = out->memory = false;
    if (!search_run(s, diag_new(a)))
        return;
    out->found = r->ncandidates > 0;
    out->memory = !out->found && r->has_closest;
    if (out->found)
        out->candidate = r->candidates[0];
    else if (out->memory)
        out->candidate = r->closest;
    if (out->found)
        out->slower = worth(&job->wishes, &out->candidate) / worth(&job->wishes, winner) - 1;
}

void search_neighbours(struct arena *a, const struct job *job, const struct topo *topo, const struct candidate *winner,
                       bool emit_only, struct neighbour *out)
{
    static const struct wishes none = {.recompute = RECOMPUTE_AUTO};
    for (uint32_t k = 0; k < NDIMENSIONS; k++) {
        out[k] = (struct neighbour){.dimension = (enum dimension)k};
        find_neighbour(a, job, topo, winner, emit_only, &job->wishes, &out[k]);
        if (out[k].found || out[k].memory || !pinned(&job->wishes, out[k].dimension))
            continue;
        out[k].wished = true;
        find_neighbour(a, job, topo, winner, emit_only, &none, &out[k]);
    }
}

const char *search_drop_wish(struct job *job, uint32_t which, struct span *at)
{
    struct wishes *w = &job->wishes;
    static const char *const names[] = {"keep",  "layout",    "schedule", "sequence_parallel", "context",
                                        "order", "recompute", "memory",   "step_time",         "finish"};
    if (which < NDEGREES) {
        *at = w->degree[which].span;
        bool stated = w->degree[which].relation != REL_ANY;
        w->degree[which].relation = REL_ANY;
        return stated ? degree_names[which] : NULL;
    }
    bool stated = false;
    *at = w->span;
    switch (which - NDEGREES) {
    case 0:
        stated = w->nkeeps > 0;
        *at = stated ? w->keeps[0].span : *at;
        w->nkeeps = 0;
        break;
    case 1:
        stated = w->layout != NULL;
        *at = w->layout_span;
        w->layout = NULL;
        break;
    case 2:
        stated = w->nschedules > 0;
        *at = stated ? w->schedules[0].span : *at;
        w->nschedules = 0;
        break;
    case 3:
        stated = w->sequence_parallel != TRI_AUTO;
        *at = w->sequence_parallel_span;
        w->sequence_parallel = TRI_AUTO;
        break;
    case 4:
        stated = w->context != CONTEXT_AUTO;
        w->context = CONTEXT_AUTO;
        break;
    case 5:
        stated = w->norder > 0;
        *at = w->order_span;
        w->norder = 0;
        break;
    case 6:
        stated = w->recompute != RECOMPUTE_AUTO;
        *at = w->recompute_span;
        w->recompute = RECOMPUTE_AUTO;
        w->parts = w->recompute_layers = 0;
        break;
    case 7:
        stated = w->memory > 0;
        *at = w->memory_span;
        w->memory = 0;
        break;
    case 8:
        stated = w->step_time_s > 0;
        w->step_time_s = 0;
        break;
    case 9:
        stated = w->finish_s > 0;
        w->finish_s = 0;
        break;
    }
    return stated ? names[which - NDEGREES] : NULL;
}

uint32_t search_relaxations(struct arena *a, const struct job *job, const struct topo *topo, bool emit_only,
                            uint64_t budget, struct relaxation **out)
{
    *out = ARENA_ARRAY(a, struct relaxation, SEARCH_WISHES);
    uint32_t n = 0;
    for (uint32_t which = 0; which < SEARCH_WISHES; which++) {
        struct job without = *job;
        struct relaxation x = {0};
        x.wish = search_drop_wish(&without, which, &x.span);
        if (!x.wish)
            continue;
        struct searching *s = ARENA_NEW(a, struct searching);
        *s = (struct searching){.arena = a,
                                .job = &without,
                                .topo = topo,
                                .emit_only = emit_only,
                                .top = 1,
                                .budget = budget ? budget : NEIGHBOUR_BUDGET,
                                .result = ARENA_NEW(a, struct search_result)};
        struct diag *unheard = diag_new(a);
        if (search_emit_ready(s, unheard) && search_run(s, unheard) && s->result->ncandidates) {
            x.found = true;
            x.candidate = s->result->candidates[0];
        }
        uint32_t at = n++;
        for (; at > 0 && (*out)[at - 1].span.start > x.span.start; at--)
            (*out)[at] = (*out)[at - 1];
        (*out)[at] = x;
    }
    return n;
}
