/* List scheduling: time runs forward over all ranks, and a rank that is free takes the best of what it could
 * do.
 *
 * The rank that is free first is looked at first, so what arrives from actions already begun is known with
 * its time, also when that is later.  Input gradients go before forwards unless the rules want more forwards
 * ahead; weight gradients fill the time until the next arrival, and make room when a forward does not fit.
 *
 * Memory never locks up: a forward is admitted if behind it, for every chunk deeper than the shallowest that
 * holds anything and itself without a microbatch between F and I, one microbatch more would fit when the chunk's
 * Ws are done.  The microbatch that is furthest along can then always go on: it enters such a chunk.  What an
 * input gradient leaves for W may need more room than what it frees; where there is none a W goes first, or both
 * gradients are done at once. */

#include "compiler/schedule/auto_private.h"
#include "compiler/schedule/auto_turns.h"

#include <math.h>
#include <string.h>

struct slot_state {
    uint32_t f, i, w, b; /* done; b: of them without a W */
    uint32_t forward_there, backward_there;
    double next_free, back_free;
};
struct auto_greedy {
    const struct auto_job *job;
    const struct auto_rules *rules;
    struct auto_order *out;
    struct slot_state *slot;
    double *forward_in, *backward_in;
    double *live;      /* bytes, by rank */
    uint32_t *inside;  /* by rank: chunks of microbatches between F and I */
    uint32_t *waiting; /* by rank: W to do */
    bool *idle;
    struct auto_turns turns; /* when each rank chooses next */
};

/* the next action of one kind on a rank: the chunk with the least key */
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
    g->forward_in = ARENA_ARRAY(a, double, (size_t)slots * job->m);
    g->backward_in = ARENA_ARRAY(a, double, (size_t)slots * job->m);
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
    for (uint32_t s = 0; s < job->p * job->v; s++)
        if (job->slot[s].back == NONE) {
            g->slot[s].forward_there = job->m;
            memset(&g->forward_in[(size_t)s * job->m], 0, job->m * sizeof *g->forward_in);
        }
}

/* --- what happens --- */

static void arrive(struct auto_greedy *g, uint32_t rank, double at)
{
    if (g->idle[rank] && at < g->turns.key[rank])
        auto_turns_set(&g->turns, rank, at);
}

static void send_forward(struct auto_greedy *g, uint32_t slot, double end)
{
    const struct auto_stage *st = &g->job->slot[slot];
    struct slot_state *k = &g->slot[slot];
    size_t m = g->job->m, i = k->f++;
    if (st->next == NONE) {
        g->backward_in[slot * m + i] = end;
        k->backward_there++;
        return;
    }
    if (st->next_s > 0)
        k->next_free = end = fmax(k->next_free, end) + st->next_s;
    g->forward_in[st->next * m + i] = end;
    g->slot[st->next].forward_there++;
    arrive(g, g->job->slot[st->next].rank, end);
}

static void send_backward(struct auto_greedy *g, uint32_t slot, double end)
{
    const struct auto_stage *st = &g->job->slot[slot];
    struct slot_state *k = &g->slot[slot];
    size_t m = g->job->m, i = k->i++;
    if (st->back == NONE)
        return;
    if (st->back_s > 0)
        k->back_free = end = fmax(k->back_free, end) + st->back_s;
    g->backward_in[st->back * m + i] = end;
    g->slot[st->back].backward_there++;
    arrive(g, g->job->slot[st->back].rank, end);
}

static void begin(struct auto_greedy *g, uint32_t r, uint32_t chunk, enum auto_kind kind, double now)
{
    uint32_t slot = r * g->job->v + chunk;
    const struct auto_stage *st = &g->job->slot[slot];
    double end = now + st->takes[kind];
    g->out->at[r][g->out->n[r]++] = AUTO_SYMBOL(kind, chunk);
    g->idle[r] = false;
    switch (kind) {
    case AUTO_F:
        g->live[r] += st->keep;
        g->inside[r]++;
        send_forward(g, slot, end);
        break;
    case AUTO_I:
        g->inside[r]--;
        g->live[r] += st->late - st->keep;
        g->waiting[r]++;
        send_backward(g, slot, end);
        break;
    case AUTO_B:
        g->inside[r]--;
        g->live[r] -= st->keep;
        g->slot[slot].b++;
        send_backward(g, slot, end);
        break;
    case AUTO_W:
        g->waiting[r]--;
        g->live[r] -= st->late;
        g->slot[slot].w++;
        break;
    case AUTO_KINDS:
        break;
    }
    auto_turns_set(&g->turns, r, end);
}

