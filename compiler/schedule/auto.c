/* Schedules synthesised for given stage times, transfers and memory budgets.
 *
 * Four parts, each starting from the best that the earlier ones found: the formulas of the placement that fit in
 * memory; list scheduling under many rules (auto_greedy.c, auto_rules.c); list scheduling alternately backward and
 * forward in time (auto_urgent.c); and local search on the order itself (auto_local.c).  Every order is measured by
 * a run of all its actions, and the best one found is never replaced by a slower one, so the result is at least as
 * good as the best formula.  The search ends early where the lower bound (auto_bound.c) is reached.
 *
 * List scheduling of pipelines follows Qi et al., 2023, section 3.  Added here are stages with times of their own,
 * several chunks per rank, memory in bytes, rules that differ by rank, and the two further searches.  Deterministic:
 * the budget counts actions run, not seconds. */

#include "compiler/cost/pipeline.h"
#include "compiler/schedule/auto_private.h"
#include "compiler/support/vec.h"

#include <math.h>
#include <string.h>

#define BUDGET 80000000u /* actions run, at 15 to 30 ns each */

bool auto_optimal(const struct auto_search *x)
{
    return x->score.longest_s <= x->bound_s * (1 + 1e-9);
}

/* splitmix64 (Steele, Lea and Flood, 2014) */
uint32_t auto_draw(struct auto_search *x, uint32_t n)
{
    uint64_t z = (x->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (uint32_t)((z >> 32) * n >> 32);
}

bool auto_offer(struct auto_search *x, const struct auto_order *o, struct auto_score *score)
{
    *score = auto_run_order(x->run, o);
    x->spent += x->nactions;
    if (!auto_better(score, &x->score))
        return false;
    x->score = *score;
    auto_order_copy(&x->job, x->best, o);
    return true;
}

/* --- the job --- */

static uint32_t stage_rank(const struct auto_job *job, uint32_t s)
{
    return job->folds && s >= job->p ? 2 * job->p - 1 - s : s % job->p;
}

static uint32_t stage_slot(const struct auto_job *job, uint32_t s)
{
    return stage_rank(job, s) * job->v + s / job->p;
}

static void fill_stage(const struct auto_job *job, const struct schedule_costs *c, uint32_t s, struct relay_stage *st)
{
    uint32_t n = job->p * job->v, rank = stage_rank(job, s);
    relay_stage_times(st, c->times, s, s + 1 < n && stage_rank(job, s + 1) != rank,
                      s > 0 && stage_rank(job, s - 1) != rank);
    st->next = s + 1 < n ? stage_slot(job, s + 1) : NONE;
    st->back = s > 0 ? stage_slot(job, s - 1) : NONE;
    st->keep = c->keep_bytes ? c->keep_bytes[s] : 1;
    st->late = c->late_bytes ? c->late_bytes[s] : st->keep;
    st->rank = rank;
}

static void make_job(struct arena *a, const struct decision *d, const struct schedule_costs *c, struct auto_job *job)
{
    *job = (struct auto_job){.p = d->pp,
                             .v = d->vpp,
                             .m = d->microbatches,
                             .folds = c->folds,
                             .skews = c->times->skewed,
                             .pairs = c->times->pairs,
                             .most = c->most_bytes};
    job->slot = ARENA_ARRAY(a, struct relay_stage, (size_t)d->pp * d->vpp);
    for (uint32_t s = 0; s < d->pp * d->vpp; s++)
        fill_stage(job, c, s, &job->slot[stage_slot(job, s)]);
}

/* can every rank hold one microbatch of each of its stages? */
static bool has_room(const struct auto_job *job)
{
    for (uint32_t r = 0; job->most && r < job->p; r++) {
        double need = 0;
        for (uint32_t c = 0; c < job->v; c++)
            need += job->slot[r * job->v + c].keep;
        if (need > job->most[r])
            return false;
    }
    return true;
}

/* --- the formulas --- */

static bool fits(const struct auto_search *x, const struct auto_order *o)
{
    for (uint32_t r = 0; r < x->job.p; r++)
        if (!auto_order_fits(&x->job, o, r))
            return false;
    return true;
}

/* Does the formula use the job's placement of stages? */
static bool same_placement(const struct auto_job *job, enum schedule_kind k)
{
    if (k == SCHED_DUALPIPE || pipeline_folds(k) != job->folds)
        return false;
    uint32_t chunks = schedule_chunks(k);
    return chunks ? chunks == job->v : job->v > 1 || k == SCHED_COMBINED_1F1B;
}

/* Offers every formula that fits in memory.  *fastest: the one with the shortest step when steps follow each other;
 * returns its seconds, INFINITY if no formula fits. */
static double try_formulas(struct auto_search *x, const struct decision *like, struct auto_order *fastest)
{
    const uint32_t groups[] = {0, 2 * x->job.p, x->job.m};
    double least = INFINITY;
    for (uint32_t k = 0; k < SCHED_AUTO * ARRAY_LEN(groups); k++) {
        struct decision d = *like;
        d.listed = NULL;
        d.schedule = (enum schedule_kind)(k / ARRAY_LEN(groups));
        d.schedule_group = groups[k % ARRAY_LEN(groups)];
        if ((d.schedule_group && schedule_chunks(d.schedule)) || d.schedule_group > x->job.m ||
            !same_placement(&x->job, d.schedule) || schedule_unsupported(x->arena, &d))
            continue;
        struct arena_mark mark = arena_mark(x->arena);
        auto_order_of(&x->job, schedule_new(x->arena, &d), x->trial);
        arena_reset(x->arena, mark);
        if (!fits(x, x->trial))
            continue;
        struct auto_score score;
        auto_offer(x, x->trial, &score);
        double step_s = x->job.skews ? auto_run_step_s(x->run, x->trial) : score.longest_s;
        if (step_s < least) {
            least = step_s;
            auto_order_copy(&x->job, fastest, x->trial);
        }
    }
    return least;
}

/* --- the result --- */

/* Appends a rank's actions; its W's take, in turn, the microbatches that were split into I and W. */
static void emit_rank(const struct auto_job *job, const struct auto_order *o, uint32_t r, uint32_t *scratch,
                      struct schedule *s)
{
    uint32_t v = job->v, m = job->m, *f = scratch, *i = f + v, *w = i + v, *splits = w + v, *split = splits + v;
    memset(scratch, 0, 4 * (size_t)v * sizeof *scratch);
    for (uint32_t k = 0; k < o->n[r]; k++) {
        uint16_t y = o->at[r][k];
        uint32_t c = AUTO_CHUNK(y), microbatch;
        enum relay_kind kind = AUTO_KIND(y);
        microbatch = kind == RELAY_F ? f[c]++ : kind == RELAY_W ? split[c * m + w[c]++] : i[c]++;
        if (kind == RELAY_I)
            split[c * m + splits[c]++] = microbatch;
        schedule_append(s, r, "FIWB"[kind], job -> slot[r * v + c].stage, microbatch);
        s->actions[r][s->nactions[r] - 1].pair = y & AUTO_PAIR;
    }
}

static struct schedule *emit(struct arena *a, const struct auto_job *job, const struct auto_order *o)
{
    struct schedule *s = schedule_empty(a, job->p, job->p * job->v, job->m, (uint64_t)3 * job->v * job->m);
    uint32_t *scratch = ARENA_ARRAY(a, uint32_t, (size_t)job->v * (job->m + 4));
    for (uint32_t r = 0; r < job->p; r++)
        emit_rank(job, o, r, scratch, s);
    s->skews = job->skews;
    schedule_finish(s);
    return s;
}

static struct auto_search *search_new(struct arena *a, const struct decision *d, const struct schedule_costs *c)
{
    struct auto_search *x = ARENA_NEW(a, struct auto_search);
    *x = (struct auto_search){.arena = a, .score = {INFINITY, INFINITY}};
    make_job(a, d, c, &x->job);
    x->nactions = (uint64_t)3 * d->pp * d->vpp * d->microbatches;
    x->budget = c->budget ? c->budget : BUDGET;
    x->run = auto_run_new(a, &x->job);
    x->greedy = auto_greedy_new(a, &x->job);
    x->best = auto_order_new(a, &x->job);
    x->trial = auto_order_new(a, &x->job);
    x->bound_s = auto_bound_s(a, &x->job, false);
    return x;
}

struct schedule *schedule_auto(struct arena *a, const struct decision *d, const struct schedule_costs *c,
                               double *step_s)
{
    struct arena *scratch = arena_new();
    struct auto_search *x = search_new(scratch, d, c);
    struct schedule *s = NULL;
    if (has_room(&x->job)) {
        struct auto_order *formula = auto_order_new(scratch, &x->job);
        double formula_s = try_formulas(x, d, formula);
        auto_try_rules(x, x->budget / (x->job.most ? 2 : 4));
        auto_try_urgent(x, x->budget - x->budget / 20);
        auto_change_order(x, x->budget);
        *step_s = auto_run_step_s(x->run, x->best);
        /* consecutive skewed steps may overlap more than the spans of their ranks show */
        bool kept = *step_s <= formula_s;
        *step_s = kept ? *step_s : formula_s;
        s = emit(a, &x->job, kept ? x->best : formula);
    }
    arena_free(scratch);
    return s;
}

double schedule_auto_bound_s(struct arena *a, const struct decision *d, const struct schedule_costs *c, bool closely)
{
    struct auto_job job;
    make_job(a, d, c, &job);
    return auto_bound_s(a, &job, closely);
}
