/* Cached shapes: the blocks for one key of degrees, made once for all decisions that share it, and what follows from
 * them alone: even cuts into stages, lower bounds, and how many layers each stage can spare from recomputation.
 *
 * Bounds: some rank takes at least its share of all blocks, m times over, and a microbatch has to pass through all
 * of them and back.  Of a family, by its cuts and placements: a rank does the work of m microbatches on all its
 * stages after the first microbatch has come through the stages before its first one, whatever the order of actions.
 * What schedules of overlapped pairs hide is left out where the space has such schedules. */

#include "compiler/search/trade.h"
#include "compiler/search/bounds.h"
#include "compiler/search/leaves.h"

#include <math.h>
#include <string.h>

bool search_same_group(const struct cost_group *a, const struct cost_group *b)
{
    return a->n == b->n && a->level == b->level && a->beyond == b->beyond &&
           !memcmp(a->below, b->below, sizeof a->below) && !memcmp(a->curve, b->curve, sizeof a->curve);
}

/* paired: some schedule overlaps a forward with a backward, so what may be hidden there does not count */
static double block_s(const struct cost_block *b, bool kernels_only, bool paired)
{
    double hidden = paired ? cost_paired_forward_s(b) + cost_paired_backward_s(b) : 0, back = b->backward_s,
           halves = b->input_s + b->weight_s;
    if (kernels_only)
        return b->forward_s + cost_smaller(back, halves);
    back += b->backward_comm_s;
    halves += b->input_comm_s + b->weight_comm_s;
    return b->forward_s + b->forward_comm_s + cost_smaller(back, halves) - hidden;
}

bool search_spares(const struct searching *s)
{
    return s->may_spare || s->first_layers;
}

static double least_s(const struct searching *s, const struct cost_shape *x, uint32_t kind, bool kernels_only,
                      bool paired)
{
    double own = block_s(&x->layers[kind], kernels_only, paired);
    return search_spares(s) ? cost_smaller(own, block_s(&x->spared[kind], kernels_only, paired)) : own;
}

double search_least_s(const struct searching *s, const struct cost_shape *x, uint32_t kind)
{
    return least_s(s, x, kind, false, s->overlapping);
}

/* Seconds of a forward that no decision can avoid in whose family this block is. */
static double block_forward_s(const struct searching *s, const struct cost_block *b)
{
    return b->forward_s + b->forward_comm_s - (s->may_spare ? b->kept_s : 0);
}

/* Least seconds on one microbatch's path forward and back: weight gradients may be computed later, and what is
 * recomputed before a gradient is needed may run earlier. */
static double block_path_s(const struct searching *s, const struct cost_block *b, bool kernels_only)
{
    double back = cost_smaller(b->backward_s + b->backward_comm_s, b->input_s + b->input_comm_s);
    double apart = b->apart_forward_s + b->apart_backward_s;
    if (kernels_only)
        return cost_larger(0, block_forward_s(s, b) - b->forward_comm_s + cost_smaller(b->backward_s, b->input_s) -
                                  b->again_s);
    return cost_larger(0, block_forward_s(s, b) + back - b->again_s - apart);
}

static double least_path_s(const struct searching *s, const struct cost_shape *x, uint32_t kind, bool kernels_only)
{
    double own = block_path_s(s, &x->layers[kind], kernels_only);
    return search_spares(s) ? cost_smaller(own, block_path_s(s, &x->spared[kind], kernels_only)) : own;
}

double search_least_path_s(const struct searching *s, const struct cost_shape *x, uint32_t kind)
{
    return least_path_s(s, x, kind, false);
}

