/* Bytes of a decision: persistent buffers by ZeRO level, activations of the microbatches in flight, temporaries and
 * boundary buffers.
 *
 * llmrun places buffers once: rings of activations as deep as the schedule has microbatches in flight and, beside
 * them, the largest temporaries.  The placed arena is exact; this model steers the search.  Other stacks allocate
 * during the step.  Their peak is either at the loss (everything that the rank keeps, and the loss's temporaries) or
 * in the backward pass of a layer (the same without the head's part, plus what that layer recomputes and its
 * gradients).  What their allocator holds back, their communicators and their context are separate lines of the
 * estimate, by the profile.
 *
 * pipeline_live.c counts the microbatches in flight. */

#include "compiler/cost/mem.h"

#include <math.h>

uint32_t cost_stage_rank(const struct decision *d, uint32_t stage)
{
    if (decision_folds(d))
        return stage < d->pp ? stage : 2 * d->pp - 1 - stage;
    return stage % d->pp;
}

bool cost_ends_meet(const struct decision *d)
{
    return d->schedule == SCHED_DUALPIPE || cost_stage_rank(d, 0) == cost_stage_rank(d, d->nstages - 1);
}

uint32_t cost_rank_stage(const struct decision *d, uint32_t r, uint32_t j)
{
    if (decision_folds(d) && j)
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
    double made, part;     /* as in struct cost_held; of the largest block */
    double largest;        /* elements of one block, which ZeRO 3 gathers at a time */
    double keep, temporary;
    double head_keep, head_temporary; /* bytes of the head, which are free again in a layer's backward pass */
    const double *loss;               /* bytes of the head's temporaries by enum cost_loss; NULL: there is one way
                                       * only */
    double shapes;                    /* elements of one block's distinct matrices, the largest of all blocks */
};

double cost_padded(const struct cost_rooms *x, double elements)
{
    return ceil(elements / x->buckets) * x->buckets;
}

/* whole: its gradient has several contributors and is not scattered */
struct cost_held cost_held_block(const struct cost_rooms *x, const struct cost_block *b, double matrices, bool whole)
{
    const struct decision *d = x->c->decision;
    double keys = cost_smaller(b->key_matrices, matrices), own = cost_padded(x, matrices - keys) + cost_padded(x, keys);
    struct cost_held h = {.dense = own + b->vectors_split + b->vectors_whole,
                          .own = own,
                          .experts = cost_padded(x, b->experts),
                          .vectors = {b->vectors_split, b->vectors_whole}};
    h.largest = own + b->experts;
    if (x->c->buffers->allocator > 0.5)
        return h;
    bool shards = d->zero && d->shard > 1, spreads = d->zero && x->expert_shard > 1;
    bool late = whole || (x->splits && b->early && !x->least);
    h.largest = (shards ? own : 0) + (spreads ? h.experts : 0);
    h.made = late ? 0 : h.largest;
    h.part = late ? 0 : (shards ? own / d->shard : 0) + (spreads ? h.experts / x->expert_shard : 0);
    if (x->least && b->early) { /* under some schedules they stay whole and are not scattered: at least half of them
                                 * count more then */
        h.made /= 4;
        h.part = 0;
    }
    bool scatters = d->zero >= 2 && shards && !late, spreads_out = d->zero >= 2 && spreads && !late,
         sums = d->schedule == SCHED_DUALPIPE;
    h.gradients[0] = !scatters ? own : h.part > 0 ? own / d->shard : 0;
    h.gradients[1] = !spreads_out ? h.experts : h.part > 0 ? h.experts / x->expert_shard : 0;
    h.sums[0] = sums || d->dp * d->cp > (scatters ? d->shard : 1);
    h.sums[1] = sums || x->expert_shares > (spreads_out ? x->expert_shard : 1);
    h.tied = d->schedule == SCHED_DUALPIPE;
    h.state = own / (d->zero ? d->shard : 1);
    h.whole_state = (matrices > 0 ? cost_padded(x, b->whole_matrices) : 0) / (d->zero ? d->shard : 1);
    h.expert_state = h.experts / (d->zero ? x->expert_shard : 1);
    return h;
}

