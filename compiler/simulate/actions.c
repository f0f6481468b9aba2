/* Run of a schedule's actions, without instructions: one pass over the actions in a runnable order.
 *
 * A rank runs its list in order; F waits for the transfer from the stage before, B and I for the one from the
 * stage after.  A transfer starts when its producer has ended and the one before it on the same boundary and
 * direction is through ("queue per peer and direction", the upper reference of receive placement: the timed
 * order of the emitted instructions is within a few per cent of it).  Receivers always have a free slot:
 * rings are as deep as the schedule needs.  Linear in actions. */

#include "compiler/simulate/simulate.h"

#include <assert.h>

struct act_run {
    const struct schedule *s;
    const double *forward_s, *backward_s, *transfer_s;
    double *rank_s;                   /* when a rank is free */
    double *channel_s;                /* when a boundary is free: 2 * boundary + direction */
    double *forward_in, *backward_in; /* arrival, by stage * microbatches + microbatch */
};

/* arrival of data sent at time `at` over boundary b (stages b and b + 1), direction 0 = towards later stages
 */
static double transfer(struct act_run *run, uint32_t b, uint32_t direction, double at)
{
    if (run->s->stage_rank[b] == run->s->stage_rank[b + 1])
        return at;
    double *channel = &run->channel_s[2 * (size_t)b + direction];
    *channel = (*channel > at ? *channel : at) + run->transfer_s[b];
    return *channel;
}

static void run_action(struct act_run *run, uint32_t rank, const struct action *t)
{
    const struct schedule *s = run->s;
    size_t here = (size_t)t->stage * s->microbatches + t->microbatch;
    double ready = 0, duration = 0;
    if (t->kind == 'F') {
        ready = run->forward_in[here];
        duration = run->forward_s[t->stage];
    } else if (t->kind == 'B' || t->kind == 'I') {
        ready = run->backward_in[here];
        duration = t->kind == 'B' ? run->backward_s[t->stage] : run->backward_s[t->stage] / 2;
    } else if (t->kind == 'W') {
        duration = run->backward_s[t->stage] / 2;
    } else {
        return;
    }
    double end = (run->rank_s[rank] > ready ? run->rank_s[rank] : ready) + duration;
    run->rank_s[rank] = end;
    if (t->kind == 'F' && t->stage + 1 < s->nstages)
        run->forward_in[here + s->microbatches] = transfer(run, t->stage, 0, end);
    else if ((t->kind == 'B' || t->kind == 'I') && t->stage > 0)
        run->backward_in[here - s->microbatches] = transfer(run, t->stage - 1, 1, end);
}

double simulate_actions(struct arena *a, const struct schedule *s, const double *forward_s,
                        const double *backward_s, const double *transfer_s)
{
    struct arena_mark mark = arena_mark(a);
    const char *why;
    uint32_t n;
    const struct schedule_step *order = schedule_order(a, s, &n, &why);
    assert(order);
    size_t cells = (size_t)s->nstages * s->microbatches;
    struct act_run run = {.s = s, .forward_s = forward_s, .backward_s = backward_s, .transfer_s = transfer_s};
    run.rank_s = ARENA_ARRAY(a, double, s->nranks);
    run.channel_s = ARENA_ARRAY(a, double, 2 * (size_t)s->nstages);
    run.forward_in = ARENA_ARRAY(a, double, cells);
    run.backward_in = ARENA_ARRAY(a, double, cells);
    for (uint32_t i = 0; i < n; i++)
        run_action(&run, order[i].rank, &s->actions[order[i].rank][order[i].index]);
    double makespan = 0;
    for (uint32_t r = 0; r < s->nranks; r++)
        makespan = run.rank_s[r] > makespan ? run.rank_s[r] : makespan;
    arena_reset(a, mark);
    return makespan;
}
