/* Memory of llmrun's stages: what each block holds, and the peak of its passes (lives.c), as sums over the blocks
 * from front to back.  Equal blocks form one run, and equal stages are computed once. */

#include "compiler/cost/mem.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static void add_sums(struct own_sums *h, const struct cost_held *x, double times, double workspace)
{
    h->dense += times * x->own;
    h->experts += times * x->experts;
    h->vectors[0] += times * x->vectors[0];
    h->vectors[1] += times * x->vectors[1];
    h->largest = cost_larger(h->largest, x->largest);
    h->made = cost_larger(h->made, x->made);
    h->part = cost_larger(h->part, x->part);
    h->workspace = cost_larger(h->workspace, workspace);
}

/* A tied model has one table where both ends of the pipeline are on one rank. */
static const struct cost_held *head_held(const struct cost_rooms *x, struct cost_held *h)
{
    const struct cost *c = x->c;
    if (!c->job->model.tied || !cost_ends_meet(c->decision))
        return &x->head;
    *h = cost_held_block(x, &x->s->head, 0, false);
    h->gradients[2] = x->head.gradients[2];
    h->sums[2] = x->head.sums[2];
    return h;
}

bool cost_next_run(struct cost_runs *r, struct cost_run *out)
{
    const struct cost_rooms *x = r->x;
    const struct stage *st = r->st;
    out->times = 1;
    if (r->at == 0 && r->at++ == 0 && st->embed) {
        out->b = &x->s->embed;
        out->held = &x->embed;
        return true;
    }
    if (r->at <= st->count) {
        uint32_t i = r->at - 1, kind = x->s->kind[st->first + i], run = cost_run(x->s, st, i);
        out->b = cost_layer(x->s, st, i);
        out->held = kind < x->nlayers ? &x->layers[kind] : &out->own;
        if (kind >= x->nlayers)
            out->own = cost_held_block(x, out->b, out->b->matrices, false);
        out->times = run;
        r->at += run;
        return true;
    }
    bool head = r->at++ == st->count + 1;
    out->b = head ? &x->s->head : &x->s->predict;
    out->held = head ? head_held(x, &out->own) : &x->predict;
    out->times = head ? 1 : x->c->job->model.predict;
    return st->head && out->times > 0 && r->at <= st->count + 3;
}

struct stage_walk {
    const struct cost_rooms *x;
    struct moments_stage *out;
    struct moments_sums front; /* sums over the blocks before */
    bool received;             /* the next block's input is the stage's, which stays on the device */
    double places;             /* bytes of the places on the device for what blocks keep in host memory */
    double near[2], near_left; /* bytes that the last two layers so far take of the places; that W needs of the last
                                * one */
    uint32_t nlayers, npieces; /* layers so far; blocks of the rank's stages so far */
    bool paired;               /* two actions run beside one another */
};

/* Raises *most to the larger value of a run's two ends; between them the sums of other blocks change linearly. */
static void at_ends(double *most, double first, double each, double times)
{
    *most = cost_larger(*most, cost_larger(first, first + each * (times - 1)));
}

/* Adds a run of blocks or, where there is no room, extends the last one.  What its passes find in the places for
 * copies belongs to the blocks before it: in F on the way to host memory, in B already fetched. */
static void add_run(struct moments_stage *s, const struct cost_lives *v, const struct moments_block *m, double near)
{
    if (s->nruns == MOMENTS_RUNS) {
        s->runs[MOMENTS_RUNS - 1].times += m->times;
        return;
    }
    s->runs[s->nruns++] = (struct moments_run){.lives = v,
                                               .times = m->times,
                                               .keep = m->each.keep,
                                               .places = {near, near},
                                               .end = m->beside[0],
                                               .converts = m->converts,
                                               .made = m->each.made,
                                               .scattered = m->scattered,
                                               .part = m->part,
                                               .uses = m->each.uses[1],
                                               .makes = m->makes};
}

bool cost_converts(const struct cost_rooms *x)
{
    return x->reduced < x->made || x->reduced > x->made;
}

