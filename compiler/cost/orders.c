/* The orders of actions of all schedules, as compiler/schedule writes them, as stretches for moments.c. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/moments_private.h"
#include "compiler/cost/pipeline_private.h"
#include "compiler/model/actions.h"

#include <string.h>

static void one(struct order *x, char kind, uint32_t stage)
{
    moments_round(x, &(struct action_of){kind, stage, 0}, 1);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- one stage ---- */

/* `ahead` forward passes, then F and B alternately; waiting: number of inputs that may wait. */
static void run_1f1b(struct order *x, uint32_t ahead, uint32_t waiting)
{
    uint32_t m = x->d->microbatches, w = least(ahead, m);
    x->ahead = waiting;
    x->to_come = m;
    STRETCH(x, w, {'F', 0, 0});
    STRETCH(x, m - w, {'F', 0, 0}, {'B', 0, 0});
    STRETCH(x, w, {'B', 0, 0});
}

/* The first I comes after `ahead` forward passes, and W `lag` microbatches after I; behind: F comes last in a round. */
static void run_zb_h(struct order *x, uint32_t ahead, uint32_t lag, bool behind, uint32_t waiting)
{
    uint32_t m = x->d->microbatches, w = least(ahead, m), forwards = m - w, cut = least(lag, m);
    x->ahead = waiting;
    x->to_come = m;
    STRETCH(x, w, {'F', 0, 0});
    for (uint32_t k = 0, end; k < m; k = end) {
        struct action_of round[3];
        uint32_t n = 0;
        end = k < forwards ? forwards : m;
        end = k < cut && cut < end ? cut : end;
        if (k < forwards && !behind)
            round[n++] = (struct action_of){'F', 0, 0};
        round[n++] = (struct action_of){'I', 0, 0};
        if (k >= lag)
            round[n++] = (struct action_of){'W', 0, 0};
        if (k < forwards && behind)
            round[n++] = (struct action_of){'F', 0, 0};
        moments_stretch(x, end - k, round, n);
    }
    STRETCH(x, cut, {'W', 0, 0});
}

/* ---- looped stages ---- */

/* A position in the order of forward passes: the chunk, how many more of it follow, and the microbatches of the
 * previous rounds. */
struct looped {
    uint64_t base, left;
    uint32_t chunk;
};

static uint64_t round_size(const struct order *x, uint32_t group, uint64_t base)
{
    uint64_t m = x->d->microbatches;
    return m - base < group ? m - base : group;
}

static void advance(const struct order *x, uint32_t group, struct looped *at, uint64_t by)
{
    at->left -= by;
    if (at->left)
        return;
    if (++at->chunk == x->d->vpp) {
        at->chunk = 0;
        at->base += group;
    }
    if (at->base < x->d->microbatches)
        at->left = round_size(x, group, at->base);
}

static void run_looped(struct order *x, uint32_t r, uint32_t group, bool pairs)
{
    uint32_t p = x->d->pp, v = x->d->vpp, m = x->d->microbatches;
    uint64_t all = (uint64_t)m * v, w = 2 * (uint64_t)(p - 1 - r) + (uint64_t)(v - 1) * group + pairs, f = 0, b = 0,
             more;
    uint64_t round = m % group ? 0 : (uint64_t)group * v; /* 0: rounds differ */
    struct looped forward = {.left = round_size(x, group, 0)}, backward = forward;
    w = w < all ? w : all;
    x->pairs = x->pairs_left = pairs ? all - w : 0;
    for (; f < w && !moments_told(x); f += more) {
        uint32_t c = forward.chunk;
        more = forward.left < w - f ? forward.left : w - f;
        STRETCH(x, more, {'F', c, 0});
        advance(x, group, &forward, more);
    }
    while (b < all && !moments_told(x)) {
        uint32_t cf = forward.chunk, cb = v - 1 - backward.chunk;
        more = backward.left;
        if (f < all) {
            more = forward.left < more ? forward.left : more;
            if (pairs)
                STRETCH(x, more, {'P', cf, cb});
            else
                STRETCH(x, more, {'F', cf, 0}, {'B', cb, 0});
            advance(x, group, &forward, more);
            f += more;
        } else {
            STRETCH(x, more, {'B', cb, 0});
        }
        advance(x, group, &backward, more);
        b += more;
        if (round && !x->lists && !backward.chunk && backward.left == group && f + 2 * round <= all) {
            uint64_t rounds = (all - f) / round - 1;
            f += rounds * round;
            b += rounds * round;
            forward.base += rounds * group;
            backward.base += rounds * group;
            for (uint32_t c = 0; c < v; c++)
                moments_skip(x, &(struct action_of){pairs ? 'P' : 'B', c, c}, 1, rounds * group);
            for (uint32_t c = 0; c < v && !pairs; c++)
                moments_skip(x, &(struct action_of){'F', c, c}, 1, rounds * group);
        }
    }
}

