/* Activations in flight: the most that a rank's order holds at a time.
 *
 * What is held grows with a forward pass and shrinks with a backward pass (with W where that is split), so the peak
 * is directly after some forward pass.  With one stage per rank it is a number of microbatches: gpipe m, 1f1b p - r,
 * eager 2(p - r) - 1, zb_h1 p (r weight gradients are delayed), zb_h2 2p - 1, each at most m.  Otherwise bytes of
 * two or more stages add up, and along a stretch of the order in which the same stages alternate they change
 * linearly: only the ends of such stretches are looked at.  Cost: a few operations per chunk and stretch. */

#include "compiler/cost/pipeline_private.h"

#include "compiler/model/actions.h"

#include <math.h>

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Bytes held after `forwards` entries of the order of forward passes and `backwards` of that of backward passes. */
static double looped_held(const struct pipeline_view *x, const double *keep, uint64_t forwards, uint64_t backwards)
{
    const struct pipeline_place f = pipeline_place_of(x, forwards), b = pipeline_place_of(x, backwards);
    double held = 0;
    for (uint32_t c = 0; c < x->v; c++)
        held += keep[c] * (pipeline_chunk_count(&f, c) - pipeline_chunk_count(&b, x->v - 1 - c));
    return held;
}

/* A position in a looped order: the microbatches of whole groups before it, the stretch of its group that it is in,
 * and what is left of that. */
struct stretch {
    uint64_t before, left;
    uint32_t chunk;
};

static uint64_t whole_group(const struct pipeline_view *x, uint64_t before)
{
    return before < x->m && x->m - before < x->group ? x->m - before : x->group;
}

static struct stretch stretch_at(const struct pipeline_view *x, uint64_t count)
{
    const struct pipeline_place at = pipeline_place_of(x, count);
    uint64_t size = at.size ? at.size : x->group;
    return (struct stretch){at.base, size - at.rest % size, (uint32_t)(at.rest / size)};
}

static void advance(const struct pipeline_view *x, struct stretch *at, uint64_t step)
{
    at->left -= step;
    if (at->left)
        return;
    if (++at->chunk == x->v) {
        at->chunk = 0;
        at->before += whole_group(x, at->before);
    }
    at->left = whole_group(x, at->before);
}

/* After the warm-up of `ahead` forward passes, forward and backward passes alternate; stretches end where either
 * changes its chunk.  In the first groups and in the last one all combinations occur. */
static double looped_live(const struct pipeline_view *x, uint32_t r, const double *keep)
{
    uint64_t pair = x->d->schedule == SCHED_COMBINED_1F1B ? 1 : 0, all = (uint64_t)x->m * x->v;
    uint64_t depth = 2 * (uint64_t)(x->p - 1 - r) + (uint64_t)(x->v - 1) * x->group + 1 + pair;
    uint64_t ahead = depth < all ? depth : all, round = (uint64_t)x->group * x->v, steady = all - ahead;
    uint32_t alike = 1;
    while (alike < x->v && keep[alike] == keep[0])
        alike++;
    if (alike == x->v)
        return (double)ahead * keep[0];
    double most = fmax(looped_held(x, keep, ahead, 0), looped_held(x, keep, all, steady));
    double inside[DECISION_MOST_VPP]; /* by chunk */
    const struct pipeline_place first = pipeline_place_of(x, ahead);
    struct stretch forward = stretch_at(x, ahead), backward = stretch_at(x, 0);
    for (uint32_t c = 0; c < x->v; c++)
        inside[c] = pipeline_chunk_count(&first, c);
    for (uint64_t k = 0; k < steady;) {
        uint64_t step = forward.left < backward.left ? forward.left : backward.left;
        double held = 0;
        step = step < steady - k ? step : steady - k;
        inside[forward.chunk] += (double)step;
        inside[x->v - 1 - backward.chunk] -= (double)step;
        for (uint32_t c = 0; c < x->v; c++)
            held += keep[c] * inside[c];
        most = held > most ? held : most;
        advance(x, &forward, step);
        advance(x, &backward, step);
        k += step;
        if (k > round && k + 2 * round < steady) { /* every round repeats the one before */
            uint64_t rounds = (steady - k - round) / round;
            k += rounds * round;
            forward.before += rounds * x->group;
            backward.before += rounds * x->group;
        }
    }
    return most;
}

