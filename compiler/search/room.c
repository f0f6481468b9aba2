/* Bounds on a step from memory: what does not fit must be recomputed, and that takes time.
 *
 * A layer's activations stay from its forward to its backward, at least as long as a microbatch takes from there to the
 * end of the model and back.  Their bytes times these seconds, over all layers and the step's m microbatches, are at most
 * the ranks' room times the step (Little's law): T >= m sum(keep residence) / (pp room).  And when the last layer's backward
 * begins, all layers hold that microbatch: sum(keep) <= pp room.  Both hold for any schedule and any cut, of sums over
 * ranks, and room is at most what the least state leaves.  A layer takes the time of its kind of recomputation:
 * T >= m sum(time) / pp.  The least T over all choices is bounded by Lagrange's multipliers: for any weights of the
 * inequalities every layer chooses alone.
 *
 * Where all layers fit without recomputation nothing is computed. */

#include "compiler/search/search_private.h"

#include <math.h>
#include <string.h>

/* one kind of layer: how many, their residences, and by kind of recomputation time and bytes of one */
struct layer_trade {
    double n, least_s, most_s, sum_s; /* residence */
    double time_s[SPACE_RECOMPUTE + 1], keep[SPACE_RECOMPUTE + 1];
};
struct search_trade {
    uint32_t nkinds; /* of recomputation; 0: only the first is filled yet */
    struct layer_trade layers[];
};

static double block_time_s(const struct searching *s, const struct cost_block *b)
{
    double hidden = s->overlapping ? b->forward_hidden_s + b->backward_hidden_s : 0;
    return b->forward_s + b->backward_s + b->forward_comm_s + b->backward_comm_s - hidden;
}

static void add_kind(const struct searching *s, struct search_trade *t, const struct cost_block *layers)
{
    for (uint32_t k = 0; k < s->kinds.n; k++) {
        t->layers[k].time_s[t->nkinds] = block_time_s(s, &layers[k]);
        t->layers[k].keep[t->nkinds] = layers[k].keep_bytes;
    }
    t->nkinds++;
}

/* residences, from the last layer back */
static struct search_trade *trade_new(struct searching *s, const struct search_shape *h)
{
    const struct cost_shape *x = &h->shape;
    struct search_trade *t = arena_alloc(s->arena, sizeof *t + s->kinds.n * sizeof *t->layers);
    memset(t, 0, sizeof *t + s->kinds.n * sizeof *t->layers);
    double residence = 0;
    for (uint32_t i = s->job->model.nlayers; i-- > 0;) {
        struct layer_trade *l = &t->layers[x->kind[i]];
        residence += search_least_path_s(s, x, x->kind[i]);
        l->most_s = residence;
        l->least_s = l->n > 0 ? l->least_s : residence;
        l->sum_s += residence;
        l->n++;
    }
    return t;
}

/* all kinds of recomputation that a layer of d's family may have */
static const struct search_trade *fill_trade(struct searching *s, const struct cost *c, struct search_shape *h)
{
    struct search_trade *t = h->trade;
    if (t->nkinds)
        return t;
    if (search_spares(s))
        add_kind(s, t, h->shape.spared);
    for (uint32_t i = 0; i < s->space.nrecompute; i++) {
        struct decision d = *c->decision;
        struct cost own = *c;
        d.recompute = s->space.recompute[i].kind;
        d.parts = s->space.recompute[i].parts;
        own.decision = &d;
        add_kind(s, t, search_shape(s, &own)->shape.layers);
    }
    return t;
}

/* the least of time + price * bytes over kinds of recomputation, for layers of one kind with a residence */
static double choose(const struct search_trade *t, const struct layer_trade *l, double per_second, double per_byte)
{
    double least = INFINITY;
    for (uint32_t r = 0; r < t->nkinds; r++)
        least = cost_smaller(least, per_second * l->time_s[r] + per_byte * l->keep[r]);
    return least;
}

/* Seconds of a microbatch on pp ranks together, by Little's law with weight w and the layers' times with 1 - w.  What a layer
 * chooses is concave in its residence: between the shortest and the longest no less than the line that joins them. */
