/* Leaves of the tree: a complete decision's memory, a lower bound on its time, and its time with the schedule
 * simulated.
 *
 * A leaf that fits waits in the heap with its bound (pipeline.c's longest path, with what least.c knows of transfers
 * beside it).  When its turn comes its schedule is run action by action, as predict() does it, from the cached
 * blocks.  Where stages may spare layers from recomputation, as many are spared on each rank as its memory allows:
 * for a given cut no pipeline is faster, since a shorter backward delays nobody. */

#include "compiler/model/means.h"
#include "compiler/schedule/schedule.h"
#include "compiler/search/bounds.h"
#include "compiler/search/candidates.h"
#include "compiler/search/leaves.h"
#include "compiler/simulate/predict.h"

#include <math.h>
#include <string.h>

bool search_found(const struct searching *s)
{
    return s->result->ncandidates || s->fits;
}

void search_too_full(struct searching *s, const struct candidate *x)
{
    struct search_result *r = s->result;
    r->removed[REMOVED_MEMORY]++;
    if (s->unlike &&
        search_dimension_value(&x->decision, s->dimension) == search_dimension_value(s->unlike, s->dimension))
        return;
    if (r->has_closest && x->estimate.peak_bytes >= r->closest.estimate.peak_bytes)
        return;
    r->closest = *x;
    r->closest.decision.stages = ARENA_ARRAY(s->arena, struct stage, x->decision.nstages);
    memcpy(r->closest.decision.stages, x->decision.stages, x->decision.nstages * sizeof *x->decision.stages);
    r->has_closest = true;
}

uint64_t search_miss_bytes(const struct searching *s)
{
    const struct search_result *r = s->result;
    if (search_found(s))
        return s->memory_limit;
    return r->has_closest && r->closest.estimate.peak_bytes > s->memory_limit ? r->closest.estimate.peak_bytes
                                                                              : UINT64_MAX;
}

/* Does x's decision fit under one kind of recomputation?  If not, its memory is that of some rank that does not, of the
 * fullest where it is the closest miss; if so, search_finish_leaf() may have to find it.  *spared: every layer is, so
 * that it is the decision without recomputation. */
static bool leaf_fits(struct searching *s, const struct cost *c, const struct search_shape *h,
                      const struct search_sparing *by, struct candidate *x, bool *spared)
{
    struct decision *d = &x->decision;
    struct cost_rooms rooms;
    struct estimate full = {0};
    uint64_t miss_bytes = search_miss_bytes(s);
    *spared = false;
    memcpy(s->scratch, d->stages, d->nstages * sizeof *d->stages);
    d->stages = s->scratch;
    decision_spare(d);
    cost_rooms_init(&rooms, c, &h->shape);
    cost_rooms_keep(&rooms, s->stages_known);
    enum spare_fate fate = by ? search_spare(s, by, &rooms, d, &full) : SPARE_FULL;
    if (fate == SPARE_SLOW) {
        s->result->removed[REMOVED_BOUND]++;
        return false;
    }
    if (fate == SPARE_FITS) {
        uint32_t again = 0;
        for (uint32_t i = 0; i < d->nstages; i++)
            again += d->stages[i].count - d->stages[i].spared;
        *spared = again == 0;
        if (d->schedule != SCHED_DUALPIPE) /* whose ranks have stages of others */
            return true;
    } else if (by) {
        if (full.peak_bytes >= miss_bytes) {
            x->estimate = full;
            s->result->removed[REMOVED_MEMORY]++;
            return false;
        }
        decision_spare(d);
    }
    bool whole = cost_rooms_fullest(&rooms, miss_bytes, &x->estimate);
    if (x->estimate.peak_bytes <= s->memory_limit)
        return true;
    if (whole)
        search_too_full(s, x);
    else
        s->result->removed[REMOVED_MEMORY]++;
    return false;
}

/* at most 3 actions per stage and microbatch; longer schedules are left to the closed form */
#define MOST_ACTIONS ((uint64_t)2 << 20)
/* so many actions take as long as an evaluation in closed form; they are run three times */
#define ACTIONS_PER_EVALUATION 32

static bool is_long(const struct decision *d)
{
    return 3 * (uint64_t)d->nstages * d->microbatches > MOST_ACTIONS;
}

/* seconds of a microbatch on one rank, less what pairs may hide */
static double work_s(const struct cost_stage *r)
{
    return r->forward_s + r->forward_comm_s + r->backward_s + r->backward_comm_s - r->forward_hidden_s -
           r->backward_hidden_s;
}

struct search_stages search_stages(const struct cost *c, const struct search_shape *h, struct cost_stage *ranks,
                                   struct pipeline_stage *stages)
{
    const struct decision *d = c->decision;
    struct search_stages x = {.ranks = ranks};
    double fullest[2] = {0};
    cost_pipeline(c, &h->shape, ranks, stages, &x.times);
    if (!is_long(d))
        cost_clear_copies(c, &h->shape, stages); /* transfers beside the actions account for them */
    for (uint32_t r = 0; r < d->pp; r++) {
        double own = work_s(&ranks[r]);
        fullest[0] = cost_larger(fullest[0], own);
        fullest[1] = cost_larger(fullest[1], (own + work_s(&ranks[d->pp - 1 - r])) / 2);
    }
    x.work_s[0] = d->microbatches * fullest[0];
    x.work_s[1] = d->microbatches * fullest[1];
    x.body = cost_body(c, ranks);
    return x;
}