static void hold_block(struct holding *h, const struct cost_block *b, const struct cost_held *own, double times)
{
    h->dense += times * own->dense;
    h->experts += times * own->experts;
    h->largest = cost_larger(h->largest, own->largest);
    h->made = cost_larger(h->made, own->made);
    h->part = cost_larger(h->part, own->part);
    h->temporary = cost_larger(h->temporary, cost_larger(b->forward_bytes, b->backward_bytes));
    h->shapes = cost_larger(h->shapes, b->shapes);
}

static void hold_layers(const struct cost_rooms *x, struct holding *h, const struct stage *st, uint32_t i, uint32_t run)
{
    const struct cost_block *b = cost_layer(x->s, st, i);
    uint32_t kind = x->s->kind[st->first + i];
    if (kind < x->nlayers) {
        hold_block(h, b, &x->layers[kind], run);
    } else {
        struct cost_held own = cost_held_block(x, b, b->matrices, false);
        hold_block(h, b, &own, run);
    }
}

/* The same for the head. */
static void hold_head(const struct cost *c, struct holding *h, const struct cost_block *head,
                      const struct cost_held *own)
{
    double before = h->temporary, shapes = h->shapes;
    hold_block(h, head, own, 1);
    h->temporary = before;
    h->shapes = shapes;
    h->head_keep = head->keep_bytes;
    h->head_temporary = cost_larger(head->forward_bytes, head->backward_bytes);
    if (c->buffers->loss_bytes <= 0)
        return;
    h->head_temporary = head->loss_bytes[c->decision->zero < 3          ? LOSS_PARALLEL
                                         : c->buffers->loss_whole > 0.5 ? LOSS_WHOLE
                                                                        : LOSS_SPLIT];
}

double cost_stage_keep(const struct cost *c, const struct cost_shape *s, uint32_t stage, bool eager)
{
    const struct stage *st = &c->decision->stages[stage];
    double keep = (st->embed ? s->embed.keep_bytes : 0);
    if (st->head)
        keep += s->head.keep_bytes + c->job->model.predict * s->predict.keep_bytes;
    for (uint32_t i = 0, run; i < st->count; i += run) {
        const struct cost_block *b = cost_layer(s, st, i);
        run = cost_run(s, st, i);
        keep += run * (b->keep_bytes + (eager ? b->eager_bytes : 0));
    }
    return keep;
}

double cost_stage_late(const struct cost *c, const struct cost_shape *s, uint32_t stage)
{
    const struct stage *st = &c->decision->stages[stage];
    double late = 0;
    if (c->buffers->allocator >= 0.5)
        return 0;
    for (uint32_t i = 0, run; i < st->count; i += run) {
        run = cost_run(s, st, i);
        late += run * cost_layer(s, st, i)->late_bytes;
    }
    return late;
}

/* The number of stages of rank r, and the j-th of them; DualPipe's ranks hold two copies of the model, one from each
 * end of the pipeline. */
uint32_t cost_rank_stages(const struct decision *d)
{
    return d->schedule == SCHED_DUALPIPE ? 2 : d->vpp;
}

uint32_t cost_held_stage(const struct decision *d, uint32_t r, uint32_t j)
{
    return d->schedule == SCHED_DUALPIPE ? (j ? d->pp - 1 - r : r) : cost_rank_stage(d, r, j);
}

static double rank_late(const struct cost *c, const struct cost_shape *s, uint32_t r)
{
    const struct decision *d = c->decision;
    double bytes = 0;
    for (uint32_t j = 0; j < cost_rank_stages(d); j++)
        bytes += cost_stage_late(c, s, cost_held_stage(d, r, j)) * pipeline_late(d, r, j);
    return bytes;
}

