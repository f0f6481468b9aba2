/* A bound on a schedule from the memory of single ranks, for a known cut.
 *
 * Without recomputation a rank may need more memory than it has.  What a layer frees by recomputing is what it keeps
 * of a microbatch times the most microbatches in flight on one of the rank's stages, and it costs seconds for every
 * microbatch.  A decision has one kind of recomputation, from which some of the rank's layers may be spared, while
 * prediction modules beside the head may not.  The least seconds for the missing bytes are a knapsack problem,
 * bounded by a price in seconds per byte: every layer frees what pays at that price, and the rest is paid for at
 * that price.  The step is then at least the way to the rank, and m times the rank's own work. */

#include "compiler/search/trade.h"
#include "compiler/search/bounds.h"
#include "compiler/search/leaves.h"

#include <math.h>
#include <string.h>

/* numbers of a rank's layers by kind */
#define MOST_KINDS 8
struct owned {
    double n[MOST_KINDS];
    bool head;
};

static void add_stage(const struct searching *s, const struct stage *st, struct owned *out)
{
    out->head |= st->head;
    for (uint32_t i = st->first; i < st->first + st->count; i++)
        out->n[s->kinds.kind[i]]++;
}

static void count_live(const struct decision *d, uint32_t r, struct squeezed_rank *out)
{
    bool mirrored = d->schedule == SCHED_DUALPIPE;
    for (uint32_t j = 0; j < (mirrored ? 2 : d->vpp); j++) {
        uint32_t stage = mirrored && j ? d->pp - 1 - r : cost_rank_stage(d, r, j);
        double keep[DECISION_MOST_VPP] = {0};
        keep[j] = 1;
        double live = pipeline_live_bytes(d, r, keep);
        out->live = cost_larger(out->live, live);
        if (d->stages[stage].head)
            out->head_live = cost_larger(out->head_live, live);
    }
}

/* what a layer frees under a kind of recomputation: bytes of one microbatch, and the seconds that it takes longer */
struct gift {
    double bytes, time_s;
};

/* is memory computed from live ranges in blocks, as llmrun uses it? */
static bool by_lives(const struct cost *c)
{
    return c->buffers->allocator < 0.5;
}

static double gift_bytes(const struct cost *c, const struct cost_block *none, const struct cost_block *again)
{
    double bytes = none->keep_bytes + none->eager_bytes - again->keep_bytes +
                   cost_larger(0, none->late_bytes - again->late_bytes);
    if (by_lives(c)) {
        const struct cost_lives *before = cost_lives(c, none), *after = cost_lives(c, again);
        bytes = cost_larger(bytes, before->keep - after->keep + cost_larger(0, before->left - after->left));
    }
    return bytes;
}

static double gift_s(const struct decision *d, const struct layer_trade *l, uint32_t k)
{
    double time_s = decision_pairs(d->schedule) ? l->time_s[k] - l->time_s[0] : l->plain_s[k] - l->plain_s[0];
    return cost_larger(0, cost_smaller(time_s, l->longer_s[k]));
}

static struct gift gift_of(const struct cost *c, const struct search_trade *t, uint32_t layer,
                           const struct cost_block *none, uint32_t k)
{
    return (struct gift){gift_bytes(c, none, &t->blocks[k][layer]), gift_s(c->decision, &t->layers[layer], k)};
}

/* seconds by which a prediction module takes longer, which is never spared */
static double predict_gift_s(const struct decision *d, const struct search_trade *t, uint32_t k)
{
    const double *by = decision_pairs(d->schedule) ? t->predict_time_s : t->predict_plain_s;
    return cost_larger(0, cost_smaller(by[k] - by[0], t->predict_longer_s[k]));
}

/* what a prediction module frees */
static struct gift gift_of_predict(const struct cost *c, const struct search_trade *t, const struct cost_block *none,
                                   uint32_t k)
{
    return (struct gift){gift_bytes(c, none, t->predict[k]), predict_gift_s(c->decision, t, k)};
}

/* What the rank's layers can free under one kind of recomputation. */
struct giving {
    uint32_t n; /* number of its kinds of layers */
    struct gift gift[MOST_KINDS];
    double layers[MOST_KINDS];
};