/* Gradients of a block after its last microbatch: those of its matrices are converted, and then those of its
 * experts, if they are reduced between ranks; or, with `late`, those that are only reduced after all actions.  made,
 * after: bytes before and after; returns the most bytes during the conversion. */
static double convert(const struct cost_rooms *x, const struct cost_held *h, bool late, double *made, double *after)
{
    double most = *made = *after = x->made * (h->gradients[0] + h->gradients[1] + h->gradients[2] + h->begun);
    for (int k = 0; k < 3 && cost_converts(x); k++)
        if (h->sums[k] && h->gradients[k] > 0 && late == (h->tied || k == 2)) {
            most = cost_larger(most, *after + x->reduced * h->gradients[k]);
            *after += (x->reduced - x->made) * h->gradients[k];
        }
    if (cost_converts(x) && late && h->begun > 0) {
        most = cost_larger(most, *after + x->reduced * h->begun);
        *after += (x->reduced - x->made) * h->begun;
    }
    return most;
}

static void add_moments(struct moments_sums *to, const struct moments_sums *x, double times)
{
    to->keep += times * x->keep;
    to->left += times * x->left;
    to->made += times * x->made;
    to->early += times * x->early;
    to->after += times * x->after;
    for (int k = 0; k < 2; k++) {
        to->uses[k] += times * x->uses[k];
        to->copies[k] += times * x->copies[k];
    }
}

/* Merges a run of blocks of a stage into the last one that there is room for. */
static void merge_block(struct moments_block *to, const struct moments_block *b)
{
    double all = to->times + b->times;
    struct moments_sums each = {0};
    add_moments(&each, &to->each, to->times / all);
    add_moments(&each, &b->each, b->times / all);
    to->times = all;
    to->each = each;
    to->converts |= b->converts;
    double *most[] = {&to->forward,
                      &to->input,
                      &to->weight,
                      &to->first_input,
                      &to->end,
                      &to->backward.begin,
                      &to->backward.made,
                      &to->backward.used,
                      &to->first_backward.begin,
                      &to->first_backward.made,
                      &to->first_backward.used};
    const double *own[] = {&b->forward,
                           &b->input,
                           &b->weight,
                           &b->first_input,
                           &b->end,
                           &b->backward.begin,
                           &b->backward.made,
                           &b->backward.used,
                           &b->first_backward.begin,
                           &b->first_backward.made,
                           &b->first_backward.used};
    for (size_t k = 0; k < sizeof most / sizeof *most; k++)
        *most[k] = cost_larger(*most[k], *own[k]);
}

/* The peak bytes of a pass over the moments of a set (cost_lives.backward_of), less the gradients of matrices and of
 * experts that do not exist at the moment. */
static double without(const double of[8], uint32_t set, const double gradients[2])
{
    double most = -INFINITY;
    for (uint32_t k = 0; k < 8; k++)
        if (set >> k & 1 && of[k] > 0)
            most = cost_larger(most, of[k] - (k & 1 ? 0 : gradients[0]) - (k & 2 ? 0 : gradients[1]));
    return most;
}

/* made: its gradients on their way to shards are of matrices (1) or experts (2). */
static struct moments_backward backward_of(const struct cost_lives *v, uint32_t made, const double gradients[2],
                                           double parked)
{
    uint32_t set = 0;
    for (uint32_t k = 1; k < 4; k++)
        set |= k & made ? 1u << k : 0;
    return (struct moments_backward){.begin = without(v->backward_of, 0xf & ~set, gradients) + parked,
                                     .made = without(v->backward_of, set, gradients) + parked,
                                     .used = without(v->backward_of, 0xf0, gradients) + parked};
}

/* Bytes that the layers before take of the places that a block leaves free. */
static double near_of(const struct stage_walk *w, const struct cost_block *b)
{
    return w->near[0] + (b->lives->kind == LIVES_LAYER ? 0 : w->near[1]);
}

