/* Cached shapes: the blocks of one key of degrees, made once for all decisions that share it, and what follows from them
 * alone: even cuts into stages, bounds from below, and how many layers each stage can spare from recomputation.
 *
 * The bound: some rank takes at least its share of all blocks, and some rank holds at least ceil(layers / pp) layers, m
 * times over.  It holds for every cut, placement and schedule that runs a forward and a backward one after the other;
 * for schedules that overlap the two, kernels alone are counted, for they share one queue. */

#include "compiler/search/search_private.h"

#include <math.h>
#include <string.h>

static bool same_group(const struct cost_group *a, const struct cost_group *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* paired: some schedule runs a forward beside a backward, so what hides there may not count */
static double block_s(const struct cost_block *b, bool kernels_only, bool paired)
{
    double kernels = b->forward_s + b->backward_s, hidden = paired ? b->forward_hidden_s + b->backward_hidden_s : 0;
    return kernels_only ? kernels : kernels + b->forward_comm_s + b->backward_comm_s - hidden;
}

static void fill_bounds(const struct searching *s, struct search_shape *h)
{
    const struct model *m = &s->job->model;
    const struct cost_shape *x = &h->shape;
    for (int kernels_only = 0; kernels_only < 2; kernels_only++) {
        double all = block_s(&x->embed, kernels_only, s->overlapping) + block_s(&x->head, kernels_only, s->overlapping) +
                     m->predict * block_s(&x->predict, kernels_only, s->overlapping);
        double least = m->nlayers ? INFINITY : 0;
        for (uint32_t i = 0; i < m->nlayers; i++) {
            double own = block_s(&x->layers[x->kind[i]], kernels_only, s->overlapping);
            if (s->may_spare || s->job->wishes.recompute_layers)
                own = fmin(own, block_s(&x->spared[x->kind[i]], kernels_only, s->overlapping));
            all += own;
            least = fmin(least, own);
        }
        *(kernels_only ? &h->all_least_s : &h->all_s) = all;
        h->layer_least_s[kernels_only] = least;
    }
}

struct search_shape *search_shape(struct searching *s, const struct cost *c)
{
    const struct decision *d = c->decision;
    const struct shape_key key = {d->tp, d->cp, d->ep, d->etp, d->microbatch, d->recompute, d->parts, d->sp, d->context};
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < sizeof key; i++)
        hash = (hash ^ ((const uint8_t *)&key)[i]) * 1099511628211u;
    struct search_shape **slot = &s->shapes[hash % ARRAY_LEN(s->shapes)];
    uint32_t tp = AXIS_BIT(AXIS_TP), cp = AXIS_BIT(AXIS_CP);
    for (struct search_shape *h = *slot; h; h = h->next)
        if (memcmp(&h->key, &key, sizeof key) == 0 && same_group(&h->tp, &c->group[tp]) &&
            same_group(&h->cp, &c->group[cp]) && same_group(&h->ep, &c->ep) && h->compute_factor == c->device.compute_factor &&
            h->nic_factor == c->device.nic_factor)
            return h;
    struct search_shape *h = ARENA_NEW(s->arena, struct search_shape);
    *h = (struct search_shape){.key = key, .tp = c->group[tp], .cp = c->group[cp], .ep = c->ep, .next = *slot};
    h->compute_factor = c->device.compute_factor;
    h->nic_factor = c->device.nic_factor;
    cost_shape_init(s->arena, c, &s->kinds, &h->shape);
    uint32_t n = s->job->model.nlayers;
    h->layer_s = ARENA_ARRAY(s->arena, double, n ? n : 1);
    cost_shape_layers(&h->shape, n, h->layer_s, &h->embed_s, &h->head_s);
    fill_bounds(s, h);
    *slot = h;
    return h;
}

double search_shape_bound_s(const struct search_shape *h, const struct decision *d, uint32_t nlayers, bool kernels_only)
{
    double share = (kernels_only ? h->all_least_s : h->all_s) / d->pp;
    double fullest = h->layer_least_s[kernels_only] * (double)((nlayers + d->pp - 1) / d->pp);
    return d->microbatches * fmax(share, fullest) * (1 - 1e-12);
}

const struct search_cut *search_cut(struct searching *s, struct search_shape *h, const struct decision *d)
{
    uint32_t nstages = d->pp * d->vpp;
    for (struct search_cut *cut = h->cuts; cut; cut = cut->next)
        if (cut->nstages == nstages)
            return cut;
    struct search_cut *cut = ARENA_NEW(s->arena, struct search_cut);
    struct decision x = {.pp = d->pp, .vpp = d->vpp, .recompute_layers = d->recompute_layers};
    if (s->layout_stages) {
        x.stages = s->layout_stages;
        x.nstages = nstages;
    } else {
        decision_cut(s->arena, &x, s->job->model.nlayers, h->layer_s, h->embed_s, h->head_s);
    }
    decision_spare(&x);
    *cut = (struct search_cut){nstages, x.stages, h->cuts};
    h->cuts = cut;
    return cut;
}

/* k layers of rank r spared: in turn over its chunks, later ones first */
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
static bool rank_fits(const struct cost *c, const struct cost_shape *h, struct decision *d, uint32_t r, uint32_t k, uint64_t limit)
{
    struct estimate e = {0};
    spare_rank(d, r, k);
    cost_rank_memory(c, h, r, &e);
    return e.peak_bytes <= limit;
}

bool search_spare(const struct cost *c, const struct cost_shape *h, struct decision *d, uint64_t limit)
{
    for (uint32_t r = 0; r < d->pp; r++) {
        uint32_t layers = 0, low = 0, high;
        for (uint32_t j = 0; j < d->vpp; j++)
            layers += d->stages[cost_rank_stage(d, r, j)].count;
        if (rank_fits(c, h, d, r, layers, limit))
            continue;
        high = layers;
        if (d->microbatches == 1) { /* gradients take the place of activations: fewer spared may need more */
            while (high > 0 && !rank_fits(c, h, d, r, high - 1, limit))
                high--;
            if (high == 0)
                return false;
            continue;
        }
        if (layers == 0 || !rank_fits(c, h, d, r, 0, limit))
            return false;
        while (low + 1 < high) { /* low fits, high does not */
            uint32_t middle = low + (high - low) / 2;
            if (rank_fits(c, h, d, r, middle, limit))
                low = middle;
            else
                high = middle;
        }
        spare_rank(d, r, low);
    }
    return true;
}
