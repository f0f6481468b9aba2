/* Bounds on a step from memory: activations that do not fit must be recomputed, and that takes time.
 *
 * A layer's activations stay from its forward to its backward, at least as long as a microbatch takes from there to
 * the end of the model and back (residence).  Bytes times residence, over all layers and the step's m microbatches,
 * are at most the ranks' free memory (room) times the step (Little's law): T >= m sum(keep residence) / (pp room).
 * And when the last layer's backward begins, all layers hold that microbatch: sum(keep) <= pp room.  Both hold for
 * any schedule and any cut, as sums over ranks, and room is at most what the least state leaves.  A layer takes the
 * time of its kind of recomputation: T >= m sum(time) / pp.  The least T over all choices is bounded by Lagrange
 * multipliers: for any weights of the inequalities, every layer chooses independently.
 *
 * Room is what state and buffers leave, and some buffers do not shrink with the number of ranks: parameters gathered
 * for a layer, its gradients on their way to shards.  Every rank has at least one layer.  A few ranks may do without
 * any of the large layers, such as those with experts, and then the other ranks do the work of all of them: every
 * number of such ranks is tried.
 *
 * Where all layers fit without recomputation nothing is computed. */

#include "compiler/search/trade.h"
#include "compiler/search/bounds.h"
#include "compiler/search/candidates.h"

#include <math.h>
#include <string.h>

static double block_time_s(const struct cost_block *b, bool paired)
{
    double hidden = paired ? cost_paired_forward_s(b) + cost_paired_backward_s(b) : 0;
    return b->forward_s + b->backward_s + b->forward_comm_s + b->backward_comm_s - hidden;
}

/* Updates l's maxima by a block with recomputation, compared with the one without. */
static void add_early(struct layer_trade *l, const struct cost_block *none, const struct cost_block *again)
{
    double backward = again->backward_s + again->backward_comm_s - none->backward_s - none->backward_comm_s;
    double input = again->input_s + again->input_comm_s - none->input_s - none->input_comm_s;
    l->early_s = cost_larger(l->early_s, again->again_s - cost_smaller(backward, input));
    l->weight_less_s = cost_larger(l->weight_less_s, none->weight_s - again->weight_s);
    l->forward_hides_s = cost_larger(l->forward_hides_s, cost_paired_forward_s(again) - cost_paired_forward_s(none));
    l->backward_hides_s = cost_larger(l->backward_hides_s,
                                      cost_paired_backward_s(again) - cost_paired_backward_s(none) - backward);
}

/* least seconds by which a backward pass is longer, whether it is split or in a pair or not */
static double backward_longer_s(const struct cost_block *none, const struct cost_block *again)
{
    double backward = again->backward_s + again->backward_comm_s - none->backward_s - none->backward_comm_s;
    double halves = again->input_s + again->input_comm_s + again->weight_s + again->weight_comm_s - none->input_s -
                    none->input_comm_s - none->weight_s - none->weight_comm_s;
    double hides = cost_larger(0, cost_paired_backward_s(again) - cost_paired_backward_s(none));
    return cost_larger(0, cost_smaller(backward, halves) - hides);
}

static void add_kind(const struct searching *s, struct search_trade *t, uint32_t r, const struct cost_block *layers,
                     const struct cost_block *predict)
{
    t->predict[r] = predict;
    t->predict_time_s[r] = block_time_s(predict, s->overlapping);
    t->predict_plain_s[r] = block_time_s(predict, false);
    t->predict_longer_s[r] = r ? backward_longer_s(t->predict[0], predict) : 0;
    for (uint32_t k = 0; k < s->kinds.n; k++) {
        struct layer_trade *l = &t->layers[k];
        l->time_s[r] = block_time_s(&layers[k], s->overlapping);
        l->plain_s[r] = block_time_s(&layers[k], false);
        l->keep[r] = layers[k].keep_bytes;
        l->late[r] = layers[k].late_bytes;
        l->temporary[r] = cost_larger(layers[k].forward_bytes, layers[k].backward_bytes);
        l->longer_s[r] = r ? backward_longer_s(&t->blocks[0][k], &layers[k]) : 0;
        if (r)
            add_early(l, &t->blocks[0][k], &layers[k]);
    }
    t->blocks[r] = layers;
    t->nknown++;
}