static void fill_bounds(struct searching *s, struct search_shape *h)
{
    const struct model *m = &s->job->model;
    const struct cost_shape *x = &h->shape;
    bool paired = s->overlapping;
    for (uint32_t i = 0; i < m->nlayers; i += x->run[i]) {
        h->kernels_s += x->run[i] * least_s(s, x, x->kind[i], true, paired);
        h->all_s += x->run[i] * least_s(s, x, x->kind[i], false, paired);
        h->plain_s += x->run[i] * least_s(s, x, x->kind[i], false, false);
        h->path_s += x->run[i] * least_path_s(s, x, x->kind[i], false);
        h->kernels_path_s += x->run[i] * least_path_s(s, x, x->kind[i], true);
    }
    h->embed_forward_s = x->embed.forward_s + x->embed.forward_comm_s;
    h->path_s += h->embed_forward_s + block_path_s(s, &x->head, false) +
                 m->predict * block_path_s(s, &x->predict, false);
    h->kernels_path_s += x->embed.forward_s + block_path_s(s, &x->head, true) +
                         m->predict * block_path_s(s, &x->predict, true);
    h->embed_least_s = block_s(&x->embed, false, paired);
    h->head_least_s = block_s(&x->head, false, paired) + m->predict * block_s(&x->predict, false, paired);
    h->all_s += h->embed_least_s + h->head_least_s;
    h->plain_s += h->embed_least_s + h->head_least_s;
    h->kernels_s += block_s(&x->embed, true, paired) + block_s(&x->head, true, paired) +
                    m->predict * block_s(&x->predict, true, paired);
}

static struct search_before *fill_before(struct searching *s, struct search_shape *h, bool paired)
{
    struct search_before *to = &h->before[paired];
    uint32_t n = s->job->model.nlayers;
    const struct cost_shape *x = &h->shape;
    if (to->time_s)
        return to;
    double *forward = to->forward_s = ARENA_ARRAY(s->arena, double, n + 1);
    double *time = to->time_s = ARENA_ARRAY(s->arena, double, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const struct cost_block *b = &x->layers[x->kind[i]];
        forward[i + 1] = forward[i] + block_forward_s(s, b) - (paired ? b->apart_forward_s : 0);
        time[i + 1] = time[i] + least_s(s, x, x->kind[i], false, paired);
    }
    return to;
}

/* bytes: a multiple of 4 */
static uint64_t hash_words(uint64_t hash, const void *at, size_t bytes)
{
    const uint8_t *p = at;
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t word;
        memcpy(&word, p + i, 4);
        hash = (hash ^ word) * 1099511628211u;
    }
    return hash;
}

static uint64_t hash_group(uint64_t hash, const struct cost_group *g)
{
    return hash_words((hash ^ g->n) * 1099511628211u, g->below, sizeof g->below);
}

static struct group_key group_key(const struct cost_group *g)
{
    struct group_key k = {.n = g->n, .level = g->level, .beyond = g->beyond};
    memcpy(k.below, g->below, sizeof k.below);
    memcpy(k.curve, g->curve, sizeof k.curve);
    return k;
}

static bool same_key(const struct group_key *k, const struct cost_group *g)
{
    return k->n == g->n && k->level == g->level && k->beyond == g->beyond &&
           !memcmp(k->below, g->below, sizeof k->below) && !memcmp(k->curve, g->curve, sizeof k->curve);
}

/* twice as many places, once every other one may have a shape */
static void grow_shapes(struct searching *s)
{
    struct search_shape **old = s->shapes;
    uint64_t n = s->shape_places;
    if (2 * s->nshapes < n)
        return;
    s->shape_places = n ? 2 * n : 1024;
    s->shapes = ARENA_ARRAY(s->arena, struct search_shape *, s->shape_places);
    memset(s->shapes, 0, s->shape_places * sizeof(struct search_shape *));
    for (uint64_t i = 0; i < n; i++)
        for (struct search_shape *h = old[i], *next; h; h = next) {
            struct search_shape **slot = &s->shapes[h->hash & (s->shape_places - 1)];
            next = h->next;
            h->next = *slot;
            *slot = h;
        }
}

