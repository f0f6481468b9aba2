/* List scheduling by urgency, alternately backward and forward in time.
 *
 * An order is first shifted to its end: its actions are scheduled from the last one back, where each rank takes,
 * among actions whose successors are all scheduled, the one that ended last.  The start that an action gets is the
 * latest at which it may start; actions that would start close to it are urgent.  Then actions are scheduled from
 * the first one on, the most urgent first, which leaves fewer gaps on the slowest ranks ("forward-backward
 * improvement", Tormos and Lova, 2001, for project scheduling).  Both passes get some noise and are repeated from
 * the latest result unless it is clearly worse.
 *
 * Nodes are F, I and W of a slot and microbatch; each kind of a slot is taken in the order of microbatches.  The
 * passes ignore contention of channels and memory; an order that does not fit in memory is dropped.  I and W are
 * never fused. */

#include "compiler/schedule/auto_private.h"
#include "compiler/schedule/auto_turns.h"

#include <math.h>
#include <string.h>

#define PASSES 20    /* cost of both passes, in runs of an order */
#define KINDS 3      /* F, I, W */
#define WORSE 1.003  /* a result up to so many times as long is accepted now and then */
#define STRAYED 1.01 /* so many times as long as the best: return to the best */
#define MISFITS 16   /* after so many orders in a row that exceed the memory, stop */

struct urgent {
    struct auto_search *search;
    const struct auto_job *job;
    uint32_t nodes; /* number of nodes of one kind: slots * m */
    bool backward;
    /* an action is not started if a more urgent one becomes ready within this share of its duration */
    double eager;
    double *urgency, *start; /* by kind * nodes + slot * m + microbatch; the least urgency value is the most urgent */
    double *ready;           /* latest end of the predecessors known so far */
    uint8_t *pending;        /* predecessors whose end is not known yet */
    uint32_t *done;          /* actions done, by kind * slots + slot */
    double *noise;           /* added to urgency, by kind * slots + slot */
    bool *idle;
    struct auto_turns turns;
    struct auto_order *out; /* made by the forward pass */
};

static uint32_t node_of(const struct urgent *u, uint32_t kind, uint32_t slot, uint32_t k)
{
    uint32_t m = u->job->m;
    return kind * u->nodes + slot * m + (u->backward ? m - 1 - k : k);
}

static void release(struct urgent *u, uint32_t node, double at)
{
    uint32_t rank = node % u->nodes / u->job->m / u->job->v;
    u->ready[node] = fmax(u->ready[node], at);
    if (--u->pending[node] == 0 && u->idle[rank] && u->ready[node] < u->turns.key[rank])
        auto_turns_set(&u->turns, rank, u->ready[node]);
}

/* Releases the successors, in the direction of the pass, of an action that ends at `end`. */
static void release_next(struct urgent *u, enum relay_kind kind, uint32_t slot, uint32_t microbatch, double end)
{
    const struct relay_stage *st = &u->job->slot[slot];
    uint32_t m = u->job->m, n = u->nodes, f = RELAY_F * n + microbatch, i = RELAY_I * n + microbatch;
    bool last = st->next == NONE, first = st->back == NONE;
    if (kind == RELAY_F && !u->backward)
        release(u, last ? i + slot * m : f + st->next * m, end + (last ? 0 : st->next_s));
    else if (kind == RELAY_F && !first)
        release(u, f + st->back * m, end + u->job->slot[st->back].next_s);
    else if (kind == RELAY_I && !u->backward && !first)
        release(u, i + st->back * m, end + auto_back_s(u->job, st));
    else if (kind == RELAY_I && u->backward)
        release(u, last ? f + slot * m : i + st->next * m,
                end + (last ? 0 : auto_back_s(u->job, &u->job->slot[st->next])));
    else if (kind == RELAY_W && u->backward)
        release(u, i + slot * m, end);
    if (kind == RELAY_I && !u->backward)
        release(u, RELAY_W * n + slot * m + microbatch, end);
}

