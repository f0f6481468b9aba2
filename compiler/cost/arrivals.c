/* What waits in a rank's memory for other actions: inputs received from the previous stage, gradients received from
 * the next stage, and outputs whose send is not known to be complete.
 *
 * Receives have a queue of their own, in the order in which data arrive while the schedule runs, and each waits for
 * a place; there are as many places as are taken at one time in that run (compiler/lower/rings.c).  So data may have
 * arrived as soon as everything that arrives earlier has a place, and they have one.  The place of a gradient is
 * also the one that its stage sends from.  A send is known to be complete by whatever waits for a later one: a
 * receive into its place, an action that needs what arrives there, and a stage's next output.  All forward passes
 * are assumed to take equally long, backward passes twice that, and two actions that run together to end together.
 * Where that would be far from true, seconds of the stages are given (mem_own.c): for listed schedules, and for
 * interleaved 1F1B with stages of very different lengths.
 *
 * Schedules that have a name are followed once per search and set of lengths, with as few microbatches as show the
 * whole pattern.
 * Cost: linear in the actions of all ranks, and for each action in the number of its rank's stages. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/moments_private.h"
#include "compiler/model/actions.h"
#include "compiler/model/orders.h"

#include <math.h>
#include <string.h>

/* ---- when actions end ---- */

struct clock {
    const struct decision *d;
    const struct schedule *s;
    const struct pipeline_stage *seconds; /* by stage; NULL: unknown */
    double *end[2];                       /* end times of F, and of B or I, by stage and microbatch; INFINITY: not
                                           * known yet */
};

static double *end_of(const struct clock *x, bool back, uint32_t stage, uint32_t microbatch)
{
    return &x->end[back][(size_t)stage * x->s->microbatches + microbatch];
}

/* The time at which what an action needs from other ranks is available. */
static double ready(const struct clock *x, const struct action *a)
{
    if (a->kind == 'F')
        return a->stage ? *end_of(x, false, a->stage - 1, a->microbatch) : 0;
    return a->kind == 'W' || a->stage + 1 == x->d->nstages ? 0 : *end_of(x, true, a->stage + 1, a->microbatch);
}

/* Duration of an action.  Of two that run together, the first needs nothing of the second; the end of both is taken
 * as its end, unless the second has to wait. */
static double takes(const struct clock *x, const struct action *t, bool second)
{
    const struct action *f = second ? t - 1 : t; /* the first action of a pair */
    if (!x->seconds)
        return t->kind == 'O' ? 0 : t->pair || second ? 3 : t->kind == 'B' ? 2 : 1;
    if (t->pair || second)
        return x->seconds[f->stage].forward_s + x->seconds[f[1].stage].backward_s;
    const struct pipeline_stage *s = &x->seconds[t->stage];
    return t->kind == 'F'   ? s->forward_s
           : t->kind == 'B' ? s->backward_s
           : t->kind == 'I' ? s->input_s
           : t->kind == 'W' ? s->weight_s
                            : 0;
}

static void run_all(struct arena *a, struct clock *x)
{
    const struct schedule *s = x->s;
    size_t n = (size_t)x->d->nstages * s->microbatches;
    uint32_t *at = ARENA_ARRAY(a, uint32_t, s->nranks);
    double *now = ARENA_ARRAY(a, double, s->nranks);
    for (int k = 0; k < 2; k++) {
        x->end[k] = ARENA_ARRAY(a, double, n + 1);
        for (size_t i = 0; i < n; i++)
            x->end[k][i] = INFINITY;
    }
    for (bool more = true; more;) {
        more = false;
        for (uint32_t r = 0; r < s->nranks; r++)
            for (; at[r] < s->nactions[r]; at[r]++, more = true) {
                const struct action *t = &s->actions[r][at[r]];
                double from = t->kind == 'O' ? 0 : ready(x, t);
                if (from >= INFINITY)
                    break;
                double begin = now[r] > from ? now[r] : from, end = begin + takes(x, t, at[r] && t[-1].pair);
                now[r] = t->pair ? begin : end;
                if (t->kind != 'W' && t->kind != 'O')
                    *end_of(x, t->kind != 'F', t->stage, t->microbatch) = end;
            }
    }
}