/* Computes residences, from the last layer back; no kind of recomputation is known yet. */
static struct search_trade *begin_trade(struct searching *s, struct search_shape *h)
{
    const struct cost_shape *x = &h->shape;
    if (h->trade)
        return h->trade;
    struct search_trade *t = arena_alloc(s->arena, sizeof *t + s->kinds.n * sizeof *t->layers);
    memset(t, 0, sizeof *t + s->kinds.n * sizeof *t->layers);
    t->nkinds = s->space.nrecompute + search_spares(s);
    double residence = 0;
    for (uint32_t i = s->job->model.nlayers; i-- > 0;) {
        struct layer_trade *l = &t->layers[x->kind[i]];
        residence += search_least_path_s(s, x, x->kind[i]);
        l->most_s = residence;
        l->least_s = l->n > 0 ? l->least_s : residence;
        l->sum_s += residence;
        l->n++;
    }
    return h->trade = t;
}

/* Evaluates a kind of recomputation; the first is that of spared layers, if layers can be spared. */
static void know_kind(struct searching *s, const struct cost *c, struct search_shape *h, uint32_t r)
{
    struct search_trade *t = begin_trade(s, h);
    uint32_t spares = search_spares(s);
    if (t->blocks[r])
        return;
    if (r < spares) {
        add_kind(s, t, r, h->shape.spared, &h->shape.predict);
        return;
    }
    struct decision d = *c->decision;
    struct cost own = *c;
    d.recompute = s->space.recompute[r - spares].kind;
    d.parts = s->space.recompute[r - spares].parts;
    own.decision = &d;
    const struct cost_shape *x = &search_shape(s, &own)->shape;
    add_kind(s, t, r, x->layers, &x->predict);
}

const struct search_trade *search_trade_of(struct searching *s, const struct cost *c, struct search_shape *h)
{
    const struct search_trade *t = begin_trade(s, h);
    for (uint32_t r = 0; r < t->nkinds; r++)
        know_kind(s, c, h, r);
    return t;
}

void search_shorten_stages(struct searching *s, const struct cost *c, struct search_shape *h, bool pairs,
                           struct cost_stage *ranks, struct pipeline_stage *stages)
{
    const struct decision *d = c->decision;
    const struct search_trade *t = search_trade_of(s, c, h);
    for (uint32_t r = 0; r < d->pp; r++)
        ranks[r].forward_s = cost_larger(0, ranks[r].forward_s - ranks[r].kept_s);
    for (uint32_t i = 0; i < d->nstages; i++) {
        const struct stage *st = &d->stages[i];
        struct pipeline_stage *own = &stages[i];
        own->forward_s = cost_larger(0, own->forward_s - own->kept_s);
        /* what is recomputed before the gradient arrives: the pass ends as early as without, but its pieces take as
         * long */
        own->lead_s = st->head || !st->count ? 0 : t->layers[h->shape.kind[st->first + st->count - 1]].early_s;
        for (uint32_t j = 0; j < st->count; j++) {
            const struct layer_trade *l = &t->layers[h->shape.kind[st->first + j]];
            own->weight_s -= l->weight_less_s;
            own->forward_hidden_s += pairs ? l->forward_hides_s : 0;
            own->backward_hidden_s += pairs ? l->backward_hides_s : 0;
        }
        own->weight_s = cost_larger(0, own->weight_s);
    }
}

/* The least of per_second * time + per_byte * bytes, with kind r of recomputation or without, for one layer. */
static double choose(const struct layer_trade *l, uint32_t r, double per_second, double per_byte)
{
    return cost_smaller(per_second * l->time_s[0] + per_byte * l->keep[0],
                        per_second * l->time_s[r] + per_byte * l->keep[r]);
}