/* A run of blocks: what each of them leaves, and its passes. */
static void block_of(const struct stage_walk *w, const struct cost_block *b, const struct cost_lives *v,
                     const struct cost_held *h, double times, struct moments_block *to)
{
    const struct cost_rooms *x = w->x;
    double parked = w->places - v->parked, left_parked = cost_larger(0, w->places - v->left_parked);
    double near = near_of(w, b);
    bool takes = v->parked - (w->received ? v->parked_input : 0) > 0;
    double made, after, most = convert(x, h, false, &made, &after), early = x->made * (b->early_matrices + h->experts);
    bool zero2 = x->c->decision->zero >= 2, zero3 = x->c->decision->zero >= 3;
    *to = (struct moments_block){.times = times,
                                 .each = {.keep = v->keep - v->parked,
                                          .left = v->left - v->left_parked,
                                          .made = made,
                                          .early = cost_smaller(early, made),
                                          .after = after},
                                 .in_front = w->front,
                                 .forward = v->forward + parked,
                                 .input = v->input + parked,
                                 .weight = v->weight + left_parked,
                                 .end = most > made ? most : 0,
                                 .part = zero2 ? x->reduced * h->part : 0,
                                 .converts = cost_converts(x) && zero2 && h->made > 0,
                                 .beside = {x->s->boundary_bytes + w->places, w->places},
                                 .others = {parked - near, left_parked - w->near_left},
                                 .near = {w->near[0], w->near_left},
                                 .leaving = {v->sent[0] + parked, v->sent[1] + left_parked},
                                 .ahead = takes || w->nlayers ? w->nlayers < (takes ? 1 : 2) : 2};
    to->each.copies[0] = v->parked > 0;
    to->each.copies[1] = v->left_parked > 0;
    to->each.uses[0] = zero3;
    to->each.uses[1] = zero3 && b->lives->kind != LIVES_EMBED;
    double whole[2];
    uint32_t sent = 0;
    for (int k = 0; k < 2; k++) {
        double sums = x->made * (h->gradients[k] + (k ? 0 : h->gradients[2]));
        bool apart = zero2 && h->made > 0 && h->gradients[k] < (k ? h->experts : h->own);
        to->scattered += apart ? sums : 0;
        sent |= apart ? 1u << k : 0;
        whole[k] = apart ? 0 : sums;
    }
    const double all[] = {0, 0}, own[] = {whole[0], whole[1]};
    const double now[] = {cost_smaller(early, x->made * b->early_matrices), x->made * h->experts};
    to->makes = sent ? sent : 3;
    to->backward = backward_of(v, to->makes, all, parked);
    to->first_backward = backward_of(v, to->makes, own, parked);
    to->first_input = without(v->input_of, 0xff, now) + parked;
}

/* Adds blocks from front to back; what a stage's later blocks hold is then the total less those before.  Backward
 * passes go from back to front: they find what the blocks before them keep, and the gradients of the blocks after
 * them. */
static void add_blocks(struct stage_walk *w, const struct cost_block *b, const struct cost_lives *v,
                       const struct cost_held *h, double times)
{
    struct moments_stage *s = w->out;
    struct moments_block spare, *m = s->nblocks < MOMENTS_BLOCKS ? &s->blocks[s->nblocks] : &spare;
    block_of(w, b, v, h, times, m);
    const struct moments_sums *f = &m->in_front, *e = &m->each;
    at_ends(&s->forward, f->keep + m->forward, e->keep, times);
    at_ends(&s->backward.begin, f->keep + m->backward.begin, e->keep, times);
    at_ends(&s->backward.made, f->keep + m->backward.made, e->keep, times);
    at_ends(&s->backward.used, f->keep + m->backward.used, e->keep, times);
    at_ends(&s->input, f->keep + m->input - f->left - e->left, e->keep - e->left, times);
    at_ends(&s->weight, f->left + m->weight, e->left, times);
    if (m->scattered > 0 && !cost_converts(w->x) && !(w->x->c->job->wishes.never_overlap & OVERLAP_DP)) {
        at_ends(&s->leaving[0], f->keep + m->leaving[0], e->keep, times);
        at_ends(&s->leaving[1], f->left + m->leaving[1], e->left, times);
    }
    if (m->converts) {
        at_ends(&s->backward_end, f->keep + m->beside[0], e->keep, times);
        at_ends(&s->weight_end, f->left + m->beside[1], e->left, times);
    }
    s->moved = f->keep + e->keep * (times - 1) + v->moved + w->places - v->parked;
    memcpy(s->ahead, v->ahead, sizeof s->ahead);
    if (w->paired)
        add_run(s, v, m, near_of(w, b));
    if (m == &spare)
        merge_block(&s->blocks[MOMENTS_BLOCKS - 1], &spare);
    else
        s->nblocks++;
    add_moments(&w->front, e, times);
    s->part = s->scatters > 0 ? s->part : m->part;
    s->scatters += h->made > 0 ? times : 0;
    w->front.keep += w->received ? v->parked_input : 0;
    w->received = false;
}