/* Number of predecessors of an action; in the backward pass these are its successors in time. */
static uint8_t pending_of(const struct urgent *u, enum relay_kind kind, const struct relay_stage *st)
{
    if (kind == RELAY_W)
        return !u->backward;
    if (kind == RELAY_I)
        return u->backward ? 1 + (st->back != NONE) : 1;
    return u->backward || st->back != NONE;
}

static void reset(struct urgent *u)
{
    const struct auto_job *job = u->job;
    memset(u->done, 0, (size_t)KINDS * job->p * job->v * sizeof *u->done);
    memset(u->idle, 0, job->p * sizeof *u->idle);
    memset(u->ready, 0, (size_t)KINDS * u->nodes * sizeof *u->ready);
    for (uint32_t kind = 0; kind < KINDS; kind++)
        for (uint32_t s = 0; s < job->p * job->v; s++)
            memset(u->pending + kind * u->nodes + s * job->m, pending_of(u, (enum relay_kind)kind, &job->slot[s]),
                   job->m);
    auto_turns_reset(&u->turns, job->p);
}

static void begin(struct urgent *u, uint32_t r, enum relay_kind kind, uint32_t slot, double now)
{
    uint32_t node = node_of(u, kind, slot, u->done[kind * u->job->p * u->job->v + slot]++);
    double end = now + u->job->slot[slot].takes[kind];
    u->start[node] = now;
    u->idle[r] = false;
    if (!u->backward)
        u->out->at[r][u->out->n[r]++] = AUTO_SYMBOL(kind, slot - r * u->job->v);
    auto_turns_set(&u->turns, r, end);
    release_next(u, kind, slot, node % u->job->m, end);
}

/* Lets rank r choose: it starts an action, or sets the time at which it looks again. */
static void choose(struct urgent *u, uint32_t r, double now)
{
    const struct auto_job *job = u->job;
    uint32_t slots = job->p * job->v, best = NONE;
    double urgency = INFINITY, wait = INFINITY;
    struct {
        double at, urgency;
    } coming[KINDS * DECISION_MOST_VPP];
    uint32_t ncoming = 0;
    for (uint32_t c = 0; c < KINDS * job->v; c++) {
        uint32_t kind = c % KINDS, slot = r * job->v + c / KINDS, k = u->done[kind * slots + slot];
        uint32_t node = k < job->m ? node_of(u, kind, slot, k) : 0;
        if (k == job->m || u->pending[node])
            continue;
        double own = u->urgency[node] + u->noise[kind * slots + slot];
        if (u->ready[node] > now) {
            coming[ncoming].at = u->ready[node];
            coming[ncoming++].urgency = own;
        } else if (own < urgency) {
            urgency = own;
            best = kind * slots + slot;
        }
    }
    double until = best == NONE ? INFINITY : now + u->eager * job->slot[best % slots].takes[best / slots];
    for (uint32_t k = 0; k < ncoming; k++)
        if (coming[k].urgency < urgency && coming[k].at < until)
            wait = fmin(wait, coming[k].at);
    if (best != NONE && isinf(wait)) {
        begin(u, r, (enum relay_kind)(best / slots), best % slots, now);
    } else {
        u->idle[r] = true;
        auto_turns_set(&u->turns, r, wait);
    }
}

/* Schedules all actions in one direction; returns the end of the last, seconds. */
static double pass(struct urgent *u, bool backward)
{
    double end = 0;
    u->backward = backward;
    if (!backward)
        memset(u->out->n, 0, u->job->p * sizeof *u->out->n);
    reset(u);
    for (uint32_t r = u->turns.winner[1]; !isinf(u->turns.key[r]); r = u->turns.winner[1]) {
        end = fmax(end, u->turns.key[r]);
        choose(u, r, u->turns.key[r]);
    }
    return end;
}

/* Sets the urgency for the other direction from the starts of this one. */
static void turn(struct urgent *u)
{
    for (uint32_t kind = 0; kind < KINDS; kind++)
        for (uint32_t k = 0; k < u->nodes; k++) {
            uint32_t node = kind * u->nodes + k;
            u->urgency[node] = -(u->start[node] + u->job->slot[k / u->job->m].takes[kind]);
        }
}