/* Lower bound in seconds of a microbatch on pp ranks together, with Little's law weighted by w and the layers' times
 * by 1 - w.  What a layer chooses is concave in its residence, so between the shortest and the longest it is no less
 * than the line that joins them. */
static double by_residence_s(const struct searching *s, const struct search_trade *t, uint32_t r, double w, double room)
{
    double sum = 0;
    for (uint32_t k = 0; k < s->kinds.n; k++) {
        const struct layer_trade *l = &t->layers[k];
        double span = l->most_s - l->least_s, far = span > 0 ? (l->sum_s / l->n - l->least_s) / span : 0;
        sum += l->n * ((1 - far) * choose(l, r, 1 - w, w * l->least_s / room) +
                       far * choose(l, r, 1 - w, w * l->most_s / room));
    }
    return sum;
}

/* The same given that one microbatch must fit into the room of pp ranks, at a price in seconds per byte. */
static double by_moment_s(const struct searching *s, const struct search_trade *t, uint32_t r, double price,
                          double room)
{
    double sum = 0;
    for (uint32_t k = 0; k < s->kinds.n; k++)
        sum += t->layers[k].n * choose(&t->layers[k], r, 1, price);
    return sum - price * room;
}

/* The largest bound over some weights and prices; INFINITY: one microbatch does not fit however much is recomputed. */
static double kind_s(const struct searching *s, const struct search_trade *t, uint32_t r, uint32_t pp, double room)
{
    static const double weights[] = {0.1, 0.2, 0.35, 0.5, 0.7, 1};
    double best = 0, least = 0;
    for (uint32_t k = 0; k < s->kinds.n; k++)
        least += t->layers[k].n * choose(&t->layers[k], r, 0, 1);
    if (least > pp * room)
        return INFINITY;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        best = cost_larger(best, by_residence_s(s, t, r, weights[i], room));
    for (uint32_t k = 0; k < s->kinds.n; k++) {
        const struct layer_trade *l = &t->layers[k];
        if (l->keep[r] < l->keep[0])
            best = cost_larger(
                best, by_moment_s(s, t, r, cost_larger(0, (l->time_s[r] - l->time_s[0]) / (l->keep[0] - l->keep[r])),
                                  pp * room));
    }
    return best;
}

/* Lower bound in seconds on a step under its best kind of recomputation, from which any layer may be spared.  0:
 * some kind could still give a candidate.  Kinds are evaluated one by one, first the one that could last time. */
static double trade_s(struct searching *s, const struct cost *c, struct search_shape *h, double room)
{
    const struct search_trade *t = h->trade;
    const struct decision *d = c->decision;
    double best = INFINITY;
    uint32_t first = t->nkinds > 1, n = t->nkinds - first, asked = s->hopeful_kind;
    know_kind(s, c, h, 0);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t kind = (asked + k) % n;
        know_kind(s, c, h, first + kind);
        double step_s = d->microbatches * (kind_s(s, t, first + kind, d->pp, room) / d->pp) * (1 - 1e-9);
        if (search_objective(s, step_s, d->gpus_used) < search_worst(s)) {
            s->hopeful_kind = kind;
            return 0;
        }
        best = cost_smaller(best, step_s);
    }
    return best;
}

/* Does everything fit without recomputation, as far as the inequalities tell? */
static bool is_roomy(const struct searching *s, const struct search_trade *t, const struct cost_block *layers,
                     uint32_t pp, double room, double share_s)
{
    double bytes = 0, byte_s = 0;
    for (uint32_t k = 0; k < s->kinds.n; k++) {
        bytes += t->layers[k].n * layers[k].keep_bytes;
        byte_s += t->layers[k].sum_s * layers[k].keep_bytes;
    }
    return bytes <= pp * room && byte_s <= share_s * pp * room;
}

/* Layers whose buffers are at least half of the largest: buffer bytes of a rank with one of them, and of one
 * without; seconds of a microbatch in all of them; number of the other layers. */
