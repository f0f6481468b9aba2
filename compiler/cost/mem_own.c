/* Memory of llmrun, whose programs place every buffer before the step: what outlives the step, and the fullest moment of the
 * rank's order of actions (moments.c) by what each block takes while it runs (lives.c).
 *
 * Placement puts buffers on the same bytes where their lives do not meet, so the most that lives at a time is close to what it
 * comes to. */

#include "compiler/cost/mem.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* State that is fetched from the host lies in one of two places, of a size for each bucket's.  A bucket's copies wait for the
 * update two buckets before, and the one two behind is the first that waits for them: so four may have theirs at a time. */
static void add_place(struct own_sums *h, double own)
{
    double *last = h->places;
    if (own <= 0)
        return;
    if (h->nplaces++ < 2)
        h->first += own;
    double all = own + last[0] + (last[1] == own ? 0 : last[1]) + (last[2] == last[0] ? 0 : last[2]);
    h->fetched = cost_larger(h->fetched, all);
    last[2] = last[1];
    last[1] = last[0];
    last[0] = own;
}

static void add_sums(struct own_sums *h, const struct cost_held *x, double times, double workspace)
{
    h->dense += times * x->own;
    h->experts += times * x->experts;
    h->vectors[0] += times * x->vectors[0];
    h->vectors[1] += times * x->vectors[1];
    h->largest = cost_larger(h->largest, x->largest);
    h->made = cost_larger(h->made, x->made);
    h->part = cost_larger(h->part, x->part);
    h->piece = cost_larger(h->piece, x->gradients);
    h->scattered += x->part * times;
    h->workspace = cost_larger(h->workspace, workspace);
    for (int k = 0; k < 3 && k < times; k++) {
        add_place(h, x->state - x->whole_state);
        add_place(h, x->whole_state);
        add_place(h, x->expert_state);
    }
    h->blocks += (uint32_t)times;
}

struct walk {
    const struct cost_rooms *x;
    struct moments_stage *out;
    double keep, left, gradients, early; /* of the blocks in front */
    bool received;                       /* the next block's input is the stage's, which stays on the device */
    double places;                       /* on the device, of what blocks keep in host memory */
    bool paired;                         /* two actions run beside one another */
    uint32_t front;                      /* layers so far, up to two */
    double gathered, ahead, nblocks;     /* bytes that a block gathers; uses ahead; blocks so far that gather for a backward pass */
};

/* the most of what a run of blocks takes at its ends, where the sums of others change evenly along it */
static void at_ends(double *most, double first, double each, double times)
{
    *most = cost_larger(*most, cost_larger(first, first + each * (times - 1)));
}

/* the fullest moments of a block's passes */
struct passes {
    double backward, input;
};

/* the same of a rank's last pass: a block finds only those in front of it gathered */
static void add_closing(struct walk *w, const struct passes *all_of, const struct passes *first, double keep, double left, double g,
                        double early, double times)
{
    struct moments_stage *s = w->out;
    double all = w->gathered * (w->ahead + 1);
    s->closing.first_backward = cost_larger(s->closing.first_backward, s->closing.last_backward);
    for (double k = 0, n; k < times; k += n) {
        double there = cost_smaller(all, w->gathered * (w->nblocks + k + 1)), ks = keep * k, ls = left * k;
        n = there < all ? 1 : times - k;
        bool ends = k + n >= times;
        at_ends(&s->closing.backward, all_of->backward + there + ks, keep, n);
        at_ends(&s->closing.input, all_of->input + there + ks - ls, keep - left, n);
        at_ends(&s->closing.first_input, first->input + there - w->early + ks - ls - k * early, keep - left - early, n);
        if (n - ends > 0)
            at_ends(&s->closing.first_backward, first->backward + there - w->gradients + ks - k * g, keep - g, n - ends);
        s->closing.last_backward = first->backward + there - w->gradients + (times - 1) * (keep - g);
    }
    w->nblocks += times;
}