double cost_stage_parked(const struct cost *c, const struct cost_shape *s, uint32_t stage)
{
    const struct stage *st = &c->decision->stages[stage];
    double bytes = 0;
    for (uint32_t i = 0, run; c->job->wishes.offload & OFFLOAD_ACTIVATIONS && i < st->count; i += run) {
        run = cost_run(s, st, i);
        bytes += run * cost_layer(s, st, i)->keep_bytes;
    }
    return bytes;
}

/* With activations in host memory: two places for the layer that is being processed, and two more for the second of
 * a pair of actions; for each microbatch in flight, a stage's input and what is kept outside layers. */
static double rank_keep_parked(const struct cost *c, const struct cost_shape *s, uint32_t r)
{
    const struct decision *d = c->decision;
    double keep[DECISION_MOST_VPP] = {0}, place = 0;
    for (uint32_t j = 0; j < d->vpp + (d->schedule == SCHED_DUALPIPE ? 1 : 0); j++) {
        uint32_t stage = d->schedule == SCHED_DUALPIPE && j ? d->pp - 1 - r : cost_rank_stage(d, r, j);
        const struct stage *st = &d->stages[stage];
        keep[j] = cost_stage_keep(c, s, stage, false) - cost_stage_parked(c, s, stage);
        keep[j] += st->embed ? 0 : s->boundary_bytes;
        for (uint32_t i = 0; i < st->count; i += cost_run(s, st, i))
            place = cost_larger(place, cost_layer(s, st, i)->keep_bytes);
    }
    return pipeline_live_bytes(d, r, keep) + rank_late(c, s, r) + (decision_pairs(d->schedule) ? 4 : 2) * place;
}

static double rank_keep(const struct cost *c, const struct cost_shape *s, uint32_t r, bool eager)
{
    const struct decision *d = c->decision;
    double keep[DECISION_MOST_VPP] = {0};
    if (c->job->wishes.offload & OFFLOAD_ACTIVATIONS)
        return rank_keep_parked(c, s, r);
    for (uint32_t j = 0; j < d->vpp; j++)
        keep[j] = cost_stage_keep(c, s, cost_rank_stage(d, r, j), eager);
    if (d->schedule == SCHED_DUALPIPE)
        keep[1] = cost_stage_keep(c, s, d->pp - 1 - r, eager);
    return pipeline_live_bytes(d, r, keep) + rank_late(c, s, r);
}

static struct holding hold_rank(const struct cost_rooms *x, uint32_t r)
{
    const struct cost *c = x->c;
    const struct cost_shape *s = x->s;
    const struct decision *d = c->decision;
    const struct model *m = &c->job->model;
    struct holding h = {0};
    for (uint32_t j = 0; j < cost_rank_stages(d); j++) {
        const struct stage *st = &d->stages[cost_held_stage(d, r, j)];
        for (uint32_t i = 0, run; i < st->count; i += run) {
            run = cost_run(s, st, i);
            hold_layers(x, &h, st, i, run);
        }
        if (st->embed)
            hold_block(&h, &s->embed, &x->embed, 1);
        if (!st->head)
            continue;
        struct cost_held head = x->head;
        if (m->tied && cost_ends_meet(d))
            head = cost_held_block(x, &s->head, 0, false);
        hold_head(c, &h, &s->head, &head);
        if (c->buffers->loss_bytes > 0)
            h.loss = s->head.loss_bytes;
        if (m->predict)
            hold_block(&h, &s->predict, &x->predict, m->predict);
        h.dense += cost_padded(x, cost_copied_table(c, s));
    }
    h.keep = x->kept > 0 ? x->kept : rank_keep(c, s, r, true);
    return h;
}

static double dtype_bytes(enum dtype_name d)
{
    return d == DT_FP32 ? 4 : 2;
}

/* the share of what a caching allocator holds that it cannot give back: partly used blocks */
#define ALLOCATOR_LEAST 0.1

bool cost_master_halves(const struct cost *c, const struct profile *stack)
{
    const struct train *t = &c->job->train;
    return stack->master_halves > 0.5 && t->master == DT_FP32 && t->precision != DT_FP32 && t->precision != DT_FP16;
}