/* ---- what comes when ---- */

/* what arrives for a stage of the rank: inputs, or gradients */
struct comes {
    const double *when; /* the times at which the other stage has made them, by microbatch; NULL: there are none */
    bool here;          /* one of the rank's own stages makes them, and nothing is transferred */
    uint32_t places, n; /* n: received so far */
    uint32_t *known;    /* number of sends that are known to be complete once it has arrived, by microbatch */
};
struct rank {
    const struct clock *clock;
    uint32_t rank, m, nstages;
    struct comes comes[2][DECISION_MOST_VPP];
    uint32_t *at[2][DECISION_MOST_VPP]; /* index of the action that is F, or B or I, by microbatch */
    bool sends[2][DECISION_MOST_VPP];   /* is what it makes transferred? */
    uint32_t *sent;                     /* number of sends of the actions before, by action */
    int32_t *change;                    /* change of the number of items that wait, by action */
};

static void find_stages(struct arena *a, struct rank *x)
{
    const struct clock *t = x->clock;
    for (uint32_t c = 0; c < x->nstages; c++) {
        uint32_t s = cost_rank_stage(t->d, x->rank, c), last = t->d->nstages - 1;
        for (int back = 0; back < 2; back++) {
            struct comes *y = &x->comes[back][c];
            bool none = back ? s == last : s == 0;
            uint32_t from = back ? s + 1 : s - 1;
            *y = (struct comes){.known = ARENA_ARRAY(a, uint32_t, x->m)};
            y->when = none ? NULL : end_of(t, back, from, 0);
            y->here = !none && cost_stage_rank(t->d, from) == x->rank;
            x->at[back][c] = ARENA_ARRAY(a, uint32_t, x->m);
            x->sends[back][c] = back ? s > 0 && cost_stage_rank(t->d, s - 1) != x->rank
                                     : s < last && cost_stage_rank(t->d, s + 1) != x->rank;
        }
    }
}

static void find_actions(struct arena *a, struct rank *x)
{
    const struct schedule *s = x->clock->s;
    uint32_t n = s->nactions[x->rank], sent = 0;
    x->sent = ARENA_ARRAY(a, uint32_t, n + 1);
    x->change = ARENA_ARRAY(a, int32_t, n + 2);
    for (uint32_t k = 0; k < n; k++) {
        const struct action *t = &s->actions[x->rank][k];
        bool back = t->kind != 'F';
        uint32_t c = t->stage / x->clock->d->pp;
        x->sent[k] = sent;
        if (t->kind == 'W' || t->kind == 'O')
            continue;
        x->at[back][c][t->microbatch] = k;
        sent += x->sends[back][c];
    }
}

/* Finds the number of places for what arrives for a stage's passes: as many as are taken at one time, until its
 * backward pass is over or, where that sends from the place, has begun to send. */
static void find_places(struct rank *x)
{
    for (int kind = 0; kind < 2; kind++)
        for (uint32_t c = 0; c < x->nstages; c++) {
            struct comes *y = &x->comes[kind][c];
            uint32_t s = cost_rank_stage(x->clock->d, x->rank, c);
            for (uint32_t ended = 0, came = 0; y->when && ended < x->m; ended++) {
                double end = *end_of(x->clock, true, s, ended);
                while (came < x->m && (y->when[came] < end || (kind && x->sends[1][c] && y->when[came] <= end)))
                    came++;
                y->places = came > ended + y->places ? came - ended : y->places;
            }
        }
}

/* Something waits from the start of one action until another action begins to use it. */
static void lies(struct rank *x, uint32_t from, uint32_t to)
{
    if (from >= to)
        return;
    x->change[from]++;
    x->change[to]--;
}