/* a run of blocks, or what they add to the last one that there is room for; begin: of the first backward pass */
static void add_run(struct walk *w, const struct cost_block *b, const struct cost_lives *v, double begin, double keep, double g,
                    double times)
{
    struct moments_stage *s = w->out;
    double parked = w->places - v->parked, f = w->keep + v->forward + parked, back = w->keep + v->backward + parked;
    double behind = (times - 1) * keep, first = back - v->backward + begin - w->gradients;
    struct moments_run r = {.forward = {f, f + behind},
                            .backward = {back, back + behind},
                            .first_backward = {first, first + behind - (times - 1) * g}};
    struct moments_run *to = &s->runs[s->nruns < MOMENTS_RUNS ? s->nruns : MOMENTS_RUNS - 1];
    if (s->nruns < MOMENTS_RUNS) {
        s->nruns++;
        *to = r;
        to->forward_s = to->backward_s = 0;
    }
    to->forward[1] = cost_larger(to->forward[1], r.forward[1]);
    to->backward[1] = cost_larger(to->backward[1], r.backward[1]);
    to->first_backward[1] = cost_larger(to->first_backward[1], r.first_backward[1]);
    double takes = times * (b->backward_s + b->backward_comm_s);
    bool head = b->lives->kind == LIVES_HEAD && to > s->runs;
    to->forward_s += times * (b->forward_s + b->forward_comm_s);
    to->backward_s += head ? takes / 2 : takes; /* logits go as its second product begins: nothing else of it is as large */
    if (head)
        to[-1].backward_s += takes / 2;
}

/* up to the second layer of a stage */
static void add_front(struct walk *w, const struct cost_block *b, const struct cost_lives *v, double g, double early, double times)
{
    struct moments_stage *s = w->out;
    double keep = v->keep - v->parked, left = v->left - v->left_parked;
    double parked = w->places - v->parked, left_parked = cost_larger(0, w->places - v->left_parked);
    for (uint32_t k = 0; k < times && w->front < 2; k++, w->front += b->lives->kind == LIVES_LAYER) {
        double back = w->keep + k * keep + v->backward + parked, late = w->left + k * left + v->weight + left_parked;
        s->front_backward[0] = cost_larger(s->front_backward[0], back);
        s->front_backward[1] = cost_larger(s->front_backward[1], back - w->gradients - k * g);
        s->front_weight[0] = cost_larger(s->front_weight[0], late);
        s->front_weight[1] = cost_larger(s->front_weight[1], late - (w->gradients - w->early) - k * (g - early));
    }
}

/* are gradients summed between ranks in another format than they are made in? */
static bool converts(const struct cost_rooms *x)
{
    return x->reduced < x->made || x->reduced > x->made;
}

/* What a block takes: with gradients as they are made beside those that they are converted to, after their only microbatch;
 * or at its end, when those of every microbatch are converted. */
static struct cost_lives lives_of(const struct walk *w, const struct cost_block *b, const struct cost_held *h)
{
    const struct cost_rooms *x = w->x;
    const struct decision *d = x->c->decision;
    struct cost_lives v = *cost_lives(x->c, b);
    double *all[] = {&v.backward, &v.backward_of[0], &v.backward_of[1], &v.weight};
    for (int k = 0; k < 4 && converts(x); k++) {
        *all[k] += d->zero < 2 && d->microbatches == 1 ? x->made * h->gradients : 0;
        *all[k] = cost_larger(*all[k], d->zero < 2 ? 0 : x->reduced * h->made);
    }
    return v;
}

/* Front to back; what a stage's later blocks hold is then known as a sum less those in front.  Backward passes come from the
 * back: of what is kept they find the blocks in front, and of gradients those behind. */
static void add_blocks(struct walk *w, const struct cost_block *b, const struct cost_held *h, double times)
{
    const struct cost_lives own = lives_of(w, b, h), *v = &own;
    struct moments_stage *s = w->out;
    double keep = v->keep - v->parked, left = v->left - v->left_parked, g = w->x->gradient * h->gradients;
    double early = w->x->gradient * (b->early_matrices + h->experts);
    double parked = w->places - v->parked, left_parked = cost_larger(0, w->places - v->left_parked);
    double backward = v->backward, input = v->input; /* of the first pass, whose gradients of experts count from the begin */
    if (h->experts > 0) {
        backward = cost_larger(v->backward_of[0] - w->x->gradient * h->expert_gradients, v->backward_of[1]);
        input = cost_larger(v->input_of[0] - w->x->gradient * h->experts, v->input_of[1]);
    }
    at_ends(&s->forward, w->keep + v->forward + parked, keep, times);
    at_ends(&s->backward, w->keep + v->backward + parked, keep, times);
    s->first_backward = cost_larger(s->first_backward, s->last_backward); /* of a block in front of this one */
    s->first_weight = cost_larger(s->first_weight, s->last_weight);
    if (times > 1)
        at_ends(&s->first_backward, w->keep + backward + parked - w->gradients, keep - g, times - 1);
    s->last_backward = w->keep + backward + parked - w->gradients + (times - 1) * (keep - g);
    at_ends(&s->input, w->keep + v->input + parked - w->left - left, keep - left, times);
    at_ends(&s->first_input, w->keep + input + parked - w->left - left - w->early, keep - left - early, times);
    at_ends(&s->weight, w->left + v->weight + left_parked, left, times);
    if (times > 1)
        at_ends(&s->first_weight, w->left + v->weight + left_parked - (w->gradients - w->early), left - (g - early), times - 1);
    s->last_weight = w->left + v->weight + left_parked - (w->gradients - w->early) + (times - 1) * (left - (g - early));
    if (w->paired)
        add_run(w, b, v, backward, keep, g, times);
    s->turns = cost_larger(s->turns, v->backward + parked - keep);
    if (w->gathered > 0)
        add_closing(w, &(struct passes){w->keep + v->backward + parked, w->keep + v->input + parked - w->left - left},
                    &(struct passes){w->keep + backward + parked, w->keep + input + parked - w->left - left}, keep, left, g, early,
                    times);
    add_front(w, b, v, g, early, times);
    w->keep += times * keep + (w->received ? v->parked_input : 0);
    w->received = false;
    w->left += times * left;
    w->gradients += times * g;
    w->early += times * early;
}

