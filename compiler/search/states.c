/* States of a family: ZeRO levels, each with the shard counts that it may have; those that need least memory come
 * first. */

#include "compiler/model/means.h"
#include "compiler/search/bounds.h"
#include "compiler/search/candidates.h"
#include "compiler/search/leaves.h"

/* Shard counts to try: dp * cp, and divisors of it with which a group stays within a level of the network that the
 * next larger one leaves; the largest first.  Returns how many. */
static uint32_t shard_choices(const struct searching *s, const struct cost *c, const struct decision *d, uint32_t room,
                              uint32_t *out)
{
    uint32_t all = d->dp * d->cp, n = 0;
    const struct wish *w = &s->job->wishes.degree[DEG_SHARD];
    if (d->zero == 0 || all == 1) {
        out[0] = 1;
        return space_wants(w, 1);
    }
    if (!(means_of(s->job, TARGET_replicas) >> (d->zero - 1) & 1)) {
        out[0] = all;
        return space_wants(w, all);
    }
    if (w->relation != REL_ANY) {
        for (uint32_t v = all; v >= 1 && n < room; v--)
            if (all % v == 0 && space_wants(w, v))
                out[n++] = v;
        return n;
    }
    out[n++] = all;
    /* if the plan block fixes zero, its default is meant: all ranks */
    if (s->job->wishes.degree[DEG_ZERO].relation == REL_EQ)
        return n;
    struct cost_group last = cost_shard_group(c, all);
    for (uint32_t v = all / 2; v >= 2 && n < room; v--) {
        if (all % v)
            continue;
        struct cost_group g = cost_shard_group(c, v);
        if (g.level < last.level)
            out[n++] = v;
        last = g.level < last.level ? g : last;
    }
    return n;
}

/* Does the state fit, by the least bytes that c's parameters, gradients and optimizer take under any schedule and
 * with any number of microbatches, over all ranks of the pipeline? */
static bool state_fits(const struct searching *s, const struct cost *c, const struct cost_shape *x)
{
    struct decision d = *c->decision;
    struct cost own = *c;
    d.microbatches = 1;
    own.decision = &d;
    return cost_state_least(&own, x) <= s->memory_limit;
}

const struct states *search_states(struct searching *s, const struct family *f)
{
    struct states *x = f->states;
    if (x->at)
        return x;
    struct decision d = f->decision;
    struct cost c = *f->cost;
    bool split = d.dp * d.cp > 1; /* otherwise all levels are like the first */
    c.decision = &d;
    const struct cost_shape *shape = &search_shape(s, &c)->shape;
    x->at = ARENA_ARRAY(s->arena, struct state, SEARCH_STATES);
    for (uint32_t z = split ? s->space.zero.n : 1; z-- > 0;) {
        uint32_t shards[16];
        d.zero = s->space.zero.at[z];
        uint32_t n = shard_choices(s, &c, &d, ARRAY_LEN(shards), shards);
        for (uint32_t i = 0; i < n && x->n < SEARCH_STATES; i++) {
            d.shard = shards[i];
            cost_set_shard(&c);
            x->at[x->n++] = (struct state){.zero = d.zero,
                                           .shard = d.shard,
                                           .ranks = c.shard,
                                           .replicas = c.replicas,
                                           .fits = state_fits(s, &c, shape)};
        }
    }
    return x;
}

void search_set_state(struct cost *c, struct decision *d, const struct state *x)
{
    d->zero = x->zero;
    d->shard = x->shard;
    c->decision = d;
    c->shard = x->ranks;
    c->replicas = x->replicas;
}

bool search_has_room(const struct searching *s, const struct state *x)
{
    return x->fits || !search_found(s);
}