/* The next thing to arrive; NULL: there is none. */
static struct comes *next_of(struct rank *x, uint32_t *c, int *kind)
{
    struct comes *next = NULL;
    for (int back = 0; back < 2; back++)
        for (uint32_t k = 0; k < x->nstages; k++) {
            struct comes *y = &x->comes[back][k];
            if (!y->when || y->here || y->n == x->m || (next && next->when[next->n] <= y->when[y->n]))
                continue;
            next = y;
            *c = k;
            *kind = back;
        }
    return next;
}

static void receive_all(struct rank *x)
{
    uint32_t from = 0, known = 0, c = 0;
    int kind = 0;
    for (struct comes *y = next_of(x, &c, &kind); y; y = next_of(x, &c, &kind)) {
        uint32_t n = y->n++;
        if (n >= y->places) {
            uint32_t last = x->at[1][c][n - y->places]; /* the action that frees the place */
            from = last + 1 > from ? last + 1 : from;
            bool sends = kind && x->sends[1][c];
            known = sends && x->sent[last] + 1 > known ? x->sent[last] + 1 : known;
        }
        y->known[n] = known;
        lies(x, from, x->at[kind][c][n]);
    }
}

/* Adds what one of the rank's stages makes for another one. */
static void hand_over(struct rank *x)
{
    for (int back = 0; back < 2; back++)
        for (uint32_t c = 0; c < x->nstages; c++) {
            uint32_t s = cost_rank_stage(x->clock->d, x->rank, c), from = (back ? s + 1 : s - 1) / x->clock->d->pp;
            for (uint32_t k = 0; x->comes[back][c].here && k < x->m; k++)
                lies(x, x->at[back][from][k] + 1, x->at[back][c][k]);
        }
}

static uint32_t larger(uint32_t x, uint32_t y)
{
    return x > y ? x : y;
}

/* Number of sends that are known to be complete as an action begins: from what has arrived for it or, where nothing
 * has, from the place of its gradient, which it sends from. */
static uint32_t known_by(const struct rank *x, bool back, uint32_t c, uint32_t microbatch)
{
    const struct comes *y = &x->comes[back][c];
    if (y->when && !y->here)
        return y->known[microbatch];
    return back && x->sends[1][c] && microbatch ? x->sent[x->at[1][c][microbatch - 1]] + 1 : 0;
}

/* Does it form one round of the order together with the next action? */
static bool joins(const struct clock *t, const struct action *a)
{
    return a->pair && decision_pairs(t->d->schedule);
}

/* Returns the number of rounds that the actions form. */
static uint32_t follow(struct arena *a, const struct clock *t, uint32_t rank, uint16_t *out)
{
    const struct schedule *s = t->s;
    struct arena_mark mark = arena_mark(a);
    struct rank *x = ARENA_NEW(a, struct rank);
    *x = (struct rank){.clock = t, .rank = rank, .m = s->microbatches, .nstages = t->d->vpp};
    find_stages(a, x);
    find_actions(a, x);
    find_places(x);
    receive_all(x);
    hand_over(x);
    uint32_t known = 0, sent = 0, n = 0;
    int32_t there = 0;
    for (uint32_t k = 0; k < s->nactions[rank]; k++) {
        const struct action *y = &s->actions[rank][k];
        bool back = y->kind != 'F', first = joins(t, y);
        uint32_t c = y->stage / t->d->pp;
        there += x->change[k];
        sent = k && joins(t, y - 1) ? sent : x->sent[k];
        if (y->kind == 'F' || y->kind == 'B' || y->kind == 'I')
            known = larger(known, known_by(x, back, c, y->microbatch));
        if (!first)
            out[n++] = (uint16_t)((uint32_t)there + sent - known);
        if (y->kind == 'F' && x->sends[0][c] && y->microbatch)
            known = larger(known, x->sent[x->at[0][c][y->microbatch - 1]] + 1);
    }
    arena_reset(a, mark);
    return n;
}

/* ---- all ---- */