static double folded_after(const struct pipeline_view *x, uint32_t r, const double *keep, enum pipeline_slot event,
                           uint32_t i)
{
    uint32_t n[NSLOTS];
    pipeline_folded_count(x, r, event, i, n);
    n[event]++;
    return keep[0] * ((double)n[SLOT_F] - n[SLOT_W]) + keep[1] * ((double)n[SLOT_F2] - n[SLOT_W2]);
}

static double folded_live(const struct pipeline_view *x, uint32_t r, const double *keep)
{
    uint32_t p = x->p, last = x->m - 1, at[NSLOTS] = {0};
    if (x->d->schedule != SCHED_ZB_V)
        pipeline_block(x->d->schedule, p, r, at);
    uint32_t lag = (at[SLOT_F2] - at[SLOT_F]) / 6;
    bool block = x->d->schedule != SCHED_ZB_V;
    /* ends of phases of ZB-V; for repeated blocks, where the forward passes of the first stage end */
    const uint32_t zb_v[2][4] = {{2 * p - 2 - r, 2 * p - 1 - r, last, last}, {r ? r - 1 : 0, r, p, last}};
    const uint32_t ends[2][4] = {
        {last, last, last, last},
        {last > lag ? last - lag - 1 : 0, last > lag ? last - lag : 0, last > lag ? last - lag + 1 : 0, last}};
    double most = 0;
    for (uint32_t k = 0; k < 4; k++) {
        most = fmax(most, folded_after(x, r, keep, SLOT_F, least((block ? ends : zb_v)[0][k], last)));
        most = fmax(most, folded_after(x, r, keep, SLOT_F2, least((block ? ends : zb_v)[1][k], last)));
    }
    return most;
}

/* A pair's forward pass adds to what the warm-up left; see dualpipe.c.  near, far: bytes of the stage nearer to the
 * entry, and of the other. */
static double dual_live(uint32_t h, uint32_t n, uint32_t m, double near, double far)
{
    uint32_t joins = m + h + 1 > 2 * n ? 1 : 0;
    return (2 * n - h - 1 + joins) * near + (h + 1) * far;
}

/* Action by action: every stage has a ring of its own, as deep as its peak; late: of what waits for its W alone. */
struct depth {
    uint32_t inside[DECISION_MOST_VPP], most[DECISION_MOST_VPP];
    bool late;
};

static void deepen(void *to, char kind, uint32_t j)
{
    struct depth *x = to;
    x->inside[j] += kind == (x->late ? 'I' : 'F');
    x->most[j] = x->inside[j] > x->most[j] ? x->inside[j] : x->most[j];
    x->inside[j] -= kind == 'W' || (kind == 'B' && !x->late);
}

static struct depth depth_of(const struct decision *d, uint32_t rank, bool late)
{
    struct depth x = {.late = late};
    const struct schedule *s = d->listed;
    for (uint32_t k = 0; s && k < s->nactions[rank]; k++)
        if (s->actions[rank][k].kind != 'O')
            deepen(&x, s->actions[rank][k].kind,
                   s->actions[rank][k].stage / d->pp); /* stages ascend in either placement */
    if (!s)
        order_of(d->schedule)(d, rank, deepen, &x);
    return x;
}

static double listed_live(const struct decision *d, uint32_t rank, const double *keep)
{
    struct depth x = depth_of(d, rank, false);
    double bytes = 0;
    for (uint32_t c = 0; c < d->vpp; c++)
        bytes += keep[c] * x.most[c];
    return bytes;
}