/* what blocks depend on; of those without experts, with no ep */
struct shape_of {
    struct shape_key key;
    const struct cost_group *tp, *cp, *ep;
    double compute_factor, nic_factor;
    uint64_t hash;
};

static struct shape_of shape_of(const struct cost *c, bool plain)
{
    static const struct cost_group nobody = {.n = 0};
    const struct decision *d = c->decision;
    struct shape_of x = {.key = {d->tp, d->cp, plain ? 0 : d->ep, plain ? 0 : d->etp, d->microbatch, d->recompute,
                                 d->parts, d->sp, d->context},
                         .tp = &c->group[AXIS_BIT(AXIS_TP)],
                         .cp = &c->group[AXIS_BIT(AXIS_CP)],
                         .ep = plain ? &nobody : &c->ep,
                         .compute_factor = c->device.compute_factor,
                         .nic_factor = c->device.nic_factor};
    uint64_t hash = hash_words(1469598103934665603u, &x.key, sizeof x.key);
    hash = hash_words(hash_group(hash, x.tp), &x.compute_factor, sizeof x.compute_factor);
    hash = hash_group(hash_group(hash, x.cp), x.ep);
    hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u;
    x.hash = hash ^ hash >> 32;
    return x;
}

static struct search_shape *known_shape(const struct searching *s, const struct shape_of *x)
{
    for (struct search_shape *h = s->shapes ? s->shapes[x->hash & (s->shape_places - 1)] : NULL; h; h = h->next)
        if (h->hash == x->hash && memcmp(&h->key, &x->key, sizeof x->key) == 0 && same_key(&h->tp, x->tp) &&
            same_key(&h->cp, x->cp) && same_key(&h->ep, x->ep) && h->compute_factor == x->compute_factor &&
            h->nic_factor == x->nic_factor)
            return h;
    return NULL;
}

static struct search_shape *new_shape(struct searching *s, const struct shape_of *x)
{
    struct search_shape *h = ARENA_NEW(s->arena, struct search_shape);
    *h = (struct search_shape){
        .hash = x->hash, .key = x->key, .tp = group_key(x->tp), .cp = group_key(x->cp), .ep = group_key(x->ep)};
    h->compute_factor = x->compute_factor;
    h->nic_factor = x->nic_factor;
    return h;
}

static void add_shape(struct searching *s, struct search_shape *h)
{
    grow_shapes(s);
    struct search_shape **slot = &s->shapes[h->hash & (s->shape_places - 1)];
    h->next = *slot;
    *slot = h;
    s->nshapes++;
}

/* the blocks that have no experts, the same for all ep and etp; NULL where all are such */
static const struct cost_shape *plain_blocks(struct searching *s, const struct cost *c)
{
    if (!model_has_experts(&s->job->model))
        return NULL;
    const struct shape_of of = shape_of(c, true);
    struct search_shape *h = known_shape(s, &of);
    if (!h) {
        h = new_shape(s, &of);
        cost_shape_plain(s->arena, c, &s->kinds, &h->shape);
        add_shape(s, h);
    }
    return &h->shape;
}

/* blocks of a new shape; with recomputation those of the shape without it that stay as they are */
static void make_blocks(struct searching *s, const struct cost *c, struct search_shape *h)
{
    uint32_t layers = s->kinds.n + (s->job->model.predict ? 1 : 0), more = 2;
    const struct cost_shape *plain = plain_blocks(s, c);
    if (c->decision->recompute == RECOMPUTE_NONE) {
        cost_shape_fill(s->arena, c, &s->kinds, plain, &h->shape);
    } else {
        struct decision none = *c->decision;
        struct cost own = *c;
        none.recompute = RECOMPUTE_NONE;
        none.parts = 0;
        own.decision = &none;
        cost_shape_vary(s->arena, c, &s->kinds, &search_shape(s, &own)->shape, plain, &h->shape);
        more = 0;
    }
    s->result->spent += (layers + more) / 2; /* two about as long as an evaluation */
}