bool waits_are_followed(const struct decision *d)
{
    return d->listed || schedule_chunks(d->schedule) != 1 || order_of(d->schedule);
}

/* The schedule as a list. */
static struct schedule *list(struct arena *a, const struct decision *d)
{
    struct schedule *s = ARENA_NEW(a, struct schedule);
    *s = (struct schedule){.nranks = d->pp, .nstages = d->nstages, .copies = 1, .microbatches = d->microbatches};
    s->nactions = ARENA_ARRAY(a, uint32_t, d->pp);
    s->actions = ARENA_ARRAY(a, struct action *, d->pp);
    for (uint32_t r = 0; r < d->pp; r++)
        s->nactions[r] = orders_list(a, d, r, &s->actions[r]);
    return s;
}

static bool loops(const struct decision *d)
{
    return d->schedule == SCHED_INTERLEAVED || d->schedule == SCHED_COMBINED_1F1B;
}

/* The number of microbatches that show the whole pattern of a schedule: two rounds of chunks, or as many as are in
 * flight, before and after what repeats. */
static uint32_t microbatches_of(const struct decision *d, uint32_t group)
{
    uint32_t most = loops(d) ? 4 * group : 4 * d->pp;
    return d->listed || order_of(d->schedule) || d->microbatches <= most + group
               ? d->microbatches
               : most + (d->microbatches - most) % group;
}

/* Follows ranks from .. to - 1. */
static void follow_all(struct arena *a, const struct decision *d, const struct pipeline_stage *seconds, uint32_t from,
                       uint32_t to, struct waits *out)
{
    uint32_t group = !loops(d) ? 1 : d->schedule_group ? d->schedule_group : d->pp;
    uint32_t each = (decision_pairs(d->schedule) ? 1 : loops(d) ? 2 : 3) * d->vpp; /* rounds per microbatch */
    struct decision shorter = *d;
    struct arena *own = arena_new();
    shorter.microbatches = microbatches_of(d, group);
    struct clock t = {.d = &shorter, .s = d->listed ? d->listed : list(own, &shorter), .seconds = seconds};
    run_all(own, &t);
    for (uint32_t r = from; r < to; r++) {
        uint32_t n = t.s->nactions[r];
        out[r - from] = (struct waits){n, each * (d->microbatches - shorter.microbatches), each * group,
                                       ARENA_ARRAY(a, uint16_t, n + 1), 0};
        out[r - from].n = n = follow(own, &t, r, out[r - from].at);
        for (uint32_t k = 0; k < n; k++)
            out[r - from].most = out[r - from].at[k] > out[r - from].most ? out[r - from].at[k] : out[r - from].most;
    }
    arena_free(own);
}

#define KNOWN 1024
struct known_waits {
    struct arena *arena;
    struct {
        uint64_t mark;
        struct waits *ranks;
    } at[KNOWN];
};

struct known_waits *waits_new(struct arena *a)
{
    struct known_waits *known = ARENA_NEW(a, struct known_waits);
    known->arena = a;
    return known;
}

struct waits waits_of(struct arena *a, struct known_waits *known, const struct decision *d,
                      const struct pipeline_stage *seconds, uint32_t rank)
{
    struct waits x;
    if (!known || d->listed) {
        follow_all(a, d, seconds, rank, rank + 1, &x);
        return x;
    }
    const uint64_t of[] = {d->schedule, d->schedule_group, d->pp, d->vpp, d->microbatches};
    uint64_t mark = cost_mark(1, of, sizeof of);
    for (uint32_t i = 0; seconds && i < d->nstages; i++)
        mark = cost_mark(mark, &seconds[i].forward_s, sizeof seconds[i].forward_s);
    uint64_t k = mark % KNOWN;
    if (known->at[k].mark != mark) {
        known->at[k].ranks = ARENA_ARRAY(known->arena, struct waits, d->pp);
        follow_all(known->arena, d, seconds, 0, d->pp, known->at[k].ranks);
    }
    known->at[k].mark = mark;
    return known->at[k].ranks[rank];
}
