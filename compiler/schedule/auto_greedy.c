/* List scheduling: time advances over all ranks, and a rank that is free takes the best action that it could start.
 *
 * The rank that is free first chooses first, so the arrival times of the outputs of all actions already started are
 * known, even if they lie in the future.  Input gradients go before forwards unless the rules want more forwards
 * ahead; weight gradients fill the time until the next arrival, and free memory when a forward does not fit.
 *
 * Memory never deadlocks: a forward is admitted only if after it, for every chunk later than the first that holds
 * anything, other than its own, that has no microbatch between F and I, one more microbatch would fit once the
 * chunk's W's are done.  The microbatch that is furthest along can then always proceed: it enters such a chunk.
 * What an input gradient keeps for W may need more memory than it frees; where that does not fit, a W goes first, or
 * both gradients are computed at once (B). */

#include "compiler/schedule/auto_private.h"
#include "compiler/schedule/auto_turns.h"

#include <math.h>
#include <string.h>

struct slot_state {
    uint32_t f, i, w, b; /* counts of actions done; b: how many of the input gradients were a B, without a W */
};
struct auto_greedy {
    const struct auto_job *job;
    const struct auto_rules *rules;
    struct auto_order *out;
    struct slot_state *slot;
    struct relay *relay;
    double *live;      /* bytes of live activations, by rank */
    uint32_t *inside;  /* by rank: microbatches between F and I, summed over its chunks */
    uint32_t *waiting; /* by rank: pending W's */
    bool *idle;
    struct auto_turns turns; /* key: when each rank chooses next, seconds */
};

/* the preferred next action of one kind on a rank: the chunk with the least key */
struct offer {
    uint32_t chunk;
    uint64_t key;
    bool any;
};

struct auto_greedy *auto_greedy_new(struct arena *a, const struct auto_job *job)
{
    struct auto_greedy *g = ARENA_NEW(a, struct auto_greedy);
    uint32_t slots = job->p * job->v;
    g->job = job;
    g->slot = ARENA_ARRAY(a, struct slot_state, slots);
    g->relay = relay_new(a, job->slot, slots, 0, job->m, job->pairs);
    g->live = ARENA_ARRAY(a, double, job->p);
    g->inside = ARENA_ARRAY(a, uint32_t, job->p);
    g->waiting = ARENA_ARRAY(a, uint32_t, job->p);
    g->idle = ARENA_ARRAY(a, bool, job->p);
    g->turns = auto_turns_new(a, job->p);
    return g;
}

static void reset(struct auto_greedy *g)
{
    const struct auto_job *job = g->job;
    memset(g->slot, 0, job->p * job->v * sizeof *g->slot);
    memset(g->live, 0, job->p * sizeof *g->live);
    memset(g->inside, 0, job->p * sizeof *g->inside);
    memset(g->waiting, 0, job->p * sizeof *g->waiting);
    memset(g->idle, 0, job->p * sizeof *g->idle);
    memset(g->out->n, 0, job->p * sizeof *g->out->n);
    auto_turns_reset(&g->turns, job->p);
    relay_begin(g->relay);
    relay_free_channels(g->relay);
}

/* --- what happens --- */

static void arrive(struct auto_greedy *g, uint32_t rank, double at)
{
    if (g->idle[rank] && at < g->turns.key[rank])
        auto_turns_set(&g->turns, rank, at);
}

static void end_forward(struct auto_greedy *g, uint32_t slot, double end)
{
    uint32_t i = g->slot[slot].f++, to = relay_end_forward(g->relay, slot, i, end);
    if (to != NONE)
        arrive(g, g->job->slot[to].rank, relay_forward_s(g->relay, to, i));
}

static void end_backward(struct auto_greedy *g, uint32_t slot, double end)
{
    uint32_t i = g->slot[slot].i++, to = relay_end_backward(g->relay, slot, i, end);
    if (to != NONE)
        arrive(g, g->job->slot[to].rank, relay_backward_s(g->relay, to, i));
}

static void begin(struct auto_greedy *g, uint32_t r, uint32_t chunk, enum relay_kind kind, double now)
{
    uint32_t slot = r * g->job->v + chunk;
    const struct relay_stage *st = &g->job->slot[slot];
    double end = now + st->takes[kind];
    g->out->at[r][g->out->n[r]++] = AUTO_SYMBOL(kind, chunk);
    g->idle[r] = false;
    switch (kind) {
    case RELAY_F:
        g->live[r] += st->keep;
        g->inside[r]++;
        end_forward(g, slot, end);
        break;
    case RELAY_I:
        g->inside[r]--;
        g->live[r] += st->late - st->keep;
        g->waiting[r]++;
        end_backward(g, slot, end);
        break;
    case RELAY_B:
        g->inside[r]--;
        g->live[r] -= st->keep;
        g->slot[slot].b++;
        end_backward(g, slot, end);
        break;
    case RELAY_W:
        g->waiting[r]--;
        g->live[r] -= st->late;
        g->slot[slot].w++;
        break;
    case RELAY_KINDS:
        break;
    }
    auto_turns_set(&g->turns, r, end);
}

/* --- what could happen --- */

static bool holds(const struct slot_state *k)
{
    return k->f > k->w + k->b;
}

