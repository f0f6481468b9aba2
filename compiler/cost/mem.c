/* Bytes of a decision, as the lowering allocates them: persistent buffers by ZeRO level, rings of kept activations as
 * deep as the schedule has microbatches in flight, temporaries and boundary buffers.  The placed arena is the truth;
 * this only steers the search.
 *
 * In flight, in units of one microbatch's activations of a whole rank (p ranks, m microbatches, rank r):
 *   gpipe m   1f1b p - r   eager 2(p - r) - 1   interleaved (2(p-1-r) + (v-1)N + 1)/v   zb_h1 p   zb_h2 2p - 1
 *   zb_v p   v_half p/2 + 1   v_min p/3 + 2   dualpipe, dualpipe_v p + 1, with two copies of the parameters in dualpipe
 * each at most m.  Sources: Narayanan et al. SC'21; Qi et al. 2023 and 2024; DeepSeek-V3 report. */

#include "compiler/cost/cost_private.h"

#include <math.h>

static double in_flight(const struct decision *d, uint32_t r)
{
    double p = d->pp, m = d->microbatches, v = d->vpp, group = d->schedule_group ? d->schedule_group : d->pp, n = m;
    switch (d->schedule) {
    case SCHED_GPIPE:
    case SCHED_AUTO:
    case SCHED_FILE:
    case NSCHEDULES:
        break;
    case SCHED_1F1B:
        n = p - r;
        break;
    case SCHED_EAGER_1F1B:
        n = 2 * (p - r) - 1;
        break;
    case SCHED_INTERLEAVED:
    case SCHED_COMBINED_1F1B:
        n = (2 * (p - 1 - r) + (v - 1) * group + 1) / v;
        break;
    case SCHED_ZB_H1:
    case SCHED_ZB_V:
        n = p;
        break;
    case SCHED_ZB_H2:
        n = 2 * p - 1;
        break;
    case SCHED_V_HALF:
        n = p / 2 + 1;
        break;
    case SCHED_V_MIN:
        n = p / 3 + 2;
        break;
    case SCHED_DUALPIPE:
    case SCHED_DUALPIPE_V:
        n = p + 1;
        break;
    }
    return fmin(n, m);
}

bool cost_v_placement(enum schedule_kind k)
{
    return pipeline_folds(k);
}

uint32_t cost_stage_rank(const struct decision *d, uint32_t stage)
{
    if (cost_v_placement(d->schedule))
        return stage < d->pp ? stage : 2 * d->pp - 1 - stage;
    return stage % d->pp;
}

uint32_t cost_rank_stage(const struct decision *d, uint32_t r, uint32_t j)
{
    if (cost_v_placement(d->schedule) && j)
        return 2 * d->pp - 1 - r;
    return r + j * d->pp;
}

uint32_t cost_run(const struct cost_shape *s, const struct stage *st, uint32_t i)
{
    uint32_t run = s->run[st->first + i], again = st->count - st->spared, left = (i < again ? again : st->count) - i;
    return run < left ? run : left;
}

const struct cost_block *cost_layer(const struct cost_shape *s, const struct stage *st, uint32_t i)
{
    return &(i < st->count - st->spared ? s->layers : s->spared)[s->kind[st->first + i]];
}

/* what one pipeline rank holds */
struct holding {
    double dense, experts; /* parameter elements, buckets padded */
    double largest;        /* of one block: gathered at a time under zero 3 */
    double keep, temporary;
    uint32_t blocks;
};

static double padded(const struct decision *d, double elements)
{
    double step = 64.0 * (d->zero ? d->shard : 1);
    return ceil(elements / step) * step;
}

static void hold_block(const struct cost *c, struct holding *h, const struct cost_block *b, double times, double keep_times)
{
    double own = padded(c->decision, b->matrices);
    h->dense += times * (own + b->vectors_split + b->vectors_whole);
    h->experts += times * padded(c->decision, b->experts);
    h->largest = fmax(h->largest, own + b->experts);
    h->keep += keep_times * b->keep_bytes;
    h->temporary = fmax(h->temporary, fmax(b->forward_bytes, b->backward_bytes));
    h->blocks++;
}