/* The table of a tied model is one where both ends are on a rank; the head's backward pass is the first to make its gradient. */
static struct cost_held move_gradient(struct cost_held *from, const struct cost_held *to)
{
    struct cost_held both = *to;
    both.gradients += from->gradients;
    from->gradients = 0;
    return both;
}

static void add_both(struct walk *w, struct own_sums *sums, const struct cost_block *b, const struct cost_held *h, double times)
{
    add_sums(sums, h, times, cost_lives(w->x->c, b)->workspace);
    add_blocks(w, b, h, times);
}

/* Layers are worked on in two places in turns, or in one where there is only one layer.  Copies have a queue of their own, so
 * that placement must take places as taken all the time. */
static double places_of(const struct cost_rooms *x, uint32_t r)
{
    const struct decision *d = x->c->decision;
    double most = 0;
    uint32_t layers = 0;
    if (!(x->c->job->wishes.offload & OFFLOAD_ACTIVATIONS))
        return 0;
    for (uint32_t j = 0; j < cost_rank_stages(d); j++) {
        const struct stage *st = &d->stages[cost_held_stage(d, r, j)];
        layers = st->count > layers ? st->count : layers;
        for (uint32_t i = 0; i < st->count; i += cost_run(x->s, st, i))
            most = cost_larger(most, cost_lives(x->c, cost_layer(x->s, st, i))->parked);
    }
    return most * (layers > 1 ? 2 : 1);
}

static void walk_stage(const struct cost_rooms *x, uint32_t stage, double places, double gathered, struct own_stage *result)
{
    const struct cost *c = x->c;
    const struct cost_shape *s = x->s;
    const struct model *m = &c->job->model;
    const struct stage *st = &c->decision->stages[stage];
    struct moments_stage *out = &result->moments;
    struct own_sums *sums = &result->sums;
    struct walk w = {.x = x, .out = out, .places = places, .received = !st->embed, .paired = decision_pairs(c->decision->schedule),
                     .gathered = gathered, .ahead = x->ahead};
    *sums = (struct own_sums){0};
    memset(out, 0, offsetof(struct moments_stage, runs));
    out->front_backward[1] = out->front_weight[1] = -INFINITY;
    out->forward = out->backward = out->input = out->weight = out->first_backward = out->first_input = out->first_weight =
        out->last_backward = out->last_weight = out->closing.backward = out->closing.first_backward = out->closing.last_backward =
            out->closing.input = out->closing.first_input = -INFINITY;
    bool one_table = m->tied && cost_ends_meet(c->decision);
    struct cost_held embed = x->embed, head = one_table ? cost_held_block(x, &s->head, 0, false) : x->head;
    if (one_table)
        head = move_gradient(&embed, &head);
    if (st->embed)
        add_both(&w, sums, &s->embed, &embed, 1);
    w.nblocks = 0;
    for (uint32_t i = 0, run; i < st->count; i += run) {
        const struct cost_block *b = cost_layer(s, st, i);
        uint32_t kind = s->kind[st->first + i];
        run = cost_run(s, st, i);
        struct cost_held own = kind < x->nlayers ? x->layers[kind] : cost_held_block(x, b, b->matrices, false);
        add_both(&w, sums, b, &own, run);
    }
    if (st->head) {
        add_both(&w, sums, &s->head, &head, 1);
        if (m->predict)
            add_both(&w, sums, &s->predict, &x->predict, m->predict);
        double copied = cost_padded(x, cost_copied_table(c, s));
        sums->dense += copied;
        w.gradients += x->gradient * copied;
    }
    out->keep = w.keep;
    out->turns += x->least ? -INFINITY : w.keep; /* some schedules place better */
    out->left = w.left;
    out->gradients = w.gradients;
    out->early = w.early;
    out->first_backward += w.gradients;
    out->closing.first_backward += w.gradients;
    out->closing.last_backward += w.gradients;
    out->closing.input += w.left;
    out->closing.first_input += w.left + w.early;
    for (uint32_t k = 0; k < 2 * out->nruns; k++)
        out->runs[k / 2].first_backward[k % 2] += w.gradients;
    out->input += w.left;
    out->first_input += w.left + w.early;
    out->first_weight += w.gradients - w.early;
    out->last_backward += w.gradients;
    out->last_weight += w.gradients - w.early;
    double vectors = cost_padded(x, sums->vectors[0]) + cost_padded(x, sums->vectors[1]); /* a bucket each, on every rank whole */
    sums->dense_vectors = vectors;
    out->gradients += x->gradient * vectors;
}