/* Adds equal layers, but those separately that follow a layer of another kind, and a stage's first one, whose input
 * is no copy. */
static void add_layers(struct stage_walk *w, const struct cost_block *b, const struct cost_lives *v,
                       const struct cost_held *h, double times)
{
    struct moments_stage *out = w->out;
    if (b->lives->kind != LIVES_LAYER) {
        add_blocks(w, b, v, h, times);
        w->npieces += (uint32_t)times;
    }
    for (double n; b->lives->kind == LIVES_LAYER && times > 0; times -= n) {
        double own = v->parked - (w->received ? v->parked_input : 0);
        n = w->near[0] >= v->parked && w->near[0] <= v->parked ? times : 1;
        add_blocks(w, b, v, h, n);
        if (!w->nlayers) {
            out->emptied = w->npieces % 2;
            out->in_front = out->nruns - (own > 0);
        }
        w->npieces += (uint32_t)n;
        w->nlayers += own > 0 ? (uint32_t)n : 0;
        w->near[1] = n > 1 ? v->parked : w->near[0];
        w->near[0] = own;
        w->near_left = v->left_parked;
        out->fetched_to = (w->npieces - 1) % 2;
        out->fetches[0] = own;
        out->fetches[1] = v->left_parked;
    }
}

static void add_both(struct stage_walk *w, struct own_sums *sums, const struct cost_block *b, const struct cost_held *h,
                     double times)
{
    const struct cost_lives *v = w->paired ? cost_paired_lives(w->x->c, b) : cost_lives(w->x->c, b);
    if (cost_converts(w->x)) {
        double made, after, most = convert(w->x, h, true, &made, &after) - made;
        at_ends(&sums->converted, sums->late + most, after - made, times);
        sums->late += times * (after - made);
    }
    add_sums(sums, h, times, v->workspace);
    add_layers(w, b, v, h, times);
}

static void begin_stage(struct moments_stage *out)
{
    memset(out, 0, offsetof(struct moments_stage, runs));
    out->forward = out->input = out->weight = out->backward_end = out->weight_end = out->leaving[0] = out->leaving[1] =
        -INFINITY;
    out->backward = (struct moments_backward){-INFINITY, -INFINITY, -INFINITY};
}

/* Finds the uses since gradients were last sent to shards, by blocks from back to front. */
static void find_since(struct moments_stage *s)
{
    double since = INFINITY, behind = 0, part = 0;
    s->all_scatter = true;
    for (uint32_t k = s->nblocks; k-- > 0;) {
        struct moments_block *b = &s->blocks[k];
        b->since = since;
        b->behind = behind;
        b->part_behind = part;
        part = b->scattered > 0 ? b->part : part;
        behind += b->scattered > 0 ? b->times : 0;
        since = b->scattered > 0 ? 0 : since + b->times * b->each.uses[1];
        s->all_scatter &= b->scattered > 0 && !(b->part < s->part || b->part > s->part);
    }
    s->since = since;
    since = INFINITY;
    for (uint32_t k = s->nruns; k-- > 0;) {
        struct moments_run *r = &s->runs[k];
        r->since = since;
        r->part_behind = part;
        part = r->scattered > 0 ? r->part : part;
        since = r->scattered > 0 ? 0 : since + r->times * r->uses;
    }
}

