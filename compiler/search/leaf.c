/* Leaves of the tree: a complete decision's memory, its time from below, and its time with the schedule run.
 *
 * A leaf that fits waits in the heap with its bound (pipeline.c's longest path); its turn come, its schedule
 * is run action by action as predict() does it, from the cached blocks.  Where stages may spare layers from
 * recomputation, as many are spared on each rank as its memory allows: with the cut
 * given no pipeline is faster, for less backward delays nobody. */

#include "compiler/schedule/schedule.h"
#include "compiler/search/search_private.h"
#include "compiler/simulate/predict.h"

#include <math.h>
#include <string.h>

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

static uint64_t search_miss_bytes(const struct searching *s)
{
    const struct search_result *r = s->result;
    return r->has_closest && r->closest.estimate.peak_bytes > s->memory_limit ? r->closest.estimate.peak_bytes : UINT64_MAX;
}

/* Memory of x's decision under one kind of recomputation; false if it does not fit: its memory is then that of some rank
 * that does not, of the fullest where it is the closest miss.  *spared: every layer is, so that it is the decision without
 * recomputation. */
static bool leaf_fits(struct searching *s, const struct cost *c, const struct search_shape *h, bool spare,
                      struct candidate *x, bool *spared)
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
    if (spare && search_spare(&rooms, d, s->memory_limit, &full)) {
        uint32_t again = 0;
        for (uint32_t i = 0; i < d->nstages; i++)
            again += d->stages[i].count - d->stages[i].spared;
        *spared = again == 0;
    } else if (spare) {
        if (full.peak_bytes >= miss_bytes) {
            x->estimate = full;
            s->result->removed[REMOVED_MEMORY]++;
            return false;
        }
        decision_spare(d);
    }
    bool whole = cost_rooms_fullest(&rooms, miss_bytes, false, &x->estimate);
    if (x->estimate.peak_bytes <= s->memory_limit)
        return true;
    if (whole)
        search_too_full(s, x);
    else
        s->result->removed[REMOVED_MEMORY]++;
    return false;
}

struct search_stages search_stages(struct searching *s, const struct cost *c, const struct search_shape *h)
{
    const struct decision *d = c->decision;
    struct search_stages x;
    double fullest = 0;
    cost_pipeline(c, &h->shape, s->ranks, s->stages, &x.times);
    for (uint32_t r = 0; r < d->pp; r++)
        fullest = cost_larger(fullest, s->ranks[r].forward_s + s->ranks[r].forward_comm_s + s->ranks[r].backward_s +
                                           s->ranks[r].backward_comm_s - s->ranks[r].forward_hidden_s -
                                           s->ranks[r].backward_hidden_s);
    x.work_s = d->microbatches * fullest;
    x.body = cost_body(c, s->ranks);
    return x;
}

void search_bound(struct searching *s, const struct search_stages *x, const struct decision *d, struct estimate *e)
{
    double pipeline_s = pipeline_bound_s(d, &x->times) * (1 - 1e-9);
    cost_items(&x->body, pipeline_s, cost_smaller(pipeline_s, x->work_s), e);
    s->result->spent++;
}

/* 3 actions for each stage and microbatch at most; a run of more than this many is left to the closed form */
#define MOST_ACTIONS ((uint64_t)2 << 20)
/* actions that take as long as an evaluation in closed form; they run three times */
#define ACTIONS_PER_EVALUATION 32

/* the same with the schedule run action by action: predict()'s figures, from the cached shape */
void search_time(struct searching *s, const struct cost *c, const struct search_shape *h, struct estimate *e)
{
    const struct decision *d = c->decision;
    uint64_t actions = 3 * (uint64_t)d->nstages * d->microbatches;
    if (actions > MOST_ACTIONS || schedule_unsupported(s->arena, d)) {
        cost_time(c, &h->shape, s->ranks, s->stages, e);
        return;
    }
    predict_step(s->arena, c, &h->shape, e);
    s->result->simulated++;
    s->result->spent += actions / ACTIONS_PER_EVALUATION;
}

void search_finish_leaf(struct searching *s, struct leaf *x)
{
    struct search_result *r = s->result;
    struct cost c = *x->cost;
    struct candidate *found = &x->candidate;
    c.decision = &found->decision;
    cost_set_shard(&c);
    search_time(s, &c, x->shape, &found->estimate);
    if (s->fastest_s <= 0 || found->estimate.step_time_s < s->fastest_s)
        s->fastest_s = found->estimate.step_time_s;
    if (found->estimate.step_time_s > search_limit_s(s)) {
        r->removed[REMOVED_TIME]++;
        return;
    }
    search_keep(s, found);
}

enum leaf_fate search_leaf(struct searching *s, struct cost *c, struct search_shape *h,
                           const struct decision *d, bool spare, struct leaf *out)
{
    struct search_result *r = s->result;
    struct candidate *x = &out->candidate;
    const char *why;
    *out = (struct leaf){.candidate = {.decision = *d}, .shape = h};
    c->decision = &x->decision;
    x->decision.ep_nodes = cost_exchange_nodes(c);
    r->spent++;
    bool spared;
    if (!leaf_fits(s, c, h, spare && d->recompute != RECOMPUTE_NONE, x, &spared))
        return x->estimate.peak_bytes - x->estimate.buffer_bytes > s->memory_limit && d->microbatches > 1
                   ? LEAF_DEAD
                   : LEAF_OUT;
    if (spared)
        return LEAF_SPARED;
    if (s->unlike &&
        search_dimension_value(&x->decision, s->dimension) == search_dimension_value(s->unlike, s->dimension))
        return LEAF_OUT;
    if (s->emit_only && !decision_emittable(s->arena, s->job, &x->decision, &why)) {
        s->cannot = why;
        r->removed[REMOVED_EMIT]++;
        return LEAF_OUT;
    }
    struct search_stages stages = search_stages(s, c, h);
    cost_tail(c, s->ranks, &x->estimate);
    search_bound(s, &stages, &x->decision, &x->estimate);
    out->bound = search_objective(s, x->estimate.step_time_s, d->gpus_used);
    if (out->bound >= search_worst(s)) {
        r->removed[REMOVED_BOUND]++;
        return LEAF_OUT;
    }
    x->decision.stages = ARENA_ARRAY(s->arena, struct stage, d->nstages);
    memcpy(x->decision.stages, s->scratch, d->nstages * sizeof *s->scratch);
    return LEAF_GOOD;
}