double cost_master_bytes(const struct cost *c, const struct profile *stack)
{
    return cost_master_halves(c, stack) ? 2 : dtype_bytes(c->job->train.master);
}

static void set_widths(struct cost_rooms *x)
{
    const struct cost *c = x->c;
    const struct train *t = &c->job->train;
    x->parameter = dtype_bytes(t->precision);
    x->made = dtype_bytes(t->grads);
    x->reduced = c->buffers->allocator < 0.5 ? dtype_bytes(t->reduce) : x->made;
    /* after its last microbatch a stage's gradient is converted; with few microbatches, before another stage's is
     * made */
    bool apart = c->decision->zero < 2 && c->decision->microbatches <= c->decision->pp;
    x->gradient = apart ? cost_smaller(x->made, x->reduced) : x->made;
    if (x->least && c->decision->zero < 2)
        x->made = x->reduced = x->gradient;
    bool foretells = c->buffers->allocator < 0.5 &&
                     decision_skews(c->job, c->decision); /* it keeps a copy that is not updated yet */
    x->state = t->master == train_working(t) && !foretells ? 0 : cost_master_bytes(c, c->buffers);
    if (c->decision->zero >= 3 && c->buffers->master_shards > 0.5) {
        x->parameter = cost_larger(x->parameter, dtype_bytes(t->master));
        x->state = 0;
    }
    x->state += t->optimizer == OPT_ADAMW ? 2 * dtype_bytes(t->moments) : t->momentum > 0 ? dtype_bytes(t->moments) : 0;
    x->place = 0;
    if (c->job->wishes.offload & OFFLOAD_OPTIMIZER) {
        x->place = x->state;
        x->state = 0;
    }
    /* an optimizer that shards its state reduces half-precision gradients after the step's last backward pass;
     * Megatron's adds each of them to its fp32 gradient as it arrives */
    x->copy = t->precision != DT_FP32 && t->grads == DT_FP32 && c->decision->zero == 1 ? c->buffers->gradient_copy_bytes
                                                                                       : 0;
}

/* The number of kinds of transfers that a rank takes part in, each of which has buffers of its own. */
static uint32_t communicators(const struct cost *c)
{
    const struct decision *d = c->decision;
    uint32_t n = d->gpus_used > 1; /* all ranks */
    n += d->tp > 1;
    n += d->cp > 1;
    n += d->dp > 1;
    n += d->dp * d->cp > d->shard && d->shard > 1;
    n += d->pp > 1 ? 2 : 0; /* to both neighbours */
    n += d->ep > 1 ? 2 : 0; /* dispatch, and the experts' reduction */
    n += d->ep > 1 && c->buffers->allocator < 0.5 && cost_exchange_nodes(c) > 1; /* dispatch between nodes and within */
    n += d->tp > 1 && (d->pp > 1 || d->dp > 1); /* the model-parallel group, for gradient norms */
    return n;
}

double cost_gathered_places(const struct cost_rooms *x, double uses)
{
    return cost_smaller(x->ahead + 1, uses);
}

/* Bytes of llmrun's own buffers for shards: places for pieces that are gathered; two for a microbatch's gradients,
 * and two for this rank's parts of them. */
static double own_shard_buffers(const struct cost_rooms *x, const struct holding *h)
{
    const struct decision *d = x->c->decision;
    double element = x->c->job->train.precision == DT_FP32 ? 4 : 2, bytes = 0;
    if (d->zero >= 3)
        bytes += element * h->largest * cost_gathered_places(x, cost_larger(1, x->c->job->model.nlayers / d->pp));
    if (d->zero >= 2)
        bytes += (x->made + x->reduced) * h->made + (d->microbatches > 1 ? 2 : 0) * x->reduced * h->part;
    return bytes;
}

/* Bytes of the sharded parameters that a layer or the head gathers, and of the gradients on their way to shards. */
static double shard_buffers(const struct cost *c, const struct holding *h)
{
    const struct decision *d = c->decision;
    double gathered = 2 * h->largest, most = 1e9 * c->buffers->gathered_most,
           element = c->job->train.precision == DT_FP32 ? 4 : 2;
    if (most > 0)
        gathered = cost_smaller(gathered, most);
    double reduced = c->job->train.reduce == DT_FP32 ? 4 : 2;
    return (d->zero >= 3 ? element * gathered : 0) + (d->zero >= 2 ? reduced * gathered : 0);
}

