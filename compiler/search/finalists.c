/* The best candidates again, with virtual stages cut in another way, and with schedules synthesised for their own
 * stages: schedule_auto() with the stages' times and the memory that every rank has left for activations.
 *
 * A formula's schedule does not adapt to uneven stages or slow boundaries.  But synthesising one takes a thousand
 * times as long as running one, so only the best decisions that the search has found are looked at again, one of
 * each group of similar ones, and a few cells that promise more than their formulas give.  A plan whose schedule has
 * a name is easier to read: without 'auto' among the wishes, a synthesised schedule replaces it only if it gains
 * something measurable. */

#include "compiler/model/means.h"
#include "compiler/schedule/schedule.h"
#include "compiler/search/bounds.h"
#include "compiler/search/candidates.h"
#include "compiler/search/leaves.h"
#include "compiler/search/passes.h"
#include "compiler/simulate/simulate.h"

#include <math.h>
#include <string.h>

#define FINALISTS 6
#define BUDGET 3000000u       /* actions run for each candidate, which has 3 per stage and microbatch */
#define RUNS_LEAST 40u        /* at least so many runs of all actions, for large candidates */
#define SKETCH 8u             /* the first schedule of a start takes 1/SKETCH of that budget; */
#define NEAR 1.03             /* if it comes within this factor of what is to be beaten, */
#define REFINED 4u            /* and is among the best so many, it is made again with the whole budget */
#define MOST_ACTIONS 1000000u /* candidates with more actions would take seconds */
#define GAIN 0.002
#define LEANER 0.75
#define ANEW 1.01 /* a schedule is made anew under another ZeRO level if its step is within this factor of the best */

/* bytes: of one microbatch by stage, from F to I and from I to W; memory for activations by rank */
struct room {
    double *keep, *late, *most;
};

static void find_room(struct searching *s, const struct cost *c, const struct search_shape *h, double share,
                      struct room *room)
{
    const struct decision *d = c->decision;
    double limit = (double)s->memory_limit;
    room->keep = ARENA_ARRAY(s->arena, double, d->nstages);
    room->late = ARENA_ARRAY(s->arena, double, d->nstages);
    room->most = ARENA_ARRAY(s->arena, double, d->pp);
    for (uint32_t i = 0; i < d->nstages; i++) {
        room->keep[i] = cost_stage_keep(c, &h->shape, i, true);
        room->late[i] = room->keep[i] + cost_stage_late(c, &h->shape, i); /* rings free nothing at I */
    }
    for (uint32_t r = 0; r < d->pp; r++) {
        struct estimate e = {0};
        double own[DECISION_MOST_VPP], late = 0;
        uint32_t stages = d->schedule == SCHED_DUALPIPE ? 2 : d->vpp;
        for (uint32_t j = 0; j < stages; j++) {
            uint32_t stage = d->schedule == SCHED_DUALPIPE && j ? d->pp - 1 - r : cost_rank_stage(d, r, j);
            own[j] = room->keep[stage];
            late += (room->late[stage] - room->keep[stage]) * pipeline_late(d, r, j);
        }
        cost_rank_memory(c, &h->shape, r, &e);
        double left = fmax(limit - (double)e.peak_bytes, 0) / (1 + c->buffers->allocator_share);
        room->most[r] = share * (pipeline_live_bytes(d, r, own) + late + left);
    }
}

/* Synthesises a schedule for the given room with 1/parts of the budget, and sets the candidate's memory and time;
 * false if there is no schedule. */