/* seconds to free so many bytes of a microbatch, at a price in seconds per byte */
static double priced_s(const struct giving *x, double price, double bytes)
{
    double given = 0;
    for (uint32_t i = 0; i < x->n; i++)
        given += x->layers[i] * cost_larger(0, price * x->gift[i].bytes - x->gift[i].time_s);
    return price * bytes - given;
}

/* Least seconds to free so many bytes of a microbatch with whole layers; INFINITY: the layers cannot free as much. */
static double given_s(const struct giving *x, double bytes)
{
    double best = 0, all = 0, most = 0, least_s = INFINITY;
    for (uint32_t i = 0; i < x->n; i++) {
        const struct gift *g = &x->gift[i];
        all += x->layers[i] * cost_larger(0, g->bytes);
        most = cost_larger(most, g->bytes);
        least_s = cost_smaller(least_s, g->time_s);
        if (g->bytes > 0)
            best = cost_larger(best, priced_s(x, g->time_s / g->bytes, bytes));
    }
    if (bytes > all * (1 + 1e-9))
        return INFINITY;
    return cost_larger(best, ceil(bytes / most - 1e-6) * least_s);
}

static double fullest_pass(const struct cost *c, const struct cost_block *b)
{
    const struct cost_lives *x = cost_lives(c, b);
    return cost_larger(cost_larger(x->forward, x->backward), cost_larger(x->input, x->weight));
}

static double block_temporary(const struct cost *c, const struct cost_block *b)
{
    return by_lives(c) ? fullest_pass(c, b) : cost_larger(b->forward_bytes, b->backward_bytes);
}

/* Most bytes by which temporaries of kernels shrink under kind k: by the fullest of them, if any block of the rank
 * needs less.  It is no more precise since layers may be spared. */
static double less_temporary(const struct searching *s, const struct cost *c, const struct search_trade *t,
                             const struct cost_shape *x, const struct owned *own, uint32_t k)
{
    double less = 0;
    for (uint32_t i = 0; i < s->kinds.n; i++)
        if (own->n[i] > 0)
            less = cost_larger(less, block_temporary(c, &x->layers[i]) - block_temporary(c, &t->blocks[k][i]));
    if (own->head && s->job->model.predict)
        less = cost_larger(less, block_temporary(c, &x->predict) - block_temporary(c, t->predict[k]));
    return less;
}

/* Least seconds over all kinds of recomputation to free `over` bytes; a decision has one kind. */
static double longer_s(struct searching *s, const struct cost *c, const struct search_trade *t,
                       const struct cost_shape *x, const struct owned *own, const struct squeezed_rank *rank,
                       double over)
{
    double best = INFINITY, modules = own->head ? s->job->model.predict : 0;
    for (uint32_t k = 1; k < t->nkinds; k++) {
        struct giving give = {0};
        for (uint32_t i = 0; i < s->kinds.n; i++)
            if (own->n[i] > 0) {
                give.gift[give.n] = gift_of(c, t, i, &x->layers[i], k);
                give.layers[give.n++] = own->n[i];
            }
        double bytes = over - less_temporary(s, c, t, x, own, k), longer = 0;
        if (modules > 0) {
            struct gift own_gift = gift_of_predict(c, t, &x->predict, k);
            bytes -= rank->head_live * modules * cost_larger(0, own_gift.bytes);
            longer = modules * own_gift.time_s;
        }
        best = cost_smaller(best, longer + (bytes > 0 ? given_s(&give, bytes / rank->live) : 0));
    }
    return best;
}

/* Least seconds by which rank r takes longer for a microbatch on all its stages. */
static double rank_longer_s(struct searching *s, const struct cost *c, struct search_shape *h, struct cost_rooms *rooms,
                            uint32_t r, struct squeezed_rank *known)
{
    const struct decision *d = c->decision;
    struct estimate e = {0};
    struct owned own = {0};
    /* with eager stacks operators are fused when memory is short */
    rooms->kept = c->buffers->eager > 0 ? 0 : known->kept;
    cost_rooms_rank(rooms, r, s->memory_limit, &e);
    known->kept = (double)e.activation_bytes;
    double over = (double)e.peak_bytes - (double)s->memory_limit;
    if (over <= 0)
        return 0;
    if (!s->may_spare)
        return INFINITY;
    const struct search_trade *t = search_trade_of(s, c, h);
    for (uint32_t j = 0; j < d->vpp; j++)
        add_stage(s, &d->stages[cost_rank_stage(d, r, j)], &own);
    if (d->schedule == SCHED_DUALPIPE)
        add_stage(s, &d->stages[d->pp - 1 - r], &own);
    if (known->live <= 0)
        count_live(d, r, known);
    if (c->buffers->allocator < 0.5) /* the bound on a rank's memory counts only this share, also of what is freed */
        over /= LEAST_OWN;
    over /= 1 + 0.1 * c->buffers->allocator_share; /* a caching allocator holds more than is in use */
    double longer = longer_s(s, c, t, &h->shape, &own, known, over);
    return d->schedule == SCHED_DUALPIPE ? longer / 2 : longer; /* half of the microbatches in each direction */
}

