/* Shrinks degrees first, then the model's dimensions to the smallest multiples of these degrees, then stages to at
 * most two layers each, then the number of microbatches to the fewest that the schedule allows. */

#include "compiler/execute/shrink.h"

#include "compiler/cost/pipeline.h"
#include "compiler/execute/field.h"
#include "compiler/schedule/schedule.h"

#include <string.h>

enum {
    WIDTH = 16,
    HEAD = 4,
    LATENT = 8,
    VOCAB = 53,
    MOST_STAGE_LAYERS = 2,
    MOST_CHUNKS = 3,
    MOST_MICROBATCH = 2,
    MOST_LISTED = 32
};

static uint32_t least(uint32_t x, uint32_t y)
{
    return x < y ? x : y;
}

static uint32_t most(uint32_t x, uint32_t y)
{
    return x > y ? x : y;
}

static uint32_t divisor(uint32_t x, uint32_t y)
{
    while (y) {
        uint32_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

/* The next smaller number that keeps as many factors as possible; 1 follows 2. */
static uint32_t smaller(uint32_t n)
{
    for (uint32_t f = 2; f < n; f++)
        if (n % f == 0)
            return n / f;
    return n > 2 ? 2 : 1;
}

static uint32_t ranks_of(const struct decision *d)
{
    return d->tp * d->cp * d->pp * d->dp;
}

/* Is it a schedule that is a list and is executed unchanged? */
static bool keeps_list(const struct decision *d)
{
    return d->listed && d->pp <= SHRINK_MOST_RANKS / 2 && d->vpp <= MOST_CHUNKS && d->microbatches <= MOST_LISTED;
}

static void shrink_degrees(struct decision *d, const struct decision *from)
{
    bool split = from->zero && from->shard < from->dp * from->cp; /* keep both shards and copies */
    uint32_t dp_least = least(d->dp, split ? 4 : 2);
    while (ranks_of(d) > SHRINK_MOST_RANKS) {
        uint32_t *largest = &d->tp;
        largest = d->cp > *largest ? &d->cp : largest;
        largest = d->pp > *largest && !keeps_list(from) ? &d->pp : largest;
        if (d->dp > dp_least)
            d->dp = smaller(d->dp);
        else if (*largest > 2)
            *largest = smaller(*largest);
        else if (d->dp > 1)
            d->dp = smaller(d->dp);
        else
            *largest = smaller(*largest);
    }
    uint32_t world = d->tp * d->cp * d->dp, data = d->dp * d->cp;
    while (d->ep * d->etp > world || world % (d->ep * d->etp))
        *(d->ep >= d->etp ? &d->ep : &d->etp) = smaller(d->ep >= d->etp ? d->ep : d->etp);
    d->ep_nodes = d->ep_nodes > 1 && d->ep > 2 && d->ep % 2 == 0 ? 2 : 1;
    d->shard = !d->zero ? 1 : split && from->shard > 1 ? smaller(data) : split ? 1 : data;
    d->gpus_used = ranks_of(d);
}

/* from_tp: tp of the plan; ranks that share a key head still do, where two are left. */
static void shrink_attn(struct attn *at, const struct decision *d, uint32_t from_tp, uint32_t sequence)
{
    uint32_t unit = d->tp * (d->context == CONTEXT_ALL_TO_ALL ? d->cp : 1), ratio = at->kv ? at->heads / at->kv : 1;
    uint32_t full = at->head;
    at->window = at->window ? most(2, sequence / 2 - 1) : 0;
    at->chunk = !at->chunk  ? 0
                : d->cp > 1 ? sequence / (2 * d->cp)
                            : most(2, sequence / 2); /* one of a rank's two
                                                      * runs of the sequence,
                                                      * or half of it */
    at->heads = unit * least(most(ratio, 1), 2);
    at->kv = at->kv >= from_tp || d->tp % 2 ? unit : at->kv > 1 ? d->tp / 2 : 1;
    at->head = HEAD;
    if (at->kind == ATTN_MLA) {
        at->kv = at->heads = unit;
        at->q_rank = at->q_rank ? LATENT : 0;
        at->kv_rank = LATENT;
        at->nope = at->v = at->rope_dims = HEAD;
        at->head = 2 * HEAD;
    }
    at->rope.dims = at->kind == ATTN_MLA || at->rope.dims >= full ? HEAD : HEAD / 2;
    if (at->scale == full)
        at->scale = at->head;
}

static void shrink_moe(struct moe *m, const struct decision *d)
{
    uint32_t groups = m->groups > 1 ? 2 : m->groups, pick = m->groups > 1 ? (m->pick < m->groups ? 1 : 2) : m->pick;
    uint32_t step = d->ep / divisor(d->ep, most(groups, 1)) * most(groups, 1), experts = step;
    m->active = least(m->active, 2);
    while (experts < m->active + 1 || (groups > 1 && experts / groups * pick < m->active + 1))
        experts += step;
    if (m->experts < experts && m->groups <= 1 && m->experts % d->ep == 0)
        experts = m->experts;
    m->experts = experts;
    m->groups = groups;
    m->pick = pick;
    m->expert.width = 4 * d->etp * d->tp;
}

static const struct layer *shrink_layer(struct arena *a, const struct layer *from, const struct decision *d,
                                        uint32_t from_tp, uint32_t sequence)
{
    struct layer *l = ARENA_NEW(a, struct layer);
    *l = *from;
    shrink_attn(&l->attn, d, from_tp, sequence);
    if (l->is_moe)
        shrink_moe(&l->moe, d);
    else
        l->ffn.width = 8 * d->tp;
    return l;
}

/* Small layers are one object where the large ones are. */
struct layers {
    struct arena *arena;
    const struct decision *decision;
    uint32_t from_tp, sequence, n;
    const struct layer **from, **to;
};

static const struct layer *small_layer(struct layers *s, const struct layer *from)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->from[i] == from)
            return s->to[i];
    s->from[s->n] = from;
    s->to[s->n] = shrink_layer(s->arena, from, s->decision, s->from_tp, s->sequence);
    return s->to[s->n++];
}