static struct holding hold_rank(const struct cost *c, const struct cost_shape *s, uint32_t r)
{
    const struct decision *d = c->decision;
    const struct model *m = &c->job->model;
    struct holding h = {0};
    double n = in_flight(d, r);
    for (uint32_t j = 0; j < d->vpp; j++) {
        const struct stage *st = &d->stages[cost_rank_stage(d, r, j)];
        for (uint32_t i = 0, run; i < st->count; i += run) {
            run = cost_run(s, st, i);
            hold_block(c, &h, cost_layer(s, st, i), run, run * n);
        }
        if (st->embed)
            hold_block(c, &h, &s->embed, 1, n);
        if (!st->head)
            continue;
        struct cost_block head = s->head;
        if (m->tied && cost_stage_rank(d, 0) == r)
            head.matrices = 0;
        hold_block(c, &h, &head, 1, n);
        if (m->predict)
            hold_block(c, &h, &s->predict, m->predict, m->predict * n);
    }
    return h;
}

static double dtype_bytes(enum dtype_name d)
{
    return d == DT_FP32 ? 4 : d == DT_FP8 ? 1 : 2;
}

void cost_rank_memory(const struct cost *c, const struct cost_shape *s, uint32_t r, struct estimate *e)
{
    const struct decision *d = c->decision;
    const struct train *t = &c->job->train;
    bool fp32 = t->precision == DT_FP32;
    double parameter = dtype_bytes(fp32 ? DT_FP32 : t->parameters), gradient = dtype_bytes(t->grads);
    double state = fp32 ? 0 : dtype_bytes(t->master);
    state += t->optimizer == OPT_ADAMW ? 2 * dtype_bytes(t->moments) : t->momentum > 0 ? 4 : 0;
    if (c->job->wishes.offload & OFFLOAD_OPTIMIZER)
        state = 0;
    double copies = d->schedule == SCHED_DUALPIPE ? 2 : 1;
    uint32_t edp = decision_expert_dp(d), expert_shard = d->shard < edp ? d->shard : edp;
    struct holding h = hold_rank(c, s, r);
    h.dense *= copies;
    h.experts *= copies;
    double all = h.dense + h.experts, own = h.dense / d->shard + h.experts / expert_shard;
    double parameters = d->zero >= 3 ? own * parameter : all * parameter;
    double gradients = d->zero >= 2 ? own * gradient : all * gradient;
    double optimizer = state * (d->zero ? own : all);
    double activations = c->job->wishes.offload & OFFLOAD_ACTIVATIONS ? fmin(h.keep, 2 * h.keep / h.blocks) : h.keep;
    /* With one microbatch, gradients take the place of activations already used.  With more, the rings stay whole
     * until the last backward. */
    if (d->microbatches == 1 && d->zero < 2)
        activations -= fmin(gradients, activations) * (1 - 1.0 / h.blocks);
    double buffers = h.temporary + (d->pp > 1 ? 4 * s->boundary_bytes : 0);
    buffers += (d->zero >= 3 ? 2 * h.largest * parameter : 0) + (d->zero >= 2 ? 2 * h.largest * gradient : 0);
    e->peak_stage = r;
    e->parameter_bytes = (uint64_t)parameters;
    e->gradient_bytes = (uint64_t)gradients;
    e->optimizer_bytes = (uint64_t)optimizer;
    e->activation_bytes = (uint64_t)activations;
    e->buffer_bytes = (uint64_t)buffers;
    e->peak_bytes = e->parameter_bytes + e->gradient_bytes + e->optimizer_bytes + e->activation_bytes + e->buffer_bytes;
}

void cost_memory(const struct cost *c, const struct cost_shape *s, struct estimate *e)
{
    struct estimate fullest = *e;
    for (uint32_t r = 0; r < c->decision->pp; r++) {
        struct estimate rank = *e; /* times stay */
        cost_rank_memory(c, s, r, &rank);
        if (r == 0 || rank.peak_bytes > fullest.peak_bytes)
            fullest = rank;
    }
    *e = fullest;
}