static void join_sums(struct own_sums *all, const struct own_sums *x)
{
    all->dense += x->dense;
    all->experts += x->experts;
    all->dense_vectors += x->dense_vectors;
    all->largest = cost_larger(all->largest, x->largest);
    all->made = cost_larger(all->made, x->made);
    all->part = cost_larger(all->part, x->part);
    all->piece = cost_larger(all->piece, x->piece);
    all->scattered += x->scattered;
    all->workspace = cost_larger(all->workspace, x->workspace);
    all->blocks += x->blocks;
    all->first = all->nplaces ? all->first : x->first;
    all->nplaces += x->nplaces;
    all->fetched = cost_larger(all->fetched, x->fetched);
}

/* Most stages are as many layers of one kind as others; what such ones come to is remembered. */
static const struct own_stage *own_stage(const struct cost_rooms *x, uint32_t stage, double places, double gathered,
                                         struct own_stages *known, struct own_stage *room)
{
    const struct stage *st = &x->c->decision->stages[stage];
    uint32_t kind = st->count ? x->s->kind[st->first] : 0, n = known ? known->n : 0; /* an empty stage may begin behind the last layer */
    bool usual = known && !st->embed && !st->head && st->count && x->s->run[st->first] >= st->count;
    for (uint32_t i = 0; usual && i < n; i++)
        if (known->at[i].kind == kind && known->at[i].gathered == gathered && known->at[i].count == st->count && known->at[i].spared == st->spared)
            return &known->at[i];
    if (usual && n < OWN_STAGES)
        room = &known->at[known->n++];
    walk_stage(x, stage, places, gathered, room);
    room->kind = kind;
    room->gathered = gathered;
    room->count = st->count;
    room->spared = st->spared;
    return room;
}

/* bytes of a place that the rank's blocks gather their parameters in */
static double gathered_of(const struct cost_rooms *x, uint32_t r)
{
    const struct decision *d = x->c->decision;
    const struct model *m = &x->c->job->model;
    double most = 0;
    for (uint32_t j = 0; j < cost_rank_stages(d) && d->zero >= 3; j++) {
        const struct stage *st = &d->stages[cost_held_stage(d, r, j)];
        bool one_table = m->tied && cost_ends_meet(d);
        if (st->embed)
            most = cost_larger(most, x->embed.largest);
        if (st->head)
            most = cost_larger(most, one_table ? cost_held_block(x, &x->s->head, 0, false).largest : x->head.largest);
        if (st->head && m->predict)
            most = cost_larger(most, x->predict.largest);
        for (uint32_t i = 0; i < st->count; i += cost_run(x->s, st, i)) {
            const struct cost_block *b = cost_layer(x->s, st, i);
            uint32_t kind = x->s->kind[st->first + i];
            most = cost_larger(most, kind < x->nlayers ? x->layers[kind].largest : cost_held_block(x, b, b->matrices, false).largest);
        }
    }
    return most * (x->c->job->train.precision == DT_FP32 ? 4 : 2);
}