static bool make_schedule(struct searching *s, struct cost *c, const struct search_shape *h, const struct room *room,
                          uint32_t parts, struct candidate *out)
{
    struct decision *d = &out->decision;
    uint64_t actions = 3 * (uint64_t)d->nstages * d->microbatches;
    struct pipeline_times times;
    double step_s;
    c->decision = d;
    cost_pipeline(c, &h->shape, s->ranks, s->stages, &times);
    times.pairs = cost_pairs_new(s->arena, c, &h->shape, NULL);
    struct schedule_costs costs = {.times = &times,
                                   .keep_bytes = room->keep,
                                   .late_bytes = room->late,
                                   .most_bytes = room->most,
                                   .folds = d->folds,
                                   .budget = (actions * RUNS_LEAST > BUDGET ? actions * RUNS_LEAST : BUDGET) / parts};
    d->listed = schedule_auto(s->arena, d, &costs, &step_s);
    if (!d->listed)
        return false;
    cost_memory(c, &h->shape, &out->estimate);
    search_time(s, c, h, INFINITY, &out->estimate);
    return true;
}

/* Is the step at least `least` seconds by a bound on any order of the actions?  Only for decisions without hidden
 * transfers.  With fewer seconds in the pipeline a step is shorter by at most as much, times what a slow node
 * stretches. */
static bool nothing_to_gain(struct searching *s, const struct cost *c, const struct search_shape *h,
                            const struct room *room, double least)
{
    const struct decision *d = c->decision;
    struct pipeline_times times;
    cost_pipeline(c, &h->shape, s->ranks, s->stages, &times);
    for (uint32_t i = 0; i < d->nstages; i++)
        if (s->stages[i].forward_hidden_s > 0 || s->stages[i].backward_hidden_s > 0)
            return false;
    struct schedule_costs costs = {.times = &times,
                                   .keep_bytes = room->keep,
                                   .late_bytes = room->late,
                                   .most_bytes = room->most,
                                   .folds = decision_folds(d)};
    struct estimate e = {0};
    double bound_s = schedule_auto_bound_s(s->arena, d, &costs, false);
    cost_step(c, s->ranks, bound_s, bound_s, &e);
    return e.step_time_s >= least;
}

/* If only decisions are wanted that differ from another one in a dimension: does d? */
static bool is_asked_for(const struct searching *s, const struct decision *d)
{
    return !s->unlike || search_dimension_value(d, s->dimension) != search_dimension_value(s->unlike, s->dimension);
}

/* Gives x a schedule of its own, using a share of the free memory, with a step below most_s, made with 1/parts of
 * the budget; false if none is made or none fits. */
static bool synthesise(struct searching *s, const struct candidate *x, double share, double most_s, uint32_t parts,
                       struct candidate *out)
{
    *out = *x;
    struct decision *d = &out->decision;
    uint64_t actions = 3 * (uint64_t)d->nstages * d->microbatches;
    if (d->pp == 1 || actions > MOST_ACTIONS || d->schedule == SCHED_FILE)
        return false;
    struct cost *c = cost_new(s->arena, s->job, s->topo, &x->decision);
    const struct search_shape *h = search_shape(s, c);
    struct room room;
    find_room(s, c, h, share, &room);
    if (nothing_to_gain(s, c, h, &room, most_s))
        return false;
    d->folds = decision_folds(&x->decision);
    d->schedule = SCHED_AUTO;
    d->schedule_group = 0;
    const char *why;
    if (!means_allow(s->arena, s->job, d, &why))
        return false;
    /* transfers that only overlapped pairs hide */
    if (s->emit_only && !decision_emittable(s->arena, s->job, d, &why)) {
        s->result->removed[REMOVED_EMIT]++;
        return false;
    }
    /* each ring is as deep as its own fullest moment, so together they may take more than at any one moment */
    for (int tries = 0; make_schedule(s, c, h, &room, parts, out); tries++) {
        double over = (double)out->estimate.peak_bytes - (double)s->memory_limit;
        if (over <= 0)
            return out->estimate.step_time_s <= search_limit_s(s) && is_asked_for(s, d);
        if (tries == 5 || out->estimate.step_time_s >= most_s) /* with less memory none is faster */
            return false;
        for (uint32_t r = 0; r < d->pp; r++)
            room.most[r] -= 0.6 * over;
    }
    return false;
}