/* May what ranks recompute be counted against a decision? */
static bool counts_again(const struct searching *s, const struct decision *d)
{
    return d->microbatches >= 2 && s->kinds.n <= MOST_KINDS && !(s->job->wishes.offload & OFFLOAD_ACTIVATIONS) &&
           !d->recompute_layers;
}

double search_spared_s(struct searching *s, const struct search_sparing *by, const struct decision *d, uint32_t r)
{
    const struct search_trade *t = by->shape ? by->shape->trade : NULL;
    uint32_t k = by->kind + 1; /* the first is that of spared layers */
    double longer = 0;
    if (!t || !t->blocks[k] || !counts_again(s, d) || d->schedule == SCHED_DUALPIPE)
        return 0;
    for (uint32_t j = 0; j < d->vpp; j++) {
        const struct stage *st = &d->stages[cost_rank_stage(d, r, j)];
        double least_s = st->count > st->spared ? INFINITY : 0; /* of the layers of a stage, any may be spared */
        for (uint32_t i = st->first, end = i + st->count; i < end; i += by->shape->shape.run[i])
            least_s = cost_smaller(least_s, gift_s(d, &t->layers[s->kinds.kind[i]], k));
        longer += (st->count - st->spared) * least_s + (st->head ? s->job->model.predict * predict_gift_s(d, t, k) : 0);
    }
    enum placement placement = decision_folds(d) ? PLACE_FOLDED : PLACE_LOOPED;
    return (search_rank_bound_s(s, by->shape, d, placement, r) + d->microbatches * longer) * (1 - 1e-9);
}

/* the i-th rank that is examined; d->pp: none, or it was examined already */
static uint32_t squeezed_rank(const struct decision *d, uint32_t i)
{
    const uint32_t ask[SQUEEZED_RANKS] = {0, d->pp / 2, d->pp - 1};
    return ask[i] >= d->pp || (i && ask[i] <= ask[i - 1]) ? d->pp : ask[i];
}

double search_squeeze_s(struct searching *s, const struct cost *c, struct search_shape *h, enum placement placement,
                        struct squeeze *known)
{
    const struct decision *d = c->decision;
    struct cost_rooms rooms;
    double longest = 0;
    if (!counts_again(s, d))
        return 0;
    cost_rooms_least(&rooms, c, &h->shape);
    cost_rooms_keep(&rooms, s->stages_known);
    for (uint32_t i = 0; i < SQUEEZED_RANKS && search_hopes(s, d, longest * (1 - 1e-9)); i++) {
        uint32_t r = squeezed_rank(d, i);
        if (r == d->pp)
            continue;
        s->result->spent += ++s->nprobes % 8 == 0;
        double longer = known->rank[i].longer_s[d->zero] = rank_longer_s(s, c, h, &rooms, r, &known->rank[i]);
        if (longer > 0)
            longest = cost_larger(longest, search_rank_bound_s(s, h, d, placement, r) + d->microbatches * longer);
    }
    return longest * (1 - 1e-9);
}

double search_squeezed_s(struct searching *s, const struct search_stages *x, const struct decision *d,
                         const struct squeeze *known, uint32_t zero)
{
    struct arena_mark mark = arena_mark(s->arena);
    double *longer_s = ARENA_ARRAY(s->arena, double, d->pp), any_s = 0, pipeline_s = 0;
    for (uint32_t i = 0; i < SQUEEZED_RANKS; i++) {
        uint32_t r = squeezed_rank(d, i);
        if (r == d->pp)
            continue;
        longer_s[r] = known->rank[i].longer_s[zero];
        any_s += longer_s[r];
    }
    if (any_s > 0)
        pipeline_s = search_longer_s(s, x, d, longer_s);
    arena_reset(s->arena, mark);
    return pipeline_s;
}
