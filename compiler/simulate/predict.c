/* predict(): cost_estimate() with the schedule simulated.
 *
 * The schedule is run three times: its actions alone; then with parameters and gradients moving beside them; and
 * without transfers between stages.  The differences give the seconds that each of these is responsible for.  Memory
 * stays the closed form's.  Linear in stages * microbatches, at about 100 ns each, and also in layers where pieces
 * move for every microbatch. */

#include "compiler/simulate/predict.h"

#include "compiler/cost/cost_private.h"
#include "compiler/simulate/simulate.h"

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

void predict_step(struct arena *a, const struct cost *c, const struct cost_shape *shape, struct estimate *e)
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
    double pipeline_s = simulate_actions(a, s, &times, NULL, NULL), free_s = pipeline_s;
    cost_moves(a, c, shape, ranks, &times);
    struct cost_pairs *alone = times.pairs;
    if (times.blocks)
        times.pairs = cost_pairs_new(a, c, shape, times.moves);
    double whole_s = simulate_actions(a, s, &times, NULL, NULL);
    times.moves = NULL;
    times.pairs = alone;
    if (d->pp > 1) {
        cost_clear_transfers(d, stages);
        free_s = simulate_actions(a, s, &times, NULL, NULL);
    }
    struct cost_body body = cost_body(c, ranks);
    cost_rest(c, ranks, whole_s - pipeline_s, e);
    cost_items(&body, pipeline_s, free_s, e);
    arena_reset(a, mark);
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
    predict_step(a, c, &shape, e);
    arena_reset(a, mark);
    return true;
}