uint64_t cost_memory_limit(const struct job *job, const struct topo_gpu *gpu)
{
    if (cost_buffers(job)->context_gib <= 0)
        return decision_gpu_bytes(job, gpu);
    struct topo_gpu whole =
        *gpu; /* what its stack takes beside tensors is itemised: nothing is reserved unless the user asks for it */
    struct job asked = *job;
    whole.reserve_bytes = 0;
    asked.wishes.frees = true;
    return decision_gpu_bytes(&asked, &whole);
}

/* Fills in the lines of the estimate of rank r from what it holds, for other stacks than llmrun. */
static void fill_lines(const struct cost_rooms *x, const struct holding *h, uint32_t r, struct estimate *e)
{
    const struct cost *c = x->c;
    const struct cost_shape *s = x->s;
    const struct decision *d = c->decision;
    const struct profile *p = c->buffers;
    double all = h->dense + h->experts, own = h->dense / d->shard + h->experts / x->expert_shard;
    double parameters = x->parameter * (d->zero >= 3 ? own : all);
    double gradients = x->gradient * (d->zero >= 2 ? own : all);
    double optimizer = x->state * (d->zero ? own : all);
    double activations = h->keep, buffers = cost_larger(h->temporary - h->head_keep, h->head_temporary);
    buffers += d->pp > 1 ? 2 * s->boundary_bytes : 0;
    buffers += p->gradient_shapes > 0.5 ? 2 * h->shapes : 0;
    buffers += shard_buffers(c, h);
    buffers = cost_larger(buffers, 0);
    e->peak_stage = r;
    e->parameter_bytes = (uint64_t)parameters;
    e->gradient_bytes = (uint64_t)gradients;
    e->optimizer_bytes = (uint64_t)optimizer;
    e->activation_bytes = (uint64_t)activations;
    e->buffer_bytes = (uint64_t)buffers;
    e->communicator_bytes = x->communicator_bytes;
    e->context_bytes = (uint64_t)(p->context_gib * (1 << 30));
    e->peak_bytes = e->parameter_bytes + e->gradient_bytes + e->optimizer_bytes + e->activation_bytes +
                    e->buffer_bytes + e->communicator_bytes + e->context_bytes;
    /* A caching allocator gives unused memory back when the device has no more.  The optimizer's buckets live as
     * long as the optimizer does; under ZeRO 2 and 3 they are those that shard_buffers() counts. */
    double in_part = p->allocator_share * (activations + buffers), held = in_part, taken = x->copy * all;
    *(d->zero < 2 ? &taken : &held) += p->held_gib * (1 << 30);
    double free_bytes = x->limit - (double)e->peak_bytes - taken;
    e->allocator_bytes = (uint64_t)(taken + cost_smaller(held, cost_larger(free_bytes, ALLOCATOR_LEAST * in_part)));
    e->peak_bytes += e->allocator_bytes;
}

/* The gradient of the embedding's table is shared with that of a tied head or of prediction modules, whose backward
 * passes are the first to add to it.  Where both ends of the pipeline are on one rank, it begins there; otherwise
 * each end has its own, and the two are reduced. */
static void share_tables(struct cost_rooms *x)
{
    const struct model *m = &x->c->job->model;
    struct cost_held *to = m->predict == 1 ? &x->predict : &x->head;
    if (m->tied && cost_ends_meet(x->c->decision))
        x->head.gradients[0] = 0;
    if (m->tied || m->predict) {
        to = cost_ends_meet(x->c->decision) ? to : &x->embed;
        to->gradients[2] = x->embed.gradients[0];
        to->sums[2] = x->embed.sums[0] || to == &x->embed;
        x->embed.gradients[0] = 0;
    }
    if (m->tied && !cost_ends_meet(x->c->decision)) {
        x->head.gradients[2] = x->head.gradients[0];
        x->head.gradients[0] = 0;
        x->head.sums[2] = true;
    }
    if (m->predict == 1) {
        struct cost_held *had = m->tied && to == &x->predict ? to : &x->head;
        x->predict.begun = had->gradients[2] + x->head.gradients[0];
        had->gradients[2] = x->head.gradients[0] = 0;
    }
}