/* --- what could happen --- */

static bool holds(const struct slot_state *k)
{
    return k->f > k->w + k->b;
}

/* what a microbatch that enters the chunk lacks, at most */
static double lacks(const struct auto_stage *st, const struct slot_state *k)
{
    return k->f > k->i ? 0 : fmax(0, st->keep - (k->i - k->w - k->b) * st->late);
}

/* does one more forward of the chunk fit, with room left for what must be able to follow? */
static bool admitted(const struct auto_greedy *g, uint32_t r, uint32_t chunk)
{
    const struct auto_job *job = g->job;
    if (!job->most)
        return true;
    const struct auto_stage *st = &job->slot[r * job->v];
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
    double soon, back_soon; /* the next arrival that is known; of an input gradient's */
    bool blocked;           /* a forward is there but there is no room */
};

static struct offers look(const struct auto_greedy *g, uint32_t r, double now)
{
    const struct auto_job *job = g->job;
    const struct auto_rules *u = g->rules;
    struct offers o = {.soon = INFINITY, .back_soon = INFINITY};
    for (uint32_t c = 0; c < job->v; c++) {
        uint32_t slot = r * job->v + c;
        const struct slot_state *k = &g->slot[slot];
        if (k->i < k->backward_there) {
            double at = g->backward_in[(size_t)slot * job->m + k->i];
            if (at <= now)
                take(&o.i, c, key_of(u->group_back, u->spread_back, job->v, job->v - 1 - c, k->i));
            else
                o.back_soon = fmin(o.back_soon, at);
        }
        if (k->w + k->b < k->i)
            take(&o.w, c, key_of(u->group_back, u->spread_back, job->v, job->v - 1 - c, k->w + k->b));
        if (k->f >= k->forward_there || (c == 0 && g->inside[r] >= u->rank[r].window))
            continue;
        double at = g->forward_in[(size_t)slot * job->m + k->f];
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

static enum auto_kind backward_kind(const struct auto_greedy *g, uint32_t slot)
{
    const struct auto_rules *u = g->rules;
    const struct auto_stage *st = &g->job->slot[slot];
    bool entry = u->fuse_entry && st->back == NONE;
    bool full = g->job->most && g->live[st->rank] + st->late - st->keep > g->job->most[st->rank];
    return entry || full || g->slot[slot].i < u->fuse ? AUTO_B : AUTO_I;
}

/* one choice of rank r: an action begun, or a time to look again */
static void choose(struct auto_greedy *g, uint32_t r, double now)
{
    const struct auto_rank_rule *rule = &g->rules->rank[r];
    const struct auto_stage *st = &g->job->slot[r * g->job->v];
    struct offers o = look(g, r, now);
    bool behind = g->inside[r] < rule->ahead; /* more forwards are wanted ahead */
    uint32_t lag = g->slot[r * g->job->v].f < g->rules->turn ? rule->lag : rule->late;
    bool crowded = o.w.any && (o.blocked || g->waiting[r] >= lag);
    if (o.i.any && !(behind && (o.f.any || (o.blocked && o.w.any)))) {
        begin(g, r, o.i.chunk, backward_kind(g, r * g->job->v + o.i.chunk), now);
    } else if (o.f.any && !crowded) {
        if (!behind && o.back_soon < now + g->rules->eager * st[o.f.chunk].takes[AUTO_F]) {
            g->idle[r] = true;
            auto_turns_set(&g->turns, r, o.back_soon);
        } else {
            begin(g, r, o.f.chunk, AUTO_F, now);
        }
    } else if (o.w.any && (crowded || o.soon >= now + g->rules->patience * st[o.w.chunk].takes[AUTO_W])) {
        begin(g, r, o.w.chunk, AUTO_W, now);
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