/* Reads the starts of an order's actions; a B counts as an I followed by its W. */
static void read_starts(struct urgent *u, const struct auto_order *o)
{
    const struct auto_job *job = u->job;
    uint32_t slots = job->p * job->v;
    auto_run_record(u->search->run, o);
    const struct auto_trace *t = auto_run_trace(u->search->run);
    u->backward = false;
    memset(u->done, 0, (size_t)KINDS * slots * sizeof *u->done);
    for (uint32_t r = 0; r < job->p; r++)
        for (uint32_t k = 0; k < o->n[r]; k++) {
            enum relay_kind kind = AUTO_KIND(o->at[r][k]), first = kind == RELAY_B ? RELAY_I : kind;
            uint32_t slot = r * job->v + AUTO_CHUNK(o->at[r][k]);
            u->start[node_of(u, first, slot, u->done[first * slots + slot]++)] = t->start[r][k];
            if (kind == RELAY_B)
                u->start[node_of(u, RELAY_W, slot, u->done[RELAY_W * slots + slot]++)] = t->start[r][k] +
                                                                                         job->slot[slot].takes[RELAY_I];
        }
}

static void make_noise(struct urgent *u, double most)
{
    for (uint32_t k = 0; k < KINDS * u->job->p * u->job->v; k++)
        u->noise[k] = most * (auto_draw(u->search, 1001) / 500.0 - 1);
}

static struct urgent *urgent_new(struct auto_search *s)
{
    const struct auto_job *job = &s->job;
    struct urgent *u = ARENA_NEW(s->arena, struct urgent);
    size_t slots = (size_t)job->p * job->v, n = slots * job->m;
    *u = (struct urgent){.search = s, .job = job, .nodes = (uint32_t)n, .out = s->trial};
    u->urgency = ARENA_ARRAY(s->arena, double, KINDS *n);
    u->start = ARENA_ARRAY(s->arena, double, KINDS *n);
    u->ready = ARENA_ARRAY(s->arena, double, KINDS *n);
    u->pending = ARENA_ARRAY(s->arena, uint8_t, KINDS * n);
    u->done = ARENA_ARRAY(s->arena, uint32_t, KINDS * slots);
    u->noise = ARENA_ARRAY(s->arena, double, KINDS *slots);
    u->idle = ARENA_ARRAY(s->arena, bool, job->p);
    u->turns = auto_turns_new(s->arena, job->p);
    return u;
}

static bool fits(const struct auto_search *s)
{
    for (uint32_t r = 0; s->job.most && r < s->job.p; r++)
        if (!auto_order_fits(&s->job, s->trial, r))
            return false;
    return true;
}

void auto_try_urgent(struct auto_search *s, uint64_t until)
{
    struct urgent *u = urgent_new(s);
    struct auto_score score, from = s->score;
    struct auto_order *now = auto_order_new(s->arena, &s->job);
    auto_order_copy(&s->job, now, s->best);
    for (uint32_t misfits = 0; s->spent < until && !auto_optimal(s) && misfits < MISFITS; misfits++) {
        double cycle = from.longest_s / s->job.m;
        read_starts(u, now);
        turn(u);
        make_noise(u, auto_draw(s, 3) ? 0 : cycle * auto_draw(s, 3));
        u->eager = auto_draw(s, 5) / 4.0;
        pass(u, true);
        turn(u);
        make_noise(u, cycle * auto_draw(s, 5) / 8);
        pass(u, false);
        s->spent += PASSES * s->nactions;
        if (!fits(s))
            continue;
        misfits = 0;
        auto_offer(s, s->trial, &score);
        if (auto_better(&from, &score) && (score.longest_s > from.longest_s * WORSE || auto_draw(s, 4)))
            continue;
        bool strayed = score.longest_s > s->score.longest_s * STRAYED;
        from = strayed ? s->score : score;
        auto_order_copy(&s->job, now, strayed ? s->best : s->trial);
    }
}