struct search_shape *search_shape(struct searching *s, const struct cost *c)
{
    const struct shape_of of = shape_of(c, false);
    struct search_shape *h = known_shape(s, &of);
    if (h)
        return h;
    h = new_shape(s, &of);
    make_blocks(s, c, h);
    fill_bounds(s, h);
    add_shape(s, h); /* by others that blocks were made from, too */
    return h;
}

double search_shape_bound_s(const struct search_shape *h, const struct decision *d)
{
    return cost_larger(h->kernels_path_s, d->microbatches * (h->kernels_s / d->pp)) * (1 - 1e-12);
}

double search_share_bound_s(const struct search_shape *h, const struct decision *d)
{
    double all_s = d->pp > 1 ? h->all_s : h->plain_s; /* no pairs without a pipeline */
    return cost_larger(h->path_s, d->microbatches * (all_s / d->pp)) * (1 - 1e-12);
}

/* Of a stage of a cut: seconds before it in a microbatch's forward; its own seconds in both passes. */
static double forward_before(const struct search_shape *h, const struct search_before *x, const struct stage *st)
{
    return x->forward_s[st->first] + (st->embed ? 0 : h->embed_forward_s);
}

static double stage_time(const struct search_shape *h, const struct search_before *x, const struct stage *st)
{
    double t = x->time_s[st->first + st->count] - x->time_s[st->first];
    return t + (st->embed ? h->embed_least_s : 0) + (st->head ? h->head_least_s : 0);
}

double search_rank_bound_s(struct searching *s, struct search_shape *h, const struct decision *d,
                           enum placement placement, uint32_t r)
{
    const struct search_before *x = fill_before(s, h, s->overlapping && decision_pairs(d->schedule));
    uint32_t p = d->pp, n = d->nstages;
    const struct stage *first = &d->stages[r], *mirror = &d->stages[p - 1 - r];
    bool apart = decision_skews(s->job, d) ||
                 (pipeline_skews(d->schedule) && s->job->wishes.profile->post_validation > 0.5);
    /* skewed steps count from the rank's own first action */
    double start = apart ? 0 : forward_before(h, x, first), own = 0;
    if (placement == PLACE_BOTH_WAYS) {
        start = cost_smaller(start, forward_before(h, x, mirror));
        own = (stage_time(h, x, first) + stage_time(h, x, mirror)) / 2;
    } else if (placement == PLACE_FOLDED) {
        own = stage_time(h, x, first) + stage_time(h, x, &d->stages[n - 1 - r]);
    } else {
        for (uint32_t i = r; i < n; i += p)
            own += stage_time(h, x, &d->stages[i]);
    }
    return start + d->microbatches * own;
}

double search_class_bound_s(struct searching *s, struct search_shape *h, const struct decision *d,
                            enum placement placement)
{
    double longest = 0;
    for (uint32_t r = 0; r < d->pp; r++)
        longest = cost_larger(longest, search_rank_bound_s(s, h, d, placement, r));
    return longest * (1 - 1e-12);
}

const struct search_cut *search_cut(struct searching *s, struct search_shape *h, const struct decision *d)
{
    uint32_t nstages = d->pp * d->vpp;
    bool folds = decision_folds(d);
    for (struct search_cut *cut = h->cuts; cut; cut = cut->next)
        if (cut->nstages == nstages && cut->pp == d->pp && cut->folds == folds)
            return cut;
    struct search_cut *cut = ARENA_NEW(s->arena, struct search_cut);
    const uint32_t *layers = NULL;
    struct decision x = {.pp = d->pp,
                         .vpp = d->vpp,
                         .schedule = d->schedule,
                         .folds = d->folds,
                         .recompute_layers = d->recompute_layers};
    if (s->layout_stages) {
        x.stages = s->layout_stages;
        x.nstages = nstages;
    } else {
        double embed_s, head_s;
        cost_shape_layers(&h->shape, s->job->model.nlayers, s->layer_s, &embed_s, &head_s);
        for (const struct search_cut *other = h->cuts; other && !layers; other = other->next)
            layers = other->nstages == nstages ? other->layers : NULL;
        if (!layers)
            layers = decision_count_layers(s->arena, nstages, s->job->model.nlayers, s->layer_s, embed_s, head_s);
        decision_cut_by(s->arena, &x, s->job->model.nlayers, s->layer_s, embed_s, head_s, layers);
    }
    decision_spare(&x);
    *cut = (struct search_cut){nstages, d->pp, folds, layers, x.stages, h->cuts};
    h->cuts = cut;
    return cut;
}