/* gradients on their way to shards: what is made lies in two places, or in one if it is converted into two others */
static struct moments_shards shards_made(const struct cost_rooms *x, const struct own_sums *h)
{
    bool shards = x->c->decision->zero >= 2, blocks = x->c->job->wishes.never_overlap & OVERLAP_DP;
    double made = shards ? x->made * h->made : 0, part = shards ? x->reduced * h->part : 0;
    double sent = shards ? x->reduced * h->made : 0;
    if (!converts(x))
        return (struct moments_shards){.first = made, .next = blocks ? made : 2 * made, .then = blocks ? 0 : 2 * made + part,
                                       .beside = blocks ? made + part : 0};
    return (struct moments_shards){.first = made, .next = blocks ? made : made + sent + part, .then = blocks ? 0 : sent + part,
                                   .beside = blocks ? made + part : made};
}

/* all gradients of a rank as the optimizer finds them, of so many bytes while microbatches are added up */
static double complete_bytes(const struct cost_rooms *x, const struct own_sums *h, double gradients)
{
    const struct decision *d = x->c->decision;
    double apart = d->zero >= 2 && d->shard == d->dp * d->cp ? h->scattered : 0; /* no copies: not summed once more */
    return x->reduced * (gradients / x->gradient - apart) + x->made * apart;
}

/* of the block in front, in the last action that makes gradients */
static double last_bytes(const struct cost_rooms *x, const struct moments_stage *stages)
{
    double most = 0;
    for (uint32_t j = 0; j < cost_rank_stages(x->c->decision); j++)
        most = cost_larger(most, x->splits ? stages[j].front_weight[0] : stages[j].front_backward[0]);
    return most;
}

void cost_own_rank(const struct cost_rooms *x, uint32_t r, struct own_stages *known, struct estimate *e)
{
    const struct decision *d = x->c->decision;
    struct moments_stage stages[DECISION_MOST_VPP];
    struct own_sums all = {0};
    struct own_stage room;
    double places = places_of(x, r), gathered = gathered_of(x, r), persistent, state, gradients = 0;
    for (uint32_t j = 0; j < cost_rank_stages(d); j++) {
        const struct own_stage *stage = own_stage(x, cost_held_stage(d, r, j), places, gathered, places > 0 ? NULL : known, &room);
        memcpy(&stages[j], &stage->moments, offsetof(struct moments_stage, runs) + stage->moments.nruns * sizeof *stages->runs);
        join_sums(&all, &stage->sums);
        gradients += stages[j].gradients;
    }
    struct moments_shards shards_of = shards_made(x, &all);
    double complete = complete_bytes(x, &all, gradients);
    if (decision_skews(x->c->job, d)) {
        shards_of.foretold = complete;
        shards_of.early = d->pp - 1 - r < d->microbatches ? d->pp - 1 - r : d->microbatches;
    }
    double split = d->zero ? 1.0 / d->shard : 1, expert_split = d->zero ? 1.0 / x->expert_shard : 1;
    persistent = x->parameter * (all.dense_vectors + (d->zero >= 3 ? all.dense * split + all.experts * expert_split : all.dense + all.experts));
    state = x->state * ((all.dense + all.dense_vectors) * split + all.experts * expert_split);
    bool parks = x->c->job->wishes.offload & OFFLOAD_ACTIVATIONS;
    double shards = 0, fetched = x->place * all.first;
    shards_of.fetched = parks ? fetched : 0; /* behind the last copies of activations; else nothing before holds them back */
    shards_of.gathered = gathered * cost_gathered_places(x, all.blocks);
    struct moments most = pipeline_moments(d, r, stages, &shards_of);
    shards += parks ? 0 : fetched;
    double step = cost_larger(most.bytes + shards, complete + x->place * all.fetched);
    if (complete > gradients && !x->least)
        step = cost_larger(step, complete + x->made * all.piece + last_bytes(x, stages));
    double kept = cost_larger(0, most.kept - (gradients - most.gradients));
    e->peak_stage = r;
    e->parameter_bytes = (uint64_t)persistent;
    e->optimizer_bytes = (uint64_t)state;
    e->gradient_bytes = (uint64_t)cost_smaller(gradients, step);
    e->activation_bytes = (uint64_t)cost_smaller(kept, step - (double)e->gradient_bytes);
    e->buffer_bytes = (uint64_t)(step + all.workspace) - e->gradient_bytes - e->activation_bytes;
    e->communicator_bytes = x->communicator_bytes;
    e->context_bytes = (uint64_t)(x->c->buffers->context_gib * (1 << 30));
    e->allocator_bytes = 0;
    e->peak_bytes = e->parameter_bytes + e->gradient_bytes + e->optimizer_bytes + e->activation_bytes + e->buffer_bytes +
                    e->communicator_bytes + e->context_bytes;
}