static void init_rooms(struct cost_rooms *x, const struct cost *c, const struct cost_shape *s, double buckets,
                       uint32_t ahead, bool least)
{
    *x = (struct cost_rooms){
        .c = c, .s = s, .least = least, .nlayers = s->ndistinct < COST_HELD ? s->ndistinct : COST_HELD};
    x->limit = (double)cost_memory_limit(c->job, &c->type->gpu);
    x->buckets = buckets;
    if (c->buffers->communicator_mib > 0)
        x->communicator_bytes = (uint64_t)(c->buffers->communicator_mib * communicators(c) * (1 << 20));
    const struct model *m = &c->job->model;
    const struct decision *d = c->decision;
    x->expert_shard = decision_expert_shard(d);
    x->expert_shares = decision_expert_dp(d);
    x->splits = cost_splits(d);
    x->ahead = ahead;
    set_widths(x);
    for (uint32_t i = 0; i < x->nlayers; i++)
        x->layers[i] = cost_held_block(x, &s->layers[i], s->layers[i].matrices, false);
    x->embed = cost_held_block(x, &s->embed, s->embed.matrices, m->predict || (m->tied && cost_ends_meet(d)));
    x->head = cost_held_block(x, &s->head, s->head.matrices, m->predict);
    if (m->predict) {
        x->predict = cost_held_block(x, &s->predict, s->predict.matrices, false);
        if (x->predict.largest > 0) /* including the head's matrix and the embedding's table */
            x->predict.largest += cost_padded(x, s->embed.matrices) + (m->tied ? 0 : cost_padded(x, s->head.matrices));
    }
    share_tables(x);
}

void cost_rooms_init(struct cost_rooms *x, const struct cost *c, const struct cost_shape *s)
{
    init_rooms(x, c, s, 64.0 * (c->decision->zero ? c->decision->shard : 1), cost_uses_ahead(c, s), false);
}

void cost_rooms_least(struct cost_rooms *x, const struct cost *c, const struct cost_shape *s)
{
    const struct decision *d = c->decision;
    bool blocks = c->job->wishes.never_overlap & OVERLAP_DP;
    init_rooms(x, c, s, 1, d->zero >= 3 && d->shard > 1 && !blocks, true);
}

double cost_layer_buffers(const struct cost_rooms *x, uint32_t kind, double temporary)
{
    const struct cost *c = x->c;
    const struct cost_block *b = &x->s->layers[kind];
    double boundary = c->decision->pp > 1 ? x->s->boundary_bytes : 0;
    struct cost_held own = cost_held_block(x, b, b->matrices, false);
    struct holding h = {0};
    hold_block(&h, b, &own, 1);
    if (c->buffers->allocator > 0.5)
        return 2 * boundary + shard_buffers(c, &h);
    return LEAST_OWN * (temporary + 4 * boundary + own_shard_buffers(x, &h));
}

/* What all blocks hold except the head, which may share the embedding's table. */
static struct holding hold_model(const struct cost *c, const struct cost_shape *s)
{
    const struct stage all = {.count = c->job->model.nlayers};
    struct cost_rooms x = {.c = c, .s = s, .buckets = 1};
    struct cost_held embed = cost_held_block(&x, &s->embed, s->embed.matrices, false);
    struct holding h = {0};
    for (uint32_t i = 0; i < all.count; i += s->run[i])
        hold_layers(&x, &h, &all, i, s->run[i]);
    hold_block(&h, &s->embed, &embed, 1);
    return h;
}