/* Tries candidates with virtual stages again with stages cut as if each had a rank of its own: balanced ranks are
 * not always better with few microbatches. */
static void try_cuts(struct searching *s)
{
    struct search_result *r = s->result;
    const struct search_sparing by = {.shape = NULL};
    uint32_t n = s->layout_stages ? 0 : r->ncandidates;
    struct candidate *all = ARENA_ARRAY(s->arena, struct candidate, n + 1);
    memcpy(all, r->candidates, n * sizeof *all);
    for (uint32_t i = 0; i < n; i++) {
        struct decision d = all[i].decision, even = d;
        if (d.vpp == 1 || d.schedule == SCHED_AUTO || d.schedule == SCHED_FILE)
            continue;
        even.recompute = s->may_spare ? RECOMPUTE_NONE : d.recompute;
        even.parts = s->may_spare ? 0 : d.parts;
        struct cost *c = cost_new(s->arena, s->job, s->topo, &even);
        struct search_shape *h = search_shape(s, c);
        even.pp = d.nstages;
        even.vpp = 1;
        even.schedule = SCHED_1F1B;
        d.stages = search_cut(s, h, &even)->stages;
        struct leaf x;
        c->decision = &d;
        enum leaf_fate fate = search_leaf(s, c, search_shape(s, c), &d, s->may_spare ? &by : NULL, &x);
        x.cost = c;
        if (fate == LEAF_GOOD)
            search_finish_leaf(s, &x);
    }
}

bool search_alike(const struct decision *x, const struct decision *y)
{
    return x->tp == y->tp && x->cp == y->cp && x->dp == y->dp && x->pp == y->pp && x->vpp == y->vpp && x->ep == y->ep &&
           x->etp == y->etp && x->microbatch == y->microbatch && x->sp == y->sp &&
           decision_folds(x) == decision_folds(y);
}

/* decisions that were given a schedule of their own */
struct tried {
    uint32_t n;
    struct decision at[FINALISTS];
};

static bool tried_alike(const struct tried *t, const struct decision *d)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (search_alike(&t->at[i], d))
            return true;
    return false;
}

/* a start, and the seconds of a step with its first schedule */
struct sketch {
    const struct candidate *start;
    double step_s;
};

static void keep_sketch(struct sketch *best, uint32_t *n, const struct sketch *x)
{
    if (*n == REFINED && best[REFINED - 1].step_s <= x->step_s)
        return;
    uint32_t at = *n < REFINED ? (*n)++ : REFINED - 1;
    for (; at > 0 && x->step_s < best[at - 1].step_s; at--)
        best[at] = best[at - 1];
    best[at] = *x;
}

/* Synthesises schedules where they may do best, even if formulas there are too slow to be candidates.  First
 * versions are made with little effort, and the most promising ones are made again. */
static void try_starts(struct searching *s, const struct tried *tried)
{
    struct search_starts *starts = ARENA_NEW(s->arena, struct search_starts);
    struct sketch best[REFINED];
    struct candidate own;
    uint32_t n = 0;
    double most_s = s->result->ncandidates ? s->result->candidates[0].estimate.step_time_s * (1 - GAIN) : INFINITY;
    search_find_starts(s, starts);
    for (uint32_t i = 0; i < starts->n; i++) {
        const struct candidate *x = &starts->at[i].candidate;
        if (!tried_alike(tried, &x->decision) && synthesise(s, x, 1, most_s * NEAR, SKETCH, &own) &&
            own.estimate.step_time_s < most_s * NEAR)
            keep_sketch(best, &n, &(struct sketch){x, own.estimate.step_time_s});
    }
    for (uint32_t i = 0; i < n; i++)
        if (synthesise(s, best[i].start, 1, most_s, 1, &own) && own.estimate.step_time_s < most_s)
            search_keep(s, &own);
}

