/* Memory of llmrun, whose programs place every buffer before the step: what persists between steps, and the peak
 * over the rank's order of actions (moments.c), from what each block takes while it runs (lives.c).
 *
 * Placement lets buffers share bytes where their live ranges do not overlap, so the peak of live bytes is close to
 * the size of the arena. */

#include "compiler/cost/mem.h"

#include <math.h>

/* Bytes of the places for copies from host memory.  A rank's blocks take two places in turn.  Copies have a queue of
 * their own, in order of time, so that a place is taken again as soon as it is free, by whatever comes next. */
static double places_of(const struct cost_rooms *x, uint32_t r)
{
    const struct decision *d = x->c->decision;
    double most[2] = {0};
    uint32_t piece = 0;
    struct cost_run run;
    for (uint32_t j = 0; j < cost_rank_stages(d) && x->c->job->wishes.offload & OFFLOAD_ACTIVATIONS; j++)
        for (struct cost_runs all = {.x = x, .st = &d->stages[cost_held_stage(d, r, j)]}; cost_next_run(&all, &run);
             piece += (uint32_t)run.times)
            for (uint32_t k = 0; k < 2 && k < run.times; k++)
                most[(piece + k) % 2] = cost_larger(most[(piece + k) % 2], cost_lives(x->c, run.b)->parked);
    return most[0] + most[1];
}

static void join_sums(struct own_sums *all, const struct own_sums *x)
{
    all->dense += x->dense;
    all->experts += x->experts;
    all->dense_vectors += x->dense_vectors;
    all->largest = cost_larger(all->largest, x->largest);
    all->made = cost_larger(all->made, x->made);
    all->part = cost_larger(all->part, x->part);
    all->converted = cost_larger(all->converted, all->late + x->converted);
    all->late += x->late;
    all->workspace = cost_larger(all->workspace, x->workspace);
}

/* Bytes of one place that the rank's blocks gather their parameters in. */
static double gathered_of(const struct cost_rooms *x, uint32_t r)
{
    const struct decision *d = x->c->decision;
    double most = 0;
    struct cost_run run;
    for (uint32_t j = 0; j < cost_rank_stages(d) && d->zero >= 3; j++)
        for (struct cost_runs all = {.x = x, .st = &d->stages[cost_held_stage(d, r, j)]}; cost_next_run(&all, &run);)
            most = cost_larger(most, run.held->largest);
    return most * (x->c->job->train.precision == DT_FP32 ? 4 : 2);
}

/* Optimizer state that is in host memory is fetched into one of two places, each of the size of its bucket's, in the
 * order of updates.  A bucket's copies wait for the update two buckets earlier, and the bucket two later is the
 * first that waits for them. So four buckets may have state on the device at a time, while the gradients of those
 * already updated are free. */
struct updates {
    double place, last[3], gradient; /* bytes of state of the last three buckets; of the last one's gradient */
    double done, first, most; /* bytes of gradients up to the last bucket; of state of the first two; the peak, less the
                               * gradients that are free by then */
    uint32_t n;
};

static void add_update(struct updates *u, double elements, double gradient)
{
    double *last = u->last, own = u->place * elements;
    if (own <= 0)
        return;
    if (u->n++ < 2)
        u->first += own;
    double all = own + last[0] + (last[1] == own ? 0 : last[1]) + (last[2] == last[0] ? 0 : last[2]);
    u->most = cost_larger(u->most, all - (u->done - u->gradient));
    last[2] = last[1];
    last[1] = last[0];
    last[0] = own;
    u->gradient = gradient;
    u->done += gradient;
}

/* The updates of a rank.  Of equal blocks, the first three are enough: they reach the peak of state with the most
 * gradients. */
static struct updates updates_of(const struct cost_rooms *x, uint32_t r)
{
    const struct decision *d = x->c->decision;
    struct updates u = {.place = x->place};
    struct cost_run run;
    for (uint32_t j = 0; j < cost_rank_stages(d) && x->place > 0; j++)
        for (struct cost_runs all = {.x = x, .st = &d->stages[cost_held_stage(d, r, j)]}; cost_next_run(&all, &run);) {
            const struct cost_held *h = run.held;
            double g[3], whole = h->state > 0 ? h->whole_state / h->state : 0;
            for (int k = 0; k < 3; k++)
                g[k] = (h->sums[k] ? x->reduced : x->made) * h->gradients[k];
            g[0] += g[2] + x->reduced * h->begun;
            for (int k = 0; k < 3 && k < run.times; k++) {
                add_update(&u, h->state - h->whole_state, (1 - whole) * g[0]);
                add_update(&u, h->whole_state, whole * g[0]);
                add_update(&u, h->expert_state, g[1]);
            }
            u.done += cost_larger(0, run.times - 3) * (g[0] + g[1]);
        }
    return u;
}