double pipeline_live_bytes(const struct decision *d, uint32_t rank, const double *keep)
{
    struct pipeline_view x = pipeline_view_new(d, NULL);
    uint32_t p = d->pp, m = d->microbatches, other = p - 1 - rank;
    switch (d->schedule) {
    case SCHED_AUTO:
    case SCHED_FILE:
        if (d->listed)
            return listed_live(d, rank, keep);
        break;
    case SCHED_GPIPE:
    case NSCHEDULES:
        break;
    case SCHED_1F1B:
        return least(m, p - rank) * keep[0];
    case SCHED_EAGER_1F1B:
        return least(m, 2 * (p - rank) - 1) * keep[0];
    case SCHED_ZB_H1:
        return least(m, p) * keep[0];
    case SCHED_ZB_H2:
        return least(m, 2 * p - 1) * keep[0];
    case SCHED_INTERLEAVED:
    case SCHED_COMBINED_1F1B:
        return looped_live(&x, rank, keep);
    case SCHED_ZB_V:
    case SCHED_V_HALF:
    case SCHED_V_MIN:
        return folded_live(&x, rank, keep);
    case SCHED_DUALPIPE_V:
        return dual_live(rank, p, m, keep[0], keep[1]);
#define SCHEDULE(KIND, word, arguments, stages, traits)
#define ORDERED(KIND, word, arguments, stages, traits) case SCHED_##KIND:
#include "compiler/model/schedule.def"
        return listed_live(d, rank, keep);
    case SCHED_DUALPIPE:
        return rank < other ? dual_live(rank, p / 2, m / 2, keep[0], keep[1])
                            : dual_live(other, p / 2, m / 2, keep[1], keep[0]);
    }
    double all = 0;
    for (uint32_t j = 0; j < d->vpp; j++)
        all += m * keep[j];
    return all;
}

/* Of h + 1 Is in turn, the last on the near stage, and then one behind each W; of n ranks in one direction.  On the
 * outermost ranks the near stage's come when the far one's ring is free, and lie there. */
static uint32_t dual_late(uint32_t h, uint32_t n, bool near)
{
    if (!near)
        return (h + 1) / 2 > 0 ? (h + 1) / 2 : n > 1;
    return h ? least(h + 1, n / 2) : 0;
}

/* While the last forwards of the second stage come, weight gradients wait; with few microbatches they come before. */
static uint32_t zb_v_late(uint32_t r, uint32_t p, uint32_t m, bool second)
{
    uint32_t early = 2 * p > m + 1 ? 2 * p - m - 1 : 0;
    if (!second)
        return least(r + 1, m >= p ? m - p + 1 : 1);
    return r > early && r > 1 ? r - early : 1;
}

uint32_t pipeline_late(const struct decision *d, uint32_t rank, uint32_t j)
{
    uint32_t p = d->pp, m = d->microbatches, h = least(rank, p - 1 - rank);
    switch (d->schedule) {
    case SCHED_AUTO:
    case SCHED_FILE:
        return d->listed ? depth_of(d, rank, true).most[j] : 1;
#define SCHEDULE(KIND, word, arguments, stages, traits)
#define ORDERED(KIND, word, arguments, stages, traits) case SCHED_##KIND:
#include "compiler/model/schedule.def"
        return depth_of(d, rank, true).most[j];
    case SCHED_ZB_H1:
        return least(m, rank + 1);
    case SCHED_ZB_H2:
        return least(m, 2 * rank + 1);
    case SCHED_ZB_V:
        return least(m, zb_v_late(rank, p, m, j > 0));
    case SCHED_V_HALF:
    case SCHED_V_MIN:
        return 1;
    case SCHED_DUALPIPE:
        return dual_late(h, p / 2, (rank < p / 2) == (j == 0));
    case SCHED_DUALPIPE_V:
        return dual_late(rank, p, j == 0);
    case SCHED_GPIPE:
    case SCHED_1F1B:
    case SCHED_EAGER_1F1B:
    case SCHED_INTERLEAVED:
    case SCHED_COMBINED_1F1B:
    case NSCHEDULES:
        break;
    }
    return 0;
}