/* ---- folded stages ---- */

struct fold {
    struct order *x;
    uint32_t m, f[2], i[2], w[2];
};

static void fold(struct fold *x, char kind, uint32_t c)
{
    uint32_t *done = kind == 'F' ? x->f : kind == 'I' ? x->i : x->w;
    if (done[c]++ < x->m)
        moments_round(x->x, &(struct action_of){kind, c, 0}, 1);
}

static void run_zb_v(struct order *o, uint32_t r)
{
    uint32_t p = o->d->pp, m = o->d->microbatches, all = m > 2 * p - 1 ? m : 2 * p - 1;
    struct fold x = {.x = o, .m = m};
    for (uint32_t k = 0; k < 2 * (p - r) - 1; k++)
        fold(&x, 'F', 0);
    for (uint32_t k = 0; k < r; k++) {
        fold(&x, 'F', 1);
        fold(&x, 'F', 0);
    }
    for (uint32_t k = 0; k < p - r; k++) {
        fold(&x, 'F', 1);
        fold(&x, 'I', 1);
        fold(&x, 'W', 1);
    }
    for (uint32_t rounds = 0; x.f[1] < x.f[0] || x.f[0] < all; rounds++) {
        if (rounds == 3 && x.f[0] + 1 < all && m == all && !o->lists) { /* from here on every round repeats the one
                                                                         * before */
            uint32_t more = all - x.f[0] - 1;
            for (uint32_t c = 0; c < 2; c++) {
                x.f[c] += more;
                x.i[c] += more;
                x.w[c] += more;
                moments_skip(o, (const struct action_of[]){{'F', c, 0}, {'I', c, 0}, {'W', c, 0}}, 3, more);
            }
        }
        if (x.f[0] < all)
            fold(&x, 'F', 0);
        fold(&x, 'I', 0);
        fold(&x, 'W', 0);
        fold(&x, 'F', 1);
        fold(&x, 'I', 1);
        fold(&x, 'W', 1);
    }
    for (uint32_t k = 0; k < r; k++) {
        fold(&x, 'I', 0);
        fold(&x, 'I', 1);
    }
    for (uint32_t k = 0; k < p - r; k++) {
        fold(&x, 'I', 0);
        fold(&x, 'W', 0);
    }
    for (int c = 1; c >= 0; c--)
        while (x.w[c] < x.i[c])
            fold(&x, 'W', (uint32_t)c);
}

/* Repeats the block of six slots for all microbatches. */
static void run_block(struct order *x, uint32_t r)
{
    static const struct action_of kinds[] = {[SLOT_F] = {'F', 0, 0},  [SLOT_F2] = {'F', 1, 0}, [SLOT_I2] = {'I', 1, 0},
                                             [SLOT_W2] = {'W', 1, 0}, [SLOT_I] = {'I', 0, 0},  [SLOT_W] = {'W', 0, 0}};
    uint32_t at[NSLOTS], by_time[6], m = x->d->microbatches, last = 0;
    pipeline_block(x->d->schedule, x->d->pp, r, at);
    for (uint32_t k = 0; k < NSLOTS; k++) {
        by_time[at[k] % 6] = k;
        last = at[k] / 6 > last ? at[k] / 6 : last;
    }
    for (uint32_t cycle = 0; cycle < m + last + 1; cycle++) {
        if (cycle == last + 2 && m > cycle + 1 &&
            !x->lists) { /* every cycle repeats the one before, until the forward passes end */
            moments_skip(x, kinds, NSLOTS, m - 1 - cycle);
            cycle = m - 1;
        }
        for (uint32_t k = 0; k < 6; k++) {
            uint32_t slot = by_time[k], first = at[slot] / 6;
            if (cycle >= first && cycle - first < m)
                moments_round(x, &kinds[slot], 1);
        }
    }
}