/* Gradients on their way to shards: they are made in two places in turn or, if they are converted, made in one and
 * converted into two others. */
static struct moments_shards shards_made(const struct cost_rooms *x, const struct own_sums *h)
{
    bool shards = x->c->decision->zero >= 2, blocks = x->c->job->wishes.never_overlap & OVERLAP_DP;
    double made = shards ? x->made * h->made : 0, part = shards ? x->reduced * h->part : 0;
    double sent = shards ? x->reduced * h->made : 0;
    double before = blocks ? 0 : cost_converts(x) ? sent : made, first = cost_converts(x) || blocks ? before : 2 * made;
    bool zero3 = x->c->decision->zero >= 3;
    return (struct moments_shards){.own = made,
                                   .sent = cost_converts(x) ? sent : 0,
                                   .before = before,
                                   .part = part,
                                   .most = made + before + part,
                                   .first = first,
                                   .first_b = zero3 && x->ahead == 1 && !cost_converts(x) ? cost_smaller(first, made)
                                                                                          : first,
                                   .uses = zero3 && !blocks ? (double)x->ahead : INFINITY,
                                   .unsure = !cost_converts(x) && !blocks && !zero3,
                                   .converted = cost_converts(x),
                                   .blocks = blocks,
                                   .apart = decision_exchanges_apart(x->c->job, x->c->decision)};
}

/* Adds the stage's transfers from and to stages on other ranks, and what waits between its passes. */
static void add_transfers(const struct cost_rooms *x, uint32_t stage, struct moments_stage *s)
{
    const struct decision *d = x->c->decision;
    uint32_t r = cost_stage_rank(d, stage);
    bool before = stage && cost_stage_rank(d, stage - 1) != r,
         behind = stage + 1 < d->nstages && cost_stage_rank(d, stage + 1) != r;
    s->sent = behind && !x->least ? x->s->boundary_bytes : 0;
    s->received = (before || behind) && !x->least ? x->s->boundary_bytes : 0;
    s->arrives = before && !x->least ? x->s->boundary_bytes : 0;
    s->waits = 0;
    double transfer_s = decision_pairs(d->schedule) ? cost_transfer_s(x->c, x->s->boundary_bytes) : 0;
    s->receives_s[0] = s->sends_s[1] = before ? transfer_s : 0;
    s->receives_s[1] = s->sends_s[0] = behind ? transfer_s : 0;
    const double waits[] = {s->receives_s[0], s->receives_s[1],
                            decision_pairs(d->schedule) && decision_exchanges_apart(x->c->job, d)};
    s->mark = cost_mark(s->mark, waits, sizeof waits);
    if (!waits_are_followed(d))
        return;
    s->waits = x->least ? 0 : x->s->boundary_bytes;
    s->sent = s->received = s->arrives = 0;
}

struct own_stages *cost_stages_new(struct arena *a)
{
    struct own_stages *known = ARENA_NEW(a, struct own_stages);
    known->n = 0;
    return known;
}

static const struct pipeline_stage *stage_seconds(struct arena *a, const struct cost_rooms *x)
{
    struct pipeline_times times;
    cost_pipeline(x->c, x->s, ARENA_ARRAY(a, struct cost_stage, x->c->decision->pp),
                  ARENA_ARRAY(a, struct pipeline_stage, x->c->decision->nstages), &times);
    return times.stages;
}

static double forward_of(const struct cost_shape *s, const struct stage *st, double predict)
{
    double sum = (st->embed ? s->embed.forward_s : 0) +
                 (st->head ? s->head.forward_s + predict * s->predict.forward_s : 0);
    for (uint32_t i = 0, run; i < st->count; i += run) {
        run = cost_run(s, st, i);
        sum += run * s->layers[s->kind[st->first + i]].forward_s;
    }
    return sum;
}

/* Seconds of the stages of interleaved 1F1B as multiples of their mean, in steps of a half so that similar cuts share
 * what waits; NULL: they are even enough that data arrive as with equal stages. */
#define UNEVEN 1.5 /* the longest stage is so many times the mean, or more */
static const struct pipeline_stage *uneven_seconds(struct arena **a, const struct cost_rooms *x)
{
    const struct decision *d = x->c->decision;
    double sum = 0, most = 0;
    for (uint32_t i = 0; i < d->nstages; i++) {
        double f = forward_of(x->s, &d->stages[i], x->c->job->model.predict);
        sum += f;
        most = cost_larger(most, f);
    }
    if (most * d->nstages < UNEVEN * sum)
        return NULL;
    *a = arena_new();
    struct pipeline_stage *out = ARENA_ARRAY(*a, struct pipeline_stage, d->nstages);
    for (uint32_t i = 0; i < d->nstages; i++) {
        double f = forward_of(x->s, &d->stages[i], x->c->job->model.predict) * d->nstages / sum;
        f = cost_larger(1, round(2 * f)) / 2;
        out[i] = (struct pipeline_stage){.forward_s = f, .backward_s = 2 * f};
    }
    return out;
}