/* Evaluates x, which has a schedule of its own, under another ZeRO level with that schedule; false if that is not
 * wanted or does not fit. */
static bool at_level(struct searching *s, const struct candidate *x, uint32_t zero, struct candidate *out)
{
    *out = *x;
    struct decision *d = &out->decision;
    const char *why;
    d->zero = zero;
    d->shard = zero ? d->dp * d->cp : 1;
    if (zero == x->decision.zero || !is_asked_for(s, d) || !space_wants(&s->job->wishes.degree[DEG_SHARD], d->shard) ||
        !means_allow(s->arena, s->job, d, &why) || (s->emit_only && !decision_emittable(s->arena, s->job, d, &why)))
        return false;
    struct cost *c = cost_new(s->arena, s->job, s->topo, d);
    const struct search_shape *h = search_shape(s, c);
    cost_memory(c, &h->shape, &out->estimate);
    if (out->estimate.peak_bytes > s->memory_limit)
        return false;
    search_time(s, c, h, INFINITY, &out->estimate);
    return out->estimate.step_time_s <= search_limit_s(s);
}

/* Tries synthesised schedules under other ZeRO levels, whose order may differ from that with formulas; those that
 * come close are kept, since compiled programs rank them more precisely.  Another level leaves other memory for
 * activations: if it is so close that a schedule made for that memory may win, one is made anew. */
static void try_levels(struct searching *s)
{
    struct search_result *r = s->result;
    uint32_t n = r->ncandidates;
    struct candidate *all = ARENA_ARRAY(s->arena, struct candidate, n + 1);
    memcpy(all, r->candidates, n * sizeof *all);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < s->space.zero.n && all[i].decision.schedule == SCHED_AUTO; k++) {
            struct candidate own, anew;
            if (!at_level(s, &all[i], s->space.zero.at[k], &own))
                continue;
            if (own.estimate.step_time_s < all[i].estimate.step_time_s * NEAR)
                search_keep(s, &own);
            double most_s = r->candidates[0].estimate.step_time_s;
            if (own.estimate.step_time_s < most_s * ANEW && synthesise(s, &own, 1, most_s, 1, &anew) &&
                anew.estimate.step_time_s < most_s)
                search_keep(s, &anew);
        }
}

static bool named(const struct wishes *w, enum schedule_kind k)
{
    for (uint32_t i = 0; i < w->nschedules; i++)
        if (w->schedules[i].kind == k)
            return true;
    return false;
}

void search_finalists(struct searching *s)
{
    struct search_result *r = s->result;
    const struct wishes *w = &s->job->wishes;
    bool asked = named(w, SCHED_AUTO);
    try_cuts(s);
    uint32_t n = r->ncandidates;
    if (!asked && w->nschedules)
        return;
    struct candidate *all = ARENA_ARRAY(s->arena, struct candidate, n + 1);
    memcpy(all, r->candidates, n * sizeof *all);
    struct tried tried = {0};
    r->ncandidates = asked ? 0 : n; /* formulas that were not asked for were only starting points */
    for (uint32_t i = 0; i < n && (asked || tried.n < FINALISTS); i++) {
        struct candidate own;
        if (asked && (all[i].decision.pp == 1 || named(w, all[i].decision.schedule)))
            search_keep(s, &all[i]);
        if (!asked && tried_alike(&tried, &all[i].decision))
            continue;
        if (!asked)
            tried.at[tried.n++] = all[i].decision;
        double most_s = asked ? INFINITY : all[i].estimate.step_time_s * (1 - GAIN);
        /* placement may take more memory than estimated */
        if (asked && synthesise(s, &all[i], LEANER, most_s, 1, &own))
            search_keep(s, &own);
        if (synthesise(s, &all[i], 1, most_s, 1, &own) && own.estimate.step_time_s < most_s)
            search_keep(s, &own);
    }
    try_starts(s, &tried);
    try_levels(s);
}