/* most bytes that a microbatch needs, beyond what the chunk's pending W's free, to enter it */
static double lacks(const struct relay_stage *st, const struct slot_state *k)
{
    return k->f > k->i ? 0 : fmax(0, st->keep - (k->i - k->w - k->b) * st->late);
}

/* Does one more forward of the chunk fit, leaving memory for what must be able to follow? */
static bool admitted(const struct auto_greedy *g, uint32_t r, uint32_t chunk)
{
    const struct auto_job *job = g->job;
    if (!job->most)
        return true;
    const struct relay_stage *st = &job->slot[r * job->v];
    const struct slot_state *k = &g->slot[r * job->v];
    double need = g->live[r] + st[chunk].keep;
    uint32_t shallow = 0;
    while (shallow < chunk && !holds(&k[shallow]))
        shallow++;
    for (uint32_t c = shallow + 1; c < job->v; c++)
        if (c != chunk)
            need += lacks(&st[c], &k[c]);
    return need <= job->most[r] * (1 + 1e-9);
}

static uint64_t key_of(uint32_t group, uint32_t spread, uint32_t v, uint32_t place, uint32_t microbatch)
{
    if (spread)
        return (uint64_t)(microbatch + place * (spread - 1)) * v + place;
    return ((uint64_t)(microbatch / group) * v + place) * group + microbatch % group;
}

static void take(struct offer *best, uint32_t chunk, uint64_t key)
{
    if (!best->any || key < best->key)
        *best = (struct offer){chunk, key, true};
}

struct offers {
    struct offer f, i, w;
    double soon, back_soon; /* seconds: the next known arrival of any input; of an input gradient's */
    bool blocked;           /* a forward could run but does not fit in memory */
};

static struct offers look(const struct auto_greedy *g, uint32_t r, double now)
{
    const struct auto_job *job = g->job;
    const struct auto_rules *u = g->rules;
    struct offers o = {.soon = INFINITY, .back_soon = INFINITY};
    for (uint32_t c = 0; c < job->v; c++) {
        uint32_t slot = r * job->v + c;
        const struct slot_state *k = &g->slot[slot];
        double at = k->i < job->m ? relay_backward_s(g->relay, slot, k->i) : RELAY_NOT_YET;
        if (at > now)
            o.back_soon = fmin(o.back_soon, at);
        else if (at >= 0)
            take(&o.i, c, key_of(u->group_back, u->spread_back, job->v, job->v - 1 - c, k->i));
        if (k->w + k->b < k->i)
            take(&o.w, c, key_of(u->group_back, u->spread_back, job->v, job->v - 1 - c, k->w + k->b));
        at = k->f < job->m ? relay_forward_s(g->relay, slot, k->f) : RELAY_NOT_YET;
        if (at < 0 || (c == 0 && g->inside[r] >= u->rank[r].window))
            continue;
        if (at > now)
            o.soon = fmin(o.soon, at);
        else if (admitted(g, r, c))
            take(&o.f, c, key_of(u->group, u->spread, job->v, c, k->f));
        else
            o.blocked = true;
    }
    o.soon = fmin(o.soon, o.back_soon);
    return o;
}

static enum relay_kind backward_kind(const struct auto_greedy *g, uint32_t slot)
{
    const struct auto_rules *u = g->rules;
    const struct relay_stage *st = &g->job->slot[slot];
    bool entry = u->fuse_entry && st->back == NONE;
    bool full = g->job->most && g->live[st->rank] + st->late - st->keep > g->job->most[st->rank];
    return entry || full || g->slot[slot].i < u->fuse ? RELAY_B : RELAY_I;
}

/* Lets rank r choose: it starts an action, or sets the time at which it looks again. */
static void choose(struct auto_greedy *g, uint32_t r, double now)
{
    const struct auto_rank_rule *rule = &g->rules->rank[r];
    const struct relay_stage *st = &g->job->slot[r * g->job->v];
    struct offers o = look(g, r, now);
    bool behind = g->inside[r] < rule->ahead; /* the rules want more forwards ahead */
    uint32_t lag = g->slot[r * g->job->v].f < g->rules->turn ? rule->lag : rule->late;
    bool crowded = o.w.any && (o.blocked || g->waiting[r] >= lag);
    if (o.i.any && !(behind && (o.f.any || (o.blocked && o.w.any)))) {
        begin(g, r, o.i.chunk, backward_kind(g, r * g->job->v + o.i.chunk), now);
    } else if (o.f.any && !crowded) {
        if (!behind && o.back_soon < now + g->rules->eager * st[o.f.chunk].takes[RELAY_F]) {
            g->idle[r] = true;
            auto_turns_set(&g->turns, r, o.back_soon);
        } else {
            begin(g, r, o.f.chunk, RELAY_F, now);
        }
    } else if (o.w.any && (crowded || o.soon >= now + g->rules->patience * st[o.w.chunk].takes[RELAY_W])) {
        begin(g, r, o.w.chunk, RELAY_W, now);
    } else {
        g->idle[r] = true;
        auto_turns_set(&g->turns, r, o.soon);
    }
}

void auto_greedy_make(struct auto_greedy *g, const struct auto_rules *rules, struct auto_order *out)
{
    g->rules = rules;
    g->out = out;
    reset(g);
    for (uint32_t r = g->turns.winner[1]; !isinf(g->turns.key[r]); r = g->turns.winner[1])
        choose(g, r, g->turns.key[r]);
}