double cost_state_all(const struct cost *c, const struct cost_shape *s)
{
    const struct decision *d = c->decision;
    struct cost_rooms x = {.c = c};
    struct holding h = hold_model(c, s);
    set_widths(&x);
    double all = h.dense + h.experts, own = h.dense / d->shard + h.experts / decision_expert_shard(d);
    return x.parameter * (d->zero >= 3 ? own : all) + x.gradient * (d->zero >= 2 ? own : all) +
           x.state * (d->zero ? own : all);
}

uint64_t cost_state_least(const struct cost *c, const struct cost_shape *s)
{
    return (uint64_t)(cost_state_all(c, s) / c->decision->pp + c->buffers->context_gib * (1 << 30));
}

static void take_least(struct estimate *e)
{
    uint64_t before = e->activation_bytes + e->buffer_bytes;
    e->activation_bytes = (uint64_t)(LEAST_OWN * (double)e->activation_bytes);
    e->buffer_bytes = (uint64_t)(LEAST_OWN * (double)e->buffer_bytes);
    e->peak_bytes -= before - e->activation_bytes - e->buffer_bytes;
}

/* Estimates rank r.  Results of at most least_bytes need not be exact, and neither need those above most_bytes. */
static void rooms_rank(const struct cost_rooms *x, uint32_t r, struct own_stages *known, uint64_t least_bytes,
                       uint64_t most_bytes, struct estimate *e)
{
    const struct cost *c = x->c;
    if (c->buffers->allocator < 0.5) {
        cost_own_rank(x, r, known, least_bytes, most_bytes, e);
        if (x->least)
            take_least(e);
        return;
    }
    struct holding h = hold_rank(x, r);
    fill_lines(x, &h, r, e);
    /* where memory is short: first a loss over split logits, then a fused loss and fused operators */
    for (int k = 0; k < 2 && (double)e->peak_bytes > x->limit; k++) {
        if (h.loss)
            h.head_temporary = cost_smaller(h.head_temporary, h.loss[k ? LOSS_LEAST : LOSS_SPLIT]);
        bool fuses = k && c->buffers->eager > 0;
        if (fuses)
            h.keep = x->kept > 0 ? x->kept : rank_keep(c, x->s, r, false);
        if (h.loss || fuses)
            fill_lines(x, &h, r, e);
    }
}

void cost_rooms_keep(struct cost_rooms *x, struct own_stages *known)
{
    known->n = 0;
    x->known = known;
}

void cost_rooms_rank(const struct cost_rooms *x, uint32_t r, uint64_t least_bytes, struct estimate *e)
{
    rooms_rank(x, r, x->known, least_bytes, UINT64_MAX, e);
}

bool cost_rooms_within(const struct cost_rooms *x, uint32_t r, uint64_t most_bytes, struct estimate *e)
{
    rooms_rank(x, r, x->known, most_bytes, most_bytes, e);
    return e->peak_bytes <= most_bytes;
}

void cost_rank_memory(const struct cost *c, const struct cost_shape *s, uint32_t r, struct estimate *e)
{
    struct cost_rooms x;
    cost_rooms_init(&x, c, s);
    cost_rooms_rank(&x, r, 0, e);
}

bool cost_rooms_fullest(const struct cost_rooms *x, uint64_t most_bytes, struct estimate *e)
{
    struct estimate fullest = *e;
    struct own_stages own, *known = x->known ? x->known : &own;
    own.n = 0;
    for (uint32_t r = 0; r < x->c->decision->pp; r++) {
        struct estimate rank = *e; /* keeps the times */
        rooms_rank(x, r, known, r ? fullest.peak_bytes : 0, most_bytes, &rank);
        if (r == 0 || rank.peak_bytes > fullest.peak_bytes)
            fullest = rank;
        if (rank.peak_bytes > most_bytes)
            break;
    }
    *e = fullest;
    return e->peak_bytes <= most_bytes;
}

void cost_memory(const struct cost *c, const struct cost_shape *s, struct estimate *e)
{
    struct cost_rooms x;
    cost_rooms_init(&x, c, s);
    cost_rooms_fullest(&x, UINT64_MAX, e);
}