/* the stages' times for d's schedule */
static struct pipeline_times times_of(const struct searching *s, const struct search_stages *x,
                                      const struct decision *d)
{
    struct pipeline_times times = x->times;
    times.skewed = decision_skews(s->job, d) || s->job->wishes.profile->post_validation > 0.5;
    return times;
}

struct search_pipeline search_pipeline(struct searching *s, const struct search_stages *x, const struct decision *d)
{
    struct estimate e = {0};
    struct pipeline_times times = times_of(s, x, d);
    double pipeline_s = pipeline_bound_s(d, &times) * (1 - 1e-9);
    cost_items(&x->body, pipeline_s, cost_smaller(pipeline_s, x->work_s[d->schedule == SCHED_DUALPIPE]), &e);
    s->result->spent++;
    return (struct search_pipeline){pipeline_s, e.step_time_s, e.stage_forward_s};
}

double search_longer_s(struct searching *s, const struct search_stages *x, const struct decision *d,
                       const double *longer_s)
{
    struct pipeline_times times = times_of(s, x, d);
    s->result->spent += ++s->nprobes % 8 == 0; /* the stages' times are known */
    return pipeline_longer_s(d, &times, longer_s) * (1 - 1e-9);
}

struct search_tail search_tail(struct searching *s, const struct cost *c, const struct search_shape *h,
                               const struct search_stages *x, const struct cost_movers *by, bool longer)
{
    struct search_tail out = {{0}, 0};
    struct arena_mark mark = arena_mark(s->arena);
    if (is_long(c->decision)) { /* its time is that of the closed form */
        struct estimate e = {0};
        cost_tail(c, x->ranks, &e);
        out.seam_s = e.dp_comm_s + e.optimizer_s;
        return out;
    }
    struct pipeline_times times = times_of(s, x, c->decision);
    cost_moves_by(s->arena, c, &h->shape, x->ranks, by, &times);
    out.least = cost_least(c, &times, longer);
    out.seam_s = cost_seam_s(c, x->ranks, longer);
    arena_reset(s->arena, mark);
    return out;
}

/* With lower bounds P on a run of the actions alone and W on one with everything beside them, a step is P's items
 * and W - P.  The items grow with P by no less than P does, unless ranks share cores. */
double search_step_s(const struct cost *c, const struct search_pipeline *x, const struct search_tail *t)
{
    double step_s = x->step_s + c->crowd * t->least.beside_s;
    if (c->crowd <= 1)
        step_s = cost_larger(step_s, x->step_s - x->pipeline_s + t->least.whole_s * (1 - 1e-9));
    return (step_s + t->seam_s) * (1 - 1e-9);
}

/* Lower bound in seconds on a run of c's actions where transfers beside them make them longer. */
static double stretched_s(struct searching *s, const struct cost *c, const struct search_shape *h,
                          const struct search_stages *x, const struct cost_movers *by)
{
    struct arena_mark mark = arena_mark(s->arena);
    struct pipeline_times times = times_of(s, x, c->decision);
    struct pipeline_stage *stages = ARENA_ARRAY(s->arena, struct pipeline_stage, c->decision->nstages);
    cost_moves_by(s->arena, c, &h->shape, x->ranks, by, &times);
    double beside_s = cost_least_stretch(c, &times, stages), whole_s = 0;
    times.stages = stages;
    if (beside_s > 0) {
        whole_s = pipeline_bound_s(c->decision, &times) * (1 - 1e-9) + beside_s;
        s->result->spent++;
    }
    arena_reset(s->arena, mark);
    return whole_s;
}

double search_leaf_bound_s(struct searching *s, const struct cost *c, const struct search_shape *h)
{
    struct search_stages x = search_stages(c, h, s->ranks, s->stages);
    struct search_pipeline p = search_pipeline(s, &x, c->decision);
    struct cost_movers by = cost_movers(c);
    struct search_tail t = search_tail(s, c, h, &x, &by, false);
    if (!is_long(c->decision) && (c->decision->zero >= 2 || c->job->wishes.offload & OFFLOAD_ACTIVATIONS))
        t.least.whole_s = cost_larger(t.least.whole_s, stretched_s(s, c, h, &x, &by));
    return search_step_s(c, &p, &t);
}

/* The same with the schedule simulated action by action: predict()'s figures, from the cached shape. */
bool search_time(struct searching *s, const struct cost *c, const struct search_shape *h, double most_s,
                 struct estimate *e)
{
    const struct decision *d = c->decision;
    uint64_t actions = 3 * (uint64_t)d->nstages * d->microbatches;
    if (is_long(d) || schedule_unsupported(s->arena, d)) {
        cost_time(c, &h->shape, s->ranks, s->stages, e);
        return true;
    }
    s->result->simulated++;
    s->result->spent += actions / ACTIONS_PER_EVALUATION;
    return predict_step(s->arena, c, &h->shape, most_s, e);
}