/* Spares k layers of rank r: in turn over its chunks, later ones first. */
static void spare_rank(struct decision *d, uint32_t r, uint32_t k)
{
    for (uint32_t j = 0; j < d->vpp; j++)
        d->stages[cost_rank_stage(d, r, j)].spared = 0;
    while (k > 0)
        for (uint32_t j = d->vpp; j-- > 0 && k > 0;) {
            struct stage *st = &d->stages[cost_rank_stage(d, r, j)];
            if (st->spared < st->count) {
                st->spared++;
                k--;
            }
        }
}

/* does rank r fit with k of its layers spared? */
static bool rank_fits(const struct cost_rooms *x, struct decision *d, uint32_t r, uint32_t k, uint64_t limit,
                      struct estimate *e)
{
    spare_rank(d, r, k);
    return cost_rooms_within(x, r, limit, e);
}

static uint32_t rank_layers(const struct decision *d, uint32_t r)
{
    uint32_t layers = 0;
    for (uint32_t j = 0; j < d->vpp; j++)
        layers += d->stages[cost_rank_stage(d, r, j)].count;
    return layers;
}

/* Returns the most of its `all` layers that rank r can spare; guess: a first guess; NONE: the rank does not fit with
 * any. */
static uint32_t most_spared(const struct cost_rooms *x, struct decision *d, uint32_t r, uint32_t all, uint32_t guess,
                            uint64_t limit, struct estimate *e)
{
    /* gradients take the place of activations, so sparing fewer layers may need more memory */
    if (d->microbatches == 1) {
        uint32_t k = all + 1;
        while (k > 0 && !rank_fits(x, d, r, k - 1, limit, e))
            k--;
        return k > 0 ? k - 1 : NONE;
    }
    uint32_t low = NONE, high = all + 1, step = 1; /* low fits, high does not */
    while (low == NONE && high > 0) {
        uint32_t k = guess < high ? guess : high - 1;
        if (rank_fits(x, d, r, k, limit, e))
            low = k;
        else
            high = k;
        guess = high > step ? high - step : 0;
        step *= 2;
    }
    if (low == NONE)
        return NONE;
    if (r == 0 && low < all && high > all && rank_fits(x, d, r, all, limit, e)) /* no earlier rank says how many */
        return all;
    for (step = 1; low + 1 < high;) {
        uint32_t middle = step < (high - low) / 2 ? low + step : low + (high - low) / 2;
        if (rank_fits(x, d, r, middle, limit, e)) {
            low = middle;
            step *= 2;
        } else {
            high = middle;
        }
    }
    return low;
}

enum spare_fate search_spare(struct searching *s, const struct search_sparing *by, const struct cost_rooms *x,
                             struct decision *d, struct estimate *e)
{
    uint32_t last = 0;
    for (uint32_t r = 0; r < d->pp; r++) {
        uint32_t layers = rank_layers(d, r);
        last = most_spared(x, d, r, layers, last, s->memory_limit, e);
        if (last == NONE)
            return SPARE_FULL;
        spare_rank(d, r, last);
        if (last < layers && !search_hopes(s, d, search_spared_s(s, by, d, r)))
            return SPARE_SLOW;
    }
    return SPARE_FITS;
}