static double by_residence_s(const struct searching *s, const struct search_trade *t, double w, double room)
{
    double sum = 0;
    for (uint32_t k = 0; k < s->kinds.n; k++) {
        const struct layer_trade *l = &t->layers[k];
        double span = l->most_s - l->least_s, far = span > 0 ? (l->sum_s / l->n - l->least_s) / span : 0;
        sum += l->n * ((1 - far) * choose(t, l, 1 - w, w * l->least_s / room) + far * choose(t, l, 1 - w, w * l->most_s / room));
    }
    return sum;
}

/* the same where one microbatch must fit into the room of pp ranks, at a price of seconds per byte */
static double by_moment_s(const struct searching *s, const struct search_trade *t, double price, double room)
{
    double sum = 0;
    for (uint32_t k = 0; k < s->kinds.n; k++)
        sum += t->layers[k].n * choose(t, &t->layers[k], 1, price);
    return sum - price * room;
}

/* the best of some weights and prices; INFINITY: one microbatch does not fit however much is recomputed */
static double trade_s(const struct searching *s, const struct search_trade *t, uint32_t pp, double room)
{
    static const double weights[] = {0.1, 0.2, 0.35, 0.5, 0.7, 1};
    double best = 0, least = 0;
    for (uint32_t k = 0; k < s->kinds.n; k++)
        least += t->layers[k].n * choose(t, &t->layers[k], 0, 1);
    if (least > pp * room)
        return INFINITY;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        best = cost_larger(best, by_residence_s(s, t, weights[i], room));
    for (uint32_t k = 0; k < s->kinds.n; k++) {
        const struct layer_trade *l = &t->layers[k];
        for (uint32_t r = 1; r < t->nkinds; r++)
            if (l->keep[r] < l->keep[0])
                best = cost_larger(best, by_moment_s(s, t, cost_larger(0, (l->time_s[r] - l->time_s[0]) / (l->keep[0] - l->keep[r])), pp * room));
    }
    return best;
}

/* does all fit without recomputation, as far as the inequalities tell? */
static bool is_roomy(const struct searching *s, const struct search_trade *t, const struct cost_block *layers, uint32_t pp, double room,
                     double share_s)
{
    double bytes = 0, byte_s = 0;
    for (uint32_t k = 0; k < s->kinds.n; k++) {
        bytes += t->layers[k].n * layers[k].keep_bytes;
        byte_s += t->layers[k].sum_s * layers[k].keep_bytes;
    }
    return bytes <= pp * room && byte_s <= share_s * pp * room;
}

double search_room_bound_s(struct searching *s, const struct cost *c, struct search_shape *h, double step_s)
{
    struct decision d = *c->decision;
    struct cost own = *c;
    double best = INFINITY;
    bool traded = false;
    if (d.microbatches < 2 || s->job->wishes.offload & OFFLOAD_ACTIVATIONS)
        return step_s;
    if (!h->trade)
        h->trade = trade_new(s, h);
    d.shard = d.dp * d.cp;
    own.decision = &d;
    for (uint32_t i = 0; i < s->space.zero.n; i++) {
        d.zero = s->space.zero.at[i];
        double room = (double)s->memory_limit - (double)cost_state_least(&own, &h->shape);
        double moved_s = d.zero >= 2 ? d.microbatches * search_floor_shards_s(s, &own, &h->shape) : 0, least_s = cost_larger(step_s, moved_s);
        if (room <= 0 || least_s >= best)
            continue;
        if (!is_roomy(s, h->trade, search_spares(s) ? h->shape.spared : h->shape.layers, d.pp, room, least_s / d.microbatches)) {
            double microbatch_s = trade_s(s, fill_trade(s, c, h), d.pp, room);
            least_s = cost_larger(least_s, d.microbatches * (microbatch_s / d.pp) * (1 - 1e-9));
            traded = true;
        }
        best = cost_smaller(best, least_s);
    }
    s->ntrades += traded;
    s->result->spent += traded && s->ntrades % 3 == 0; /* three take as long as an evaluation */
    return best;
}