struct large {
    double bytes, others_bytes, time_s;
    uint32_t nothers;
};

/* least bytes of temporaries of a layer's kernels, as far as kinds of recomputation are known */
static double least_temporary(const struct search_trade *t, const struct layer_trade *l)
{
    double least = t->nknown == t->nkinds ? INFINITY : 0;
    for (uint32_t r = 0; r < t->nkinds && least > 0; r++)
        least = cost_smaller(least, l->temporary[r]);
    return least;
}

static struct large find_large(const struct searching *s, const struct cost_rooms *rooms, const struct search_trade *t)
{
    struct large x = {.bytes = INFINITY, .others_bytes = INFINITY};
    double largest = 0;
    for (uint32_t k = 0; k < s->kinds.n; k++)
        largest = cost_larger(largest, cost_layer_buffers(rooms, k, least_temporary(t, &t->layers[k])));
    for (uint32_t k = 0; k < s->kinds.n; k++) {
        double bytes = cost_layer_buffers(rooms, k, least_temporary(t, &t->layers[k]));
        if (bytes < largest / 2) {
            x.nothers += (uint32_t)t->layers[k].n;
            x.others_bytes = cost_smaller(x.others_bytes, bytes);
        } else {
            x.time_s += t->layers[k].n * search_least_s(s, rooms->s, k);
            x.bytes = cost_smaller(x.bytes, bytes);
        }
    }
    if (s->layout_stages) /* stages may be empty */
        x = (struct large){.nothers = UINT32_MAX};
    return x;
}

/* Average bytes for activations per rank, if `without` of pp ranks have no large layer; all: total bytes including
 * buffers. */
static double room_of(const struct large *x, uint32_t pp, uint32_t without, double all)
{
    return (all - (pp - without) * x->bytes - (without ? without * x->others_bytes : 0)) / pp;
}

/* Most bytes that all ranks of c's decision together have for activations and buffers.  splits: gradients that the
 * first half of a backward computes are then whole, whatever the ZeRO level. */
static double room_of_all(const struct searching *s, const struct cost *c, const struct cost_shape *x, bool splits)
{
    const struct decision *d = c->decision;
    double own = (double)s->memory_limit - c->buffers->context_gib * (1 << 30), whole = 0;
    for (uint32_t i = 0; i < s->job->model.nlayers && splits && d->zero >= 2 && c->buffers->allocator < 0.5;
         i += x->run[i]) {
        const struct cost_block *b = &x->layers[x->kind[i]];
        whole += b->early ? x->run[i] *
                                ((1 - 1.0 / d->shard) * b->matrices + (1 - 1.0 / decision_expert_shard(d)) * b->experts)
                          : 0;
    }
    return d->pp * own - cost_state_all(c, x) - (c->job->train.grads == DT_FP32 ? 4 : 2) * whole;
}

static bool may_split(const struct searching *s, const struct decision *d)
{
    bool splits = false;
    for (uint32_t k = 0; k < s->space.nschedules && d->pp > 1; k++)
        splits |= pipeline_splits(s->space.schedules[k].kind) || s->space.schedules[k].listed;
    return splits;
}

bool search_state_fits(struct searching *s, const struct cost *c, struct search_shape *h)
{
    uint32_t pp = c->decision->pp;
    struct cost_rooms rooms;
    cost_rooms_least(&rooms, c, &h->shape);
    struct large large = find_large(s, &rooms, begin_trade(s, h));
    double all = room_of_all(s, c, &h->shape, false);
    for (uint32_t without = 0; without < pp && without <= large.nothers; without++)
        if (room_of(&large, pp, without, all) > 0)
            return true;
    return false;
}

/* Lower bound in seconds on a step of c's ZeRO level under schedules that split the backward or do not; no less than
 * least_s, and no more than `best`, which is returned if the bound reaches it.  *traded: kinds of recomputation were
 * evaluated. */