/* ---- both directions ---- */

/* Phases as in compiler/schedule/dualpipe.c; slot `near` is the stage whose entry of the pipeline is nearer. */
static void run_dual(struct order *x, uint32_t h, uint32_t n, uint32_t all, uint32_t near)
{
    uint32_t outer = n - h - 1, far = 1 - near, steady = all + h + 1 - 2 * n, late = 0;
    x->pairs = x->pairs_left = 2 * (uint64_t)steady - (steady && h == n - 1) + outer;
    if (!x->lists)
        x->copies += (outer + (h + 2) / 2) * x->stages[near].copies[1] +
                     (outer + (h + 1) / 2) * x->stages[far].copies[1]; /* of split backward passes */
    STRETCH(x, 2 * outer, {'F', near, 0});
    STRETCH(x, h + 1, {'F', near, 0}, {'F', far, 0});
    STRETCH(x, outer, {'I', far, 0}, {'W', far, 0}, {'F', far, 0});
    if (steady && h == n - 1) {
        STRETCH(x, 1, {'F', near, 0}, {'B', far, 0}, {'P', far, near});
        steady--;
    }
    STRETCH(x, steady, {'P', near, far}, {'P', far, near});
    STRETCH(x, outer, {'B', far, 0}, {'P', far, near});
    char left[2 * 256];
    for (uint32_t k = 0; k < 2 * (h + 1); k++) {
        uint32_t slot = k % 2 ? near : far;
        if (k <= h) {
            one(x, 'B', slot);
        } else {
            one(x, 'I', slot);
            left[late++ % sizeof left] = (char)slot;
        }
    }
    uint32_t done = 0;
    for (uint32_t k = 0; k < outer; k++) {
        one(x, 'W', (uint32_t)left[done++ % sizeof left]);
        one(x, 'I', near);
        left[late++ % sizeof left] = (char)near;
    }
    while (done < late)
        one(x, 'W', (uint32_t)left[done++ % sizeof left]);
}

/* ---- all ---- */

static void run_action(void *to, char kind, uint32_t j)
{
    moments_round(to, &(struct action_of){kind, j, 0}, 1);
}

static void run_listed(struct order *x, const struct schedule *s, uint32_t r)
{
    for (uint32_t k = 0; k < s->nactions[r]; k++) {
        const struct action *t = &s->actions[r][k];
        if (t->kind != 'O')
            run_action(x, t->kind, t->stage / x->d->pp);
    }
}

/* Number of inputs that may wait: as many as the previous rank runs forward passes more at the start.  On the last
 * rank no receive of a gradient delays inputs, and the two faces of each cell (compiler/lower/cells.c) make room for
 * one more. */
static uint32_t inputs_ahead(const struct decision *d, uint32_t rank)
{
    uint32_t more = d->schedule == SCHED_EAGER_1F1B || d->schedule == SCHED_ZB_H2 ? 2 : 1;
    return more > 1 && rank + 1 == d->pp ? more + 1 : more;
}