/* The k-th of the two layers that represent a stage: its first one; its last one or, where both are dense or both
 * have experts, the last one of the other kind. */
static uint32_t kept_layer(const struct model *m, const struct stage *st, uint32_t k)
{
    uint32_t last = st->first + st->count - 1;
    if (!k)
        return st->first;
    for (uint32_t i = last; i > st->first; i--)
        if (m->layers[i]->is_moe != m->layers[st->first]->is_moe)
            return i;
    return last;
}

static void shrink_stages(struct layers *s, const struct plan *p, struct job *job, struct decision *d)
{
    const struct decision *from = &p->decision;
    struct model *m = &job->model;
    d->nstages = d->pp * d->vpp;
    d->stages = ARENA_ARRAY(s->arena, struct stage, d->nstages);
    m->layers = ARENA_ARRAY(s->arena, const struct layer *, d->nstages *MOST_STAGE_LAYERS + 1u);
    m->nlayers = 0;
    d->recompute_layers = least(d->recompute_layers, MOST_STAGE_LAYERS);
    for (uint32_t i = 0; i < d->nstages; i++) {
        bool last = i + 1 == d->nstages;
        const struct stage *old = &from->stages[last ? from->nstages - 1 : (uint64_t)i * from->nstages / d->nstages];
        struct stage *st = &d->stages[i];
        *st = (struct stage){m->nlayers, least(old->count, MOST_STAGE_LAYERS), i == 0, last, 0};
        for (uint32_t k = 0; k < st->count; k++)
            m->layers[m->nlayers++] = small_layer(s, p->job->model.layers[kept_layer(&p->job->model, old, k)]);
        uint32_t again = least(d->recompute_layers ? d->recompute_layers : st->count, st->count);
        st->spared = d->recompute_layers ? st->count - again
                     : old->spared == 0  ? 0
                                         : most(1, old->spared * st->count / old->count);
    }
}

/* Where all layers with experts are in stages that are left out, there are no experts to spread over ranks. */
static void without_experts(const struct model *m, struct decision *d)
{
    if (!model_has_experts(m))
        d->ep = d->etp = d->ep_nodes = 1;
}