static double level_bound_s(struct searching *s, const struct cost *c, struct search_shape *h, bool splits,
                            double least_s, double best, bool *traded)
{
    const struct decision *d = c->decision;
    const struct search_trade *t = h->trade;
    struct cost_rooms rooms;
    cost_rooms_least(&rooms, c, &h->shape);
    struct large large = find_large(s, &rooms, t);
    double all = room_of_all(s, c, &h->shape, splits);
    bool fixed = d->microbatches < 2 || s->job->wishes.offload & OFFLOAD_ACTIVATIONS; /* activations are not limited */
    for (uint32_t without = 0; without < d->pp && without <= large.nothers; without++) {
        double step_s = cost_larger(least_s, d->microbatches * large.time_s / (d->pp - without) * (1 - 1e-9));
        double room = room_of(&large, d->pp, without, all);
        if (step_s >= best)
            break;
        if (room > 0 && !fixed &&
            !is_roomy(s, t, search_spares(s) ? h->shape.spared : h->shape.layers, d->pp, room,
                      step_s / d->microbatches)) {
            double trade = trade_s(s, c, h, room);
            *traded = true;
            if (trade > step_s) {
                large = find_large(s, &rooms, t); /* now including temporaries */
                room = room_of(&large, d->pp, without, all);
                step_s = room > 0 ? cost_larger(trade, trade_s(s, c, h, room)) : step_s;
            }
        }
        if (room > 0)
            best = cost_smaller(best, step_s);
    }
    return best;
}

/* Most bytes per rank for activations on average, under any ZeRO level of c's decision. */
static double most_room(struct searching *s, const struct cost *c, struct search_shape *h)
{
    struct decision d = *c->decision;
    struct cost own = *c;
    double most = 0;
    d.shard = d.dp * d.cp; /* splits most */
    own.decision = &d;
    for (uint32_t i = 0; i < s->space.zero.n; i++) {
        struct cost_rooms rooms;
        d.zero = s->space.zero.at[i];
        cost_rooms_least(&rooms, &own, &h->shape);
        struct large large = find_large(s, &rooms, h->trade);
        double all = room_of_all(s, &own, &h->shape, false);
        for (uint32_t without = 0; without < d.pp && without <= large.nothers; without++)
            most = cost_larger(most, room_of(&large, d.pp, without, all));
    }
    return most;
}

uint32_t search_roomy_kinds(struct searching *s, const struct cost *c, struct search_shape *h)
{
    const struct decision *d = c->decision;
    uint32_t all = (1u << s->space.nrecompute) - 1, roomy = 0, spares = search_spares(s);
    if (d->microbatches < 2 || s->job->wishes.offload & OFFLOAD_ACTIVATIONS || !search_found(s))
        return all;
    const struct search_trade *t = search_trade_of(s, c, h);
    double room = most_room(s, c, h);
    for (uint32_t k = 0; k < s->space.nrecompute && room > 0; k++)
        if (search_hopes(s, d, d->microbatches * (kind_s(s, t, spares + k, d->pp, room) / d->pp) * (1 - 1e-9)))
            roomy |= 1u << k;
    s->result->spent++;
    return roomy;
}

double search_room_bound_s(struct searching *s, const struct cost *c, struct search_shape *h, double step_s)
{
    struct decision d = *c->decision;
    struct cost own = *c;
    double best = INFINITY;
    bool traded = false;
    begin_trade(s, h);
    d.shard = d.dp * d.cp;
    own.decision = &d;
    for (uint32_t i = 0; i < s->space.zero.n; i++) {
        d.zero = s->space.zero.at[i];
        for (int splits = d.zero >= 2 && may_split(s, &d); splits >= 0; splits--) {
            double moved_s = d.zero >= 2 ? d.microbatches * search_floor_shards_s(s, &own, &h->shape, splits) : 0;
            double least_s = cost_larger(step_s, moved_s);
            if (least_s < best)
                best = level_bound_s(s, &own, h, splits, least_s, best, &traded);
        }
    }
    s->ntrades += traded;
    s->result->spent += traded && s->ntrades % 3 == 0; /* three cost as much as an evaluation */
    return best;
}