static void end_stage(const struct stage_walk *w, const struct own_sums *sums, double copied)
{
    const struct cost_rooms *x = w->x;
    struct moments_stage *out = w->out;
    out->keep = w->front.keep;
    out->left = w->front.left;
    out->made = w->front.made;
    out->early = w->front.early;
    out->after = w->front.after;
    out->uses[0] = w->front.uses[0];
    out->uses[1] = w->front.uses[1];
    out->copies[0] = w->front.copies[0];
    out->copies[1] = w->front.copies[1];
    out->leaves[0] = w->near[0];
    out->leaves[1] = w->near[1];
    out->in_front = w->nlayers ? out->in_front : out->nruns;
    find_since(out);
    for (uint32_t k = 0; k < out->nruns; k++) {
        const struct moments_run *r = &out->runs[k];
        const double of[] = {r->times, r->keep, r->places[0], r->places[1], r->end};
        out->mark = cost_mark(out->mark ^ r->lives->mark, of, sizeof of);
    }
    out->input += w->front.left;
    out->gradients = w->front.made + x->made * (sums->dense_vectors + copied);
}

static void walk_stage(const struct cost_rooms *x, uint32_t stage, double places, uint32_t *npieces,
                       struct moments_stage *out, struct own_sums *sums)
{
    const struct cost *c = x->c;
    const struct stage *st = &c->decision->stages[stage];
    struct stage_walk w = {.x = x,
                           .out = out,
                           .places = places,
                           .received = !st->embed,
                           .npieces = *npieces,
                           .paired = decision_pairs(c->decision->schedule)};
    double copied = st->head ? cost_padded(x, cost_copied_table(c, x->s)) : 0;
    *sums = (struct own_sums){0};
    begin_stage(out);
    struct cost_run run;
    for (struct cost_runs all = {.x = x, .st = st}; cost_next_run(&all, &run);)
        add_both(&w, sums, run.b, run.held, run.times);
    sums->dense += copied;
    sums->dense_vectors = cost_padded(x, sums->vectors[0]) +
                          cost_padded(x, sums->vectors[1]); /* one bucket each, whole on every rank */
    end_stage(&w, sums, copied);
    *npieces = w.npieces;
}

static void copy_stage(struct moments_stage *to, const struct moments_stage *from)
{
    memcpy(to, from, offsetof(struct moments_stage, runs));
    memcpy(to->runs, from->runs, from->nruns * sizeof *from->runs);
    memcpy(to->blocks, from->blocks, from->nblocks * sizeof *from->blocks);
}

/* Most stages have as many layers of the same kind as others; the results for these are cached. */
void cost_own_stage(const struct cost_rooms *x, uint32_t stage, double places, uint32_t *npieces,
                    struct own_stages *known, struct moments_stage *out, struct own_sums *sums)
{
    const struct stage *st = &x->c->decision->stages[stage];
    uint32_t kind = st->count ? x->s->kind[st->first] : 0; /* an empty stage may begin after the last layer */
    bool usual = known && !st->embed && !st->head && st->count && x->s->run[st->first] >= st->count;
    for (uint32_t i = 0; usual && i < known->n && i < OWN_STAGES; i++) {
        const struct own_stage *k = &known->at[i];
        if (k->kind != kind || k->count != st->count || k->spared != st->spared)
            continue;
        copy_stage(out, &k->moments);
        *sums = k->sums;
        return;
    }
    walk_stage(x, stage, places, npieces, out, sums);
    if (!usual)
        return;
    struct own_stage *k = &known->at[known->n++ % OWN_STAGES];
    k->kind = kind;
    k->count = st->count;
    k->spared = st->spared;
    k->sums = *sums;
    copy_stage(&k->moments, out);
}