static uint32_t small_sequence(const struct decision *d)
{
    uint32_t n = 2 * d->cp * (d->sp ? d->tp : 1);
    while (n < 8)
        n *= 2;
    return n;
}

static void shrink_model(struct job *job, uint32_t sequence)
{
    struct model *m = &job->model;
    m->vocab = m->vocab < VOCAB ? m->vocab : VOCAB;
    m->width = WIDTH;
    m->positions = m->positions ? sequence : 0;
    job->train.sequence = sequence;
    job->train.total = 0;
    job->train.lr_warmup = 0;
    job->wishes.memory = 0;
}

const struct schedule *shrink_schedule(struct arena *a, const struct decision *d, uint64_t seed)
{
    struct pipeline_stage *stages = ARENA_ARRAY(a, struct pipeline_stage, d->nstages);
    struct pipeline_times times = {.stages = stages};
    struct schedule_costs costs = {.times = &times, .folds = d->folds};
    double step_s;
    for (uint32_t s = 0; s < d->nstages; s++) {
        double f = 1 + (double)(field_bits(seed, s, 1) % 8) / 8, w = 1 + (double)(field_bits(seed, s, 2) % 4) / 8;
        stages[s] = (struct pipeline_stage){
            .forward_s = f, .input_s = f, .weight_s = f * w, .backward_s = f + f * w, .next_s = 0.1, .back_s = 0.1};
    }
    return schedule_auto(a, d, &costs, &step_s);
}

/* Finds the schedule for this number of microbatches; false: there is none. */
static bool list_schedule(struct arena *a, const struct decision *from, struct decision *d)
{
    if (!from->listed)
        return true;
    d->listed = keeps_list(from) ? from->listed : shrink_schedule(a, d, d->microbatches);
    return d->listed != NULL;
}

struct shrunk *shrink_plan(struct arena *a, const struct plan *p, const char **why)
{
    struct shrunk *s = ARENA_NEW(a, struct shrunk);
    struct decision *d = &s->decision;
    const struct decision *from = &p->decision;
    s->job = *p->job;
    *d = *from;
    shrink_degrees(d, from);
    d->room = s->job.train.expert_room = 0; /* a handful of tokens may all choose experts of one rank */
    d->vpp = least(from->vpp, from->folds ? 2 : most(schedule_chunks(from->schedule), MOST_CHUNKS));
    d->microbatch = least(from->microbatch, MOST_MICROBATCH);
    uint32_t room = p->job->model.nlayers + 1, sequence = small_sequence(d);
    struct layers layers = {a,
                            d,
                            from->tp,
                            sequence,
                            0,
                            ARENA_ARRAY(a, const struct layer *, room),
                            ARENA_ARRAY(a, const struct layer *, room)};
    shrink_model(&s->job, sequence);
    shrink_stages(&layers, p, &s->job, d);
    without_experts(&s->job.model, d);
    if (s->job.model.predict_layer)
        s->job.model.predict_layer = shrink_layer(a, s->job.model.predict_layer, d, from->tp, sequence);
    if (from->schedule_group)
        d->schedule_group = from->schedule_group == from->pp ? d->pp
                                                             : least(most(from->schedule_group, d->pp), 2 * d->pp);
    if (!decision_place(a, p->topo, d, why))
        return NULL;
    d->microbatches = keeps_list(from) ? from->microbatches : least(from->microbatches, 2 * d->pp);
    for (; d->microbatches <= 4 * SHRINK_MOST_RANKS; d->microbatches++) {
        s->job.train.batch = (uint64_t)d->microbatch * d->microbatches * d->dp;
        if (list_schedule(a, from, d) && decision_legal(a, &s->job, p->topo, d, why) &&
            decision_emittable(a, &s->job, d, why))
            break;
    }
    if (d->microbatches > 4 * SHRINK_MOST_RANKS)
        return NULL;
    s->alone = decision_single();
    s->alone.microbatches = (uint32_t)s->job.train.batch;
    s->alone.type = d->type;
    if (!decision_place(a, p->topo, &s->alone, why))
        return NULL;
    decision_cut(a, &s->alone, s->job.model.nlayers, NULL, 0, 0);
    return s;
}