/* Seconds of a step beyond which a decision is neither kept, nor the fastest, nor counted as too slow. */
static double slowest_s(const struct searching *s, const struct decision *d)
{
    if (s->fewest || s->fastest_s <= 0 || isfinite(search_limit_s(s)))
        return INFINITY;
    double worst = search_worst(s);
    return cost_larger(s->fastest_s, s->job->wishes.objective == MINIMIZE_GPU_TIME ? worst / d->gpus_used : worst);
}

void search_finish_leaf(struct searching *s, struct leaf *x)
{
    struct search_result *r = s->result;
    struct cost c = *x->cost;
    struct candidate *found = &x->candidate;
    c.decision = &found->decision;
    cost_set_shard(&c);
    if (!found->estimate.peak_bytes)
        cost_memory(&c, &x->shape->shape, &found->estimate);
    if (!search_time(s, &c, x->shape, slowest_s(s, &found->decision), &found->estimate))
        return;
    if (s->fastest_s <= 0 || found->estimate.step_time_s < s->fastest_s)
        s->fastest_s = found->estimate.step_time_s;
    if (found->estimate.step_time_s > search_limit_s(s)) {
        r->removed[REMOVED_TIME]++;
        return;
    }
    search_keep(s, found);
}

/* Keeps x, which fits but cannot be emitted, if it is better than what was kept.  That is for a message alone and
 * decides nothing, so it does not count as work. */
static void keep_refused(struct searching *s, const struct cost *c, const struct search_shape *h,
                         const struct candidate *x, const char *why)
{
    struct search_result *r = s->result;
    uint64_t spent = r->spent, simulated = r->simulated;
    struct candidate found = *x;
    double best = r->has_refused ? search_priced(s, &r->refused) : INFINITY;
    found.cannot = why;
    if (search_objective(s, search_leaf_bound_s(s, c, h), x->decision.gpus_used) <= best) {
        struct cost own = *c;
        found.decision.stages = s->scratch;
        own.decision = &found.decision;
        cost_set_shard(&own);
        cost_memory(&own, &h->shape, &found.estimate);
        if (search_time(s, &own, h, INFINITY, &found.estimate) && found.estimate.step_time_s <= search_limit_s(s) &&
            (!r->has_refused || search_compare(s, &found, &r->refused) < 0)) {
            r->has_refused = true;
            search_copy(s, &found, &r->refused);
        }
    }
    r->spent = spent;
    r->simulated = simulated;
}

/* Does the search try "the first N layers" where no chunk has more than N?  Then it is full recomputation by another
 * name. */
static bool names_too_many(const struct searching *s, const struct decision *d)
{
    bool spares = false;
    for (uint32_t i = 0; i < d->nstages; i++)
        spares |= d->stages[i].spared > 0;
    return d->recompute_layers && !spares && s->job->wishes.recompute == RECOMPUTE_AUTO;
}

enum leaf_fate search_leaf(struct searching *s, struct cost *c, struct search_shape *h, const struct decision *d,
                           const struct search_sparing *by, struct leaf *out)
{
    struct search_result *r = s->result;
    struct candidate *x = &out->candidate;
    const char *why;
    *out = (struct leaf){.candidate = {.decision = *d}, .shape = h};
    c->decision = &x->decision;
    x->decision.ep_nodes = cost_exchange_nodes(c);
    r->spent++;
    bool spared;
    if (!leaf_fits(s, c, h, d->recompute != RECOMPUTE_NONE ? by : NULL, x, &spared))
        return x->estimate.peak_bytes - x->estimate.buffer_bytes > s->memory_limit && d->microbatches > 1 ? LEAF_DEAD
                                                                                                          : LEAF_OUT;
    if (spared)
        return LEAF_SPARED;
    if (s->unlike &&
        search_dimension_value(&x->decision, s->dimension) == search_dimension_value(s->unlike, s->dimension))
        return LEAF_OUT;
    if (names_too_many(s, &x->decision) || !means_allow(s->arena, s->job, &x->decision, &s->foreign))
        return LEAF_OUT;
    if (s->emit_only && !decision_emittable(s->arena, s->job, &x->decision, &why)) {
        s->cannot = why;
        r->removed[REMOVED_EMIT]++;
        if (s->keeps_refused)
            keep_refused(s, c, h, x, why);
        return LEAF_OUT;
    }
    out->bound = search_objective(s, search_leaf_bound_s(s, c, h), d->gpus_used);
    if (out->bound >= search_worst(s)) {
        r->removed[REMOVED_BOUND]++;
        return LEAF_OUT;
    }
    x->decision.stages = ARENA_ARRAY(s->arena, struct stage, d->nstages);
    memcpy(x->decision.stages, s->scratch, d->nstages * sizeof *s->scratch);
    s->fits |= isinf(search_limit_s(s)); /* with a limit it may be too slow */
    return LEAF_GOOD;
}