static void run_order(struct order *x, uint32_t rank)
{
    const struct decision *d = x->d;
    uint32_t p = d->pp, m = d->microbatches, other = p - 1 - rank, group = d->schedule_group ? d->schedule_group : p;
    switch (d->schedule) {
    case SCHED_AUTO:
    case SCHED_FILE:
        if (d->listed)
            run_listed(x, d->listed, rank);
        else
            for (uint32_t c = 0; c < d->vpp; c++) {
                STRETCH(x, m, {'F', c, 0});
                x->uses -= x->counts ? m * x->stages[c].uses[1] : 0;
            }
        break;
#define SCHEDULE(KIND, word, arguments, stages, traits)
#define ORDERED(KIND, word, arguments, stages, traits) case SCHED_##KIND:
#include "compiler/model/schedule.def"
        order_of(d->schedule)(d, rank, run_action, x);
        break;
    case SCHED_GPIPE:
    case NSCHEDULES:
        run_1f1b(x, m, 0);
        break;
    case SCHED_1F1B:
        run_1f1b(x, other, inputs_ahead(d, rank));
        break;
    case SCHED_EAGER_1F1B:
        run_1f1b(x, 2 * other, inputs_ahead(d, rank));
        break;
    case SCHED_ZB_H1:
        run_zb_h(x, other, rank, false, inputs_ahead(d, rank));
        break;
    case SCHED_ZB_H2:
        run_zb_h(x, 2 * (p - rank) - 1, 2 * rank, true, inputs_ahead(d, rank));
        break;
    case SCHED_INTERLEAVED:
    case SCHED_COMBINED_1F1B:
        run_looped(x, rank, group, d->schedule == SCHED_COMBINED_1F1B);
        break;
    case SCHED_ZB_V:
        run_zb_v(x, rank);
        break;
    case SCHED_V_HALF:
    case SCHED_V_MIN:
        run_block(x, rank);
        break;
    case SCHED_DUALPIPE_V:
        run_dual(x, rank, p, m, 0);
        break;
    case SCHED_DUALPIPE:
        run_dual(x, rank < other ? rank : other, p / 2, m / 2, rank < other ? 0 : 1);
        break;
    }
}

uint32_t orders_list(struct arena *a, const struct decision *d, uint32_t rank, struct action **out)
{
    struct listing *to = ARENA_NEW(a, struct listing);
    static const struct moments_shards none = {0};
    struct order x = {.d = d, .shards = &none, .enough = INFINITY, .lists = to};
    to->at = *out = ARENA_ARRAY(a, struct action, (size_t)3 * d->vpp * d->microbatches + 1);
    to->n = 0;
    memset(to->microbatch, 0, sizeof to->microbatch);
    run_order(&x, rank);
    uint32_t stages[DECISION_MOST_VPP];
    for (uint32_t c = 0; c < d->vpp; c++)
        stages[c] = cost_rank_stage(d, rank, c);
    for (uint32_t k = 0; k < to->n; k++)
        to->at[k].stage = stages[to->at[k].stage];
    return to->n;
}

/* Uses of gathered parameters in a rank's whole order. */
static double uses_of(const struct order *x, uint32_t rank)
{
    const struct decision *d = x->d;
    uint32_t n = d->schedule == SCHED_DUALPIPE ? 2 : d->vpp;
    double of[6 + 2 * DECISION_MOST_VPP] = {d->schedule, d->schedule_group, d->pp, d->vpp, d->microbatches, rank},
                      own = 0;
    for (uint32_t c = 0; c < n; c++) {
        of[6 + 2 * c] = x->stages[c].uses[0];
        of[7 + 2 * c] = x->stages[c].uses[1];
    }
    double *uses = x->remembered && !d->listed
                       ? moments_known_uses(x->remembered, cost_mark(1, of, (6 + 2 * n) * sizeof *of))
                       : &own;
    if (*uses <= 0) {
        struct order counting = *x;
        counting.counts = true;
        run_order(&counting, rank);
        *uses = -counting.uses;
    }
    return *uses;
}

struct moments pipeline_moments(const struct decision *d, uint32_t rank, const struct moments_stage *stages,
                                const struct moments_shards *shards, const struct pipeline_stage *seconds,
                                struct moments_pairs *pairs, double least, double enough)
{
    struct moments_shards own = *shards;
    struct order x = {
        .d = d, .stages = stages, .shards = &own, .remembered = pairs, .used = UINT32_MAX, .enough = INFINITY};
    if (shards->gathered > 0) {
        x.uses = uses_of(&x, rank);
        own.places = x.uses < own.places ? x.uses : own.places;
        own.places_beside = x.uses < own.places_beside ? x.uses : own.places_beside;
    }
    x.most.bytes = least;
    x.enough = enough;
    struct arena *a = stages[0].waits > 0 && (!pairs || d->listed) ? arena_new() : NULL;
    if (stages[0].waits > 0)
        x.waits = waits_of(a, pairs ? moments_known_waits(pairs) : NULL, d, seconds, rank);
    moments_begin(&x, rank);
    run_order(&x, rank);
    moments_end(&x);
    if (a)
        arena_free(a);
    return x.most;
}
