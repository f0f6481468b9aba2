/* predict(): cost_estimate() with the schedule simulated.
 *
 * The schedule is run three times: with parameters and gradients moving beside its actions, which gives the step's
 * time; then its actions alone; and without transfers between stages.  The differences give the seconds that each of
 * these is responsible for, and are left out where the step is too slow to matter.  Memory stays the closed form's.
 * Linear in stages * microbatches, at about 100 ns each, and also in layers where pieces move for every microbatch. */

#include "compiler/simulate/predict.h"

#include "compiler/cost/cost_private.h"
#include "compiler/simulate/simulate.h"

#include <math.h>

/* 24 bytes per action, twice */
#define MOST_ACTIONS ((uint64_t)8 << 20)

static bool can_run(struct arena *a, const struct decision *d)
{
    return 3 * (uint64_t)d->nstages * d->microbatches <= MOST_ACTIONS && !schedule_unsupported(a, d);
}

bool predict_jitter(struct arena *a, const struct cost *c, double jitter, uint32_t n, double *even_s, double *runs_s)
{
    const struct decision *d = c->decision;
    if (!can_run(a, d))
        return false;
    struct arena_mark mark = arena_mark(a);
    struct cost_kinds kinds = cost_kinds_new(a, &c->job->model);
    struct cost_shape shape;
    struct pipeline_times times;
    struct cost_stage *ranks = ARENA_ARRAY(a, struct cost_stage, d->pp);
    cost_shape_init(a, c, &kinds, &shape);
    cost_pipeline(c, &shape, ranks, ARENA_ARRAY(a, struct pipeline_stage, d->nstages), &times);
    const struct schedule *s = schedule_new(a, d);
    *even_s = simulate_actions(a, s, &times, NULL, NULL);
    times.jitter = jitter;
    for (uint32_t i = 0; i < n; i++) {
        times.seed = i + 1;
        runs_s[i] = simulate_actions(a, s, &times, NULL, NULL);
    }
    arena_reset(a, mark);
    return true;
}

/* Least seconds of a step whose schedule takes so many with what moves beside it. */
static double least_step_s(const struct cost *c, const struct cost_stage *ranks, const struct cost_body *body,
                           double whole_s)
{
    struct estimate rest = {0};
    cost_rest(c, ranks, 0, &rest);
    return (whole_s + body->slow * body->compute_s + rest.optimizer_s + rest.dp_comm_s) * (1 - 1e-9);
}

bool predict_step(struct arena *a, const struct cost *c, const struct cost_shape *shape, double most_s,
                  struct estimate *e)
{
    const struct decision *d = c->decision;
    struct arena_mark mark = arena_mark(a);
    struct pipeline_times times;
    struct cost_stage *ranks = ARENA_ARRAY(a, struct cost_stage, d->pp);
    struct pipeline_stage *stages = ARENA_ARRAY(a, struct pipeline_stage, d->nstages);
    cost_pipeline(c, shape, ranks, stages, &times);
    cost_clear_copies(c, shape, stages);
    times.pairs = cost_pairs_new(a, c, shape, NULL);
    const struct schedule *s = schedule_new(a, d);
    const struct pipeline_times plain = times;
    cost_moves(a, c, shape, ranks, &times);
    if (times.blocks)
        times.pairs = cost_pairs_new(a, c, shape, times.moves);
    double whole_s = simulate_actions(a, s, &times, NULL, NULL);
    struct cost_body body = cost_body(c, ranks);
    bool fast = least_step_s(c, ranks, &body, whole_s) <= most_s;
    if (fast) {
        double pipeline_s = simulate_actions(a, s, &plain, NULL, NULL), free_s = pipeline_s;
        times.moves = NULL;
        times.pairs = plain.pairs;
        if (d->pp > 1) {
            cost_clear_transfers(d, stages);
            free_s = simulate_actions(a, s, &times, NULL, NULL);
        }
        cost_rest(c, ranks, whole_s - pipeline_s, e);
        cost_items(&body, pipeline_s, free_s, e);
    }
    arena_reset(a, mark);
    return fast;
}

bool predict(struct arena *a, const struct cost *c, struct estimate *e)
{
    struct arena_mark mark = arena_mark(a);
    cost_estimate(a, c, e);
    if (!can_run(a, c->decision)) {
        arena_reset(a, mark);
        return false;
    }
    struct cost_kinds kinds = cost_kinds_new(a, &c->job->model);
    struct cost_shape shape;
    cost_shape_init(a, c, &kinds, &shape);
    predict_step(a, c, &shape, INFINITY, e);
    arena_reset(a, mark);
    return true;
}
