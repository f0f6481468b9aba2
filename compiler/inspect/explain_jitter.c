/* Jitter: the schedule's actions simulated with every duration off by a random share, uniform within +-JITTER.
 *
 * Runs with RUNS seeds give mean and spread of one replica's pipeline.  Replicas meet once per step, in the gradients'
 * reduction, so the step waits for the slowest: mean + spread * sqrt(2 ln replicas), the leading term of the expected
 * maximum of that many normal variables.  Transfers are left out: what is asked for is what uneven computing costs. */

#include "compiler/inspect/explain_private.h"

#include "compiler/schedule/schedule.h"

#include <math.h>

#define JITTER 0.05
#define RUNS 16
/* actions that one run may have; beyond, the mean of so many is as good as its limit */
#define ACTIONS 400000u

struct run {
    const struct schedule *s;
    const struct schedule_step *order;
    uint32_t nsteps;
    const double *forward_s, *backward_s; /* by stage */
    double *rank_s, *forward_in, *backward_in;
};

/* splitmix64 (Steele, Lea and Flood 2014); uniform in [-1, 1) */
static double draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1;
}

static double makespan(struct run *r, double jitter, uint64_t seed)
{
    const struct schedule *s = r->s;
    double end = 0;
    for (uint32_t i = 0; i < s->nranks; i++)
        r->rank_s[i] = 0;
    for (uint32_t i = 0; i < r->nsteps; i++) {
        const struct action *t = &s->actions[r->order[i].rank][r->order[i].index];
        double *rank_s = &r->rank_s[r->order[i].rank], ready = 0, seconds = 0;
        if (t->kind == 'O')
            continue;
        size_t here = (size_t)t->stage * s->microbatches + t->microbatch;
        if (t->kind == 'F') {
            ready = t->stage ? r->forward_in[here] : 0;
            seconds = r->forward_s[t->stage];
        } else {
            ready = t->kind != 'W' && t->stage + 1 < s->nstages ? r->backward_in[here] : 0;
            seconds = r->backward_s[t->stage] / (t->kind == 'B' ? 1 : 2);
        }
        *rank_s = fmax(*rank_s, ready) + seconds * (1 + jitter * draw(&seed));
        if (t->kind == 'F' && t->stage + 1 < s->nstages)
            r->forward_in[here + s->microbatches] = *rank_s;
        else if (t->kind != 'F' && t->kind != 'W' && t->stage > 0)
            r->backward_in[here - s->microbatches] = *rank_s;
        end = fmax(end, *rank_s);
    }
    return end;
}

/* seconds of each stage's forward and backward, from the estimate of its layers */
static void stage_seconds(struct explanation *x, double *forward_s, double *backward_s)
{
    const struct decision *d = &x->chosen.decision;
    const struct estimate *e = &x->chosen.estimate;
    uint32_t n = x->job->model.nlayers;
    double *layer_s = ARENA_ARRAY(x->arena, double, n ? n : 1), embed_s, head_s, longest = 0;
    cost_layers(x->arena, x->cost, layer_s, &embed_s, &head_s);
    for (uint32_t i = 0; i < d->nstages; i++) {
        const struct stage *st = &d->stages[i];
        double sum = (st->embed ? embed_s : 0) + (st->head ? head_s : 0);
        for (uint32_t k = 0; k < st->count; k++)
            sum += layer_s[st->first + k];
        forward_s[i] = sum;
        longest = fmax(longest, sum);
    }
    double slowest = e->stage_forward_s + e->stage_backward_s, share = slowest > 0 ? e->stage_forward_s / slowest : 1.0 / 3;
    for (uint32_t i = 0; i < d->nstages; i++) {
        backward_s[i] = forward_s[i] * (1 - share);
        forward_s[i] *= share;
    }
}

void explain_jitter(struct explanation *x)
{
    const struct decision *d = &x->chosen.decision;
    struct arena *a = x->arena;
    if ((uint64_t)d->nstages * d->microbatches * 2 > ACTIONS || schedule_unsupported(a, d))
        return;
    const struct schedule *s = schedule_new(a, d);
    const char *why;
    struct run r = {.s = s};
    r.order = s ? schedule_order(a, s, &r.nsteps, &why) : NULL;
    if (!r.order)
        return;
    double *forward_s = ARENA_ARRAY(a, double, s->nstages), *backward_s = ARENA_ARRAY(a, double, s->nstages);
    stage_seconds(x, forward_s, backward_s);
    r.forward_s = forward_s;
    r.backward_s = backward_s;
    size_t cells = (size_t)s->nstages * s->microbatches;
    r.rank_s = ARENA_ARRAY(a, double, s->nranks);
    r.forward_in = ARENA_ARRAY(a, double, cells);
    r.backward_in = ARENA_ARRAY(a, double, cells);
    double even = makespan(&r, 0, 0), sum = 0, squares = 0;
    for (uint64_t i = 0; i < RUNS; i++) {
        double t = makespan(&r, JITTER, i + 1) - even;
        sum += t;
        squares += t * t;
    }
    double mean = sum / RUNS, spread = sqrt(fmax(0, squares / RUNS - mean * mean));
    x->has_jitter = even > 0;
    x->jitter_share = JITTER;
    x->jitter_mean = mean / x->chosen.estimate.step_time_s;
    x->jitter_slowest = (mean + spread * sqrt(2 * log(fmax(1, d->dp)))) / x->chosen.estimate.step_time_s;
}
