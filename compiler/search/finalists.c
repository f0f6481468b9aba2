/* The schedules of the best candidates made anew for their own stages: schedule_auto() with the stages' times
 * and the memory that every rank has left for activations.
 *
 * A formula's schedule knows nothing of uneven stages or slow boundaries; but making one for given costs
 * takes a thousand times as long as running one, so only what the search has found is looked at again.  A
 * plan whose schedule has a name is easier to read: without 'auto' among the wishes a synthesised one takes
 * its place only where it gains something that can be measured. */

#include "compiler/schedule/schedule.h"
#include "compiler/search/search_private.h"
#include "compiler/simulate/simulate.h"

#include <math.h>
#include <string.h>

#define FINALISTS 3
#define BUDGET 3000000u       /* actions run, of each; a candidate has 3 per stage and microbatch */
#define RUNS_LEAST 40u        /* runs of all actions, for what is larger */
#define MOST_ACTIONS 1000000u /* more take seconds */
#define GAIN 0.002

/* bytes of activations that each rank has room for beside all else; keep: of each stage */
static void find_room(struct searching *s, const struct cost *c, const struct search_shape *h, double *keep,
                      double *most)
{
    const struct decision *d = c->decision;
    double limit = (double)s->memory_limit;
    for (uint32_t i = 0; i < d->nstages; i++)
        keep[i] = cost_stage_keep(c, &h->shape, i, true);
    for (uint32_t r = 0; r < d->pp; r++) {
        struct estimate e = {0};
        double own[DECISION_MOST_VPP];
        for (uint32_t j = 0; j < d->vpp; j++)
            own[j] = keep[cost_rank_stage(d, r, j)];
        if (d->schedule == SCHED_DUALPIPE)
            own[1] = keep[d->pp - 1 - r];
        cost_rank_memory(c, &h->shape, r, &e);
        double left = fmax(limit - (double)e.peak_bytes, 0) / (1 + c->profile->allocator_share);
        most[r] = pipeline_live_bytes(d, r, own) + left;
    }
}

/* x with a schedule of its own; false where none is made, or it does not fit after all */
static bool synthesise(struct searching *s, const struct candidate *x, struct candidate *out)
{
    *out = *x;
    struct decision *d = &out->decision;
    uint64_t actions = 3 * (uint64_t)d->nstages * d->microbatches;
    if (d->pp == 1 || actions > MOST_ACTIONS || d->schedule == SCHED_AUTO || d->schedule == SCHED_FILE)
        return false;
    struct cost *c = cost_new(s->arena, s->job, s->topo, &x->decision);
    const struct search_shape *h = search_shape(s, c);
    struct pipeline_times times;
    double *keep = ARENA_ARRAY(s->arena, double, d->nstages), *most = ARENA_ARRAY(s->arena, double, d->pp),
           step_s;
    find_room(s, c, h, keep, most);
    cost_pipeline(c, &h->shape, s->ranks, s->stages, &times);
    struct schedule_costs costs = {.times = &times,
                                   .keep_bytes = keep,
                                   .most_bytes = most,
                                   .folds = decision_folds(d),
                                   .budget = actions * RUNS_LEAST > BUDGET ? actions * RUNS_LEAST : BUDGET};
    d->folds = decision_folds(&x->decision);
    d->schedule = SCHED_AUTO;
    d->schedule_group = 0;
    d->listed = schedule_auto(s->arena, d, &costs, &step_s);
    if (!d->listed)
        return false;
    c->decision = d;
    cost_memory(c, &h->shape, &out->estimate);
    search_time(s, c, h, &out->estimate);
    return out->estimate.peak_bytes <= s->memory_limit && out->estimate.step_time_s <= search_limit_s(s) &&
           !(s->unlike &&
             search_dimension_value(d, s->dimension) == search_dimension_value(s->unlike, s->dimension));
}

static bool named(const struct wishes *w, enum schedule_kind k)
{
    for (uint32_t i = 0; i < w->nschedules; i++)
        if (w->schedules[i].kind == k)
            return true;
    return false;
}

/* what 'auto' alone was asked for: formulas were only where to start from */
static void drop_unnamed(struct searching *s)
{
    struct search_result *r = s->result;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->ncandidates; i++) {
        const struct decision *d = &r->candidates[i].decision;
        if (d->pp == 1 || named(&s->job->wishes, d->schedule))
            r->candidates[kept++] = r->candidates[i];
    }
    r->ncandidates = kept;
}

void search_finalists(struct searching *s)
{
    struct search_result *r = s->result;
    bool asked = named(&s->job->wishes, SCHED_AUTO);
    uint32_t n = r->ncandidates, most = s->top < FINALISTS || !asked ? FINALISTS : s->top;
    if (!asked && s->job->wishes.nschedules)
        return;
    struct candidate *all = ARENA_ARRAY(s->arena, struct candidate, n + 1);
    memcpy(all, r->candidates, n * sizeof *all);
    for (uint32_t i = 0; i < n && i < most; i++) {
        struct candidate own;
        if (synthesise(s, &all[i], &own) &&
            (asked || own.estimate.step_time_s < all[i].estimate.step_time_s * (1 - GAIN)))
            search_keep(s, &own);
    }
    if (asked)
        drop_unnamed(s);
}