/* Seconds by which it is known when data arrive; NULL: all stages are taken to be equal. */
static const struct pipeline_stage *arrival_seconds(struct arena **a, const struct cost_rooms *x)
{
    if (x->c->decision->listed) {
        *a = arena_new();
        return stage_seconds(*a, x);
    }
    return x->least || x->c->decision->schedule != SCHED_INTERLEAVED ? NULL : uneven_seconds(a, x);
}

/* The bytes of activations and buffers with which a rank needs more than all_bytes in all (more), or with which it
 * does not; fixed: bytes of everything else. */
static double left_of(const struct cost_rooms *x, uint64_t all_bytes, double fixed, bool more)
{
    double bytes = (double)all_bytes - fixed - (double)x->communicator_bytes - x->c->buffers->context_gib * (1 << 30);
    return more ? (x->least ? bytes / LEAST_OWN : bytes) + 64 : bytes - 64; /* margin for sums rounded to whole bytes */
}

void cost_own_rank(const struct cost_rooms *x, uint32_t r, struct own_stages *known, uint64_t least_bytes,
                   uint64_t most_bytes, struct estimate *e)
{
    const struct decision *d = x->c->decision;
    struct moments_stage stages[DECISION_MOST_VPP];
    struct own_sums all = {0}, sums;
    double places = places_of(x, r), persistent, state, gradients = 0, complete = 0;
    uint32_t npieces = 0;
    for (uint32_t j = 0; j < cost_rank_stages(d); j++) {
        cost_own_stage(x, cost_held_stage(d, r, j), places, &npieces, places > 0 ? NULL : known, &stages[j], &sums);
        add_transfers(x, cost_held_stage(d, r, j), &stages[j]);
        join_sums(&all, &sums);
        gradients += stages[j].gradients;
        complete += stages[j].gradients - stages[j].made + stages[j].after;
    }
    struct moments_shards shards_of = shards_made(x, &all);
    if (decision_skews(x->c->job, d)) {
        shards_of.foretold = complete + all.late;
        shards_of.early = d->pp - 1 - r < d->microbatches ? d->pp - 1 - r : d->microbatches;
    }
    double split = d->zero ? 1.0 / d->shard : 1, expert_split = d->zero ? 1.0 / x->expert_shard : 1;
    persistent = x->parameter * (all.dense_vectors + (d->zero >= 3 ? all.dense * split + all.experts * expert_split
                                                                   : all.dense + all.experts));
    state = x->state * ((all.dense + all.dense_vectors) * split + all.experts * expert_split);
    const struct updates updates = updates_of(x, r);
    for (uint32_t j = 0; j < cost_rank_stages(d); j++)
        shards_of.fetched = stages[j].copies[0] > 0 ? updates.first
                                                    : shards_of.fetched; /* otherwise no earlier copy delays it */
    if (places > 0 && decision_pairs(d->schedule))
        moments_share_copies(d, cost_rank_stages(d), stages);
    shards_of.gathered = gathered_of(x, r);
    shards_of.places = shards_of.places_beside = cost_gathered_places(x, INFINITY);
    double fetched = updates.first - shards_of.fetched, fixed = persistent + state;
    double least = left_of(x, least_bytes, fixed, false) - all.workspace - fetched,
           enough = left_of(x, most_bytes, fixed, true) - all.workspace - fetched;
    struct arena *own = NULL;
    const struct pipeline_stage *seconds = arrival_seconds(&own, x);
    struct moments most = pipeline_moments(d, r, stages, &shards_of, seconds, x->c->pairs, cost_larger(0, least),
                                           enough);
    if (own)
        arena_free(own);
    double step = cost_larger(most.bytes + fetched, complete + all.late + updates.most);
    step = cost_larger(step, complete + all.converted);
    double kept = cost_larger(0, most.kept - (gradients - most.gradients));
    e->peak_stage = r;
    e->parameter_bytes = (uint64_t)persistent;
    e->optimizer_bytes = (uint64_t)state;
    e->gradient_bytes = (uint64_t)cost_smaller(
        cost_smaller(gradients, cost_larger(complete + all.late, most.gradients)), step);
    e->activation_bytes = (uint64_t)cost_smaller(kept, step - (double)e->gradient_bytes);
    e->buffer_bytes = (uint64_t)(step + all.workspace) - e->gradient_bytes - e->activation_bytes;
    e->communicator_bytes = x->communicator_bytes;
    e->context_bytes = (uint64_t)(x->c->buffers->context_gib * (1 << 30));
    e->allocator_bytes = 0;
    e->peak_bytes = e->parameter_bytes + e->gradient_bytes + e->optimizer_bytes + e->activation_bytes +
                    e->buffer_bytes + e->communicator_bytes + e->context_bytes;
}
