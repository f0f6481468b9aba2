/* Makespan of a pipeline's step in closed form, and lower bounds of it.
 *
 * A step is a graph: a rank's actions in their order, and F(s, i) -> F(s+1, i), B(s+1, i) -> B(s, i), F(n-1,
 * i) -> B(n-1, i), with transfers on the edges between ranks.  Its makespan is the longest path, so every
 * path is a lower bound.  The paths tried, for every rank r:
 *
 *   start   up to r's first backward: the forwards before it in r's order, or the first microbatch's way to
 * the last stage and back middle  to r's last forward: r's own actions, or cycles over neighbouring ranks.  A
 * cycle goes down the backwards of ranks r..a, over r's order on a to a later forward and up to r again;
 * while ranks a..r hold L more microbatches than r alone it advances L of them and pays every transfer twice
 * (1F1B: the 2(p-1)c per p microbatches of T = (m+p-1)(F+X) + 2c[(p-1)m/p + p-2]) end     r's remaining
 * actions or the last microbatch's way to the last stage and back, then the backwards of the ranks before r,
 * or the weight gradients that one of them still has to do
 *
 * A part `held` of a transfer that blocks the sender is a part of the action before it.  GPipe is exact: two
 * permutation flow shops of identical jobs, sum + (m-1) max, with boundaries as machines.
 *
 * Sources: Narayanan et al., SC'21 (1F1B, interleaved); Qi et al. 2023 (zero bubble) and 2024 (V-shaped);
 * DeepSeek-V3 report (DualPipe). */

#include "compiler/cost/pipeline_private.h"

#include <math.h>

bool pipeline_folds(enum schedule_kind k)
{
    return schedule_chunks(k) == 2;
}

bool pipeline_skews(enum schedule_kind k)
{
    return schedule_has(k, SCHEDULE_SKEWS);
}

bool pipeline_splits(enum schedule_kind k)
{
    return schedule_has(k, SCHEDULE_SPLITS);
}

struct pipeline_view pipeline_view_new(const struct decision *d, const struct pipeline_times *t)
{
    struct pipeline_view x = {.d = d, .p = d->pp, .v = d->vpp, .n = d->pp * d->vpp, .m = d->microbatches, .free = 1};
    x.group = d->schedule_group ? d->schedule_group : d->pp;
    x.groups = x.m / x.group;
    x.folds = decision_folds(d);
    x.splits = pipeline_splits(d->schedule);
    if (!t)
        return x;
    x.skews = t->skewed && (pipeline_skews(d->schedule) || d->schedule == SCHED_AUTO);
    x.stage = t->stages;
    x.held = t->held;
    x.free = 1 - t->held;
    return x;
}

/* Does data cross from one rank to another between stages s and s + 1? */
static bool crosses(const struct pipeline_view *x, uint32_t s)
{
    return s + 1 < x->n && x->p > 1 && !(x->folds && s + 1 == x->p);
}

double pipeline_next_s(const struct pipeline_view *x, uint32_t s)
{
    return crosses(x, s) ? x->free * x->stage[s].next_s : 0;
}

double pipeline_back_s(const struct pipeline_view *x, uint32_t s)
{
    return s > 0 && crosses(x, s - 1) ? x->free * x->stage[s].back_s - x->stage[s - 1].lead_s : 0;
}

double pipeline_forward_s(const struct pipeline_view *x, uint32_t s)
{
    return x->stage[s].forward_s + (crosses(x, s) ? x->held * x->stage[s].next_s : 0);
}

double pipeline_backward_s(const struct pipeline_view *x, uint32_t s)
{
    double own = x->splits ? x->stage[s].input_s : x->stage[s].backward_s;
    return own + (s > 0 && crosses(x, s - 1) ? x->held * x->stage[s].back_s : 0);
}

double pipeline_weight_s(const struct pipeline_view *x, uint32_t s)
{
    return x->splits ? x->stage[s].weight_s : 0;
}

double pipeline_fused_s(const struct pipeline_view *x, uint32_t s)
{
    return x->stage[s].backward_s + (s > 0 && crosses(x, s - 1) ? x->held * x->stage[s].back_s : 0);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t above(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

static double gpipe_s(const struct pipeline_view *x)
{
    double sum = 0, most_f = 0, most_b = 0;
    for (uint32_t s = 0; s < x->n; s++) {
        double f = pipeline_forward_s(x, s), b = pipeline_backward_s(x, s), next = pipeline_next_s(x, s),
               back = pipeline_back_s(x, s);
        sum += f + b + next + back;
        most_f = fmax(most_f, fmax(f, next));
        most_b = fmax(most_b, fmax(b, back));
    }
    return sum + (x->m - 1) * (most_f + most_b);
}

/* --- one stage per rank: 1F1B, eager 1F1B, ZB-H1, ZB-H2 --- */

/* The number of forward passes of rank r before its first backward pass. */
static uint32_t linear_ahead(const struct pipeline_view *x, uint32_t r)
{
    uint32_t before = x->p - 1 - r, n = before + 1;
    if (x->d->schedule == SCHED_EAGER_1F1B || x->d->schedule == SCHED_ZB_H2)
        n = 2 * before + 1;
    return least(n, x->m);
}

/* Rank r runs W only after the backward passes of microbatches from this one on. */
static uint32_t linear_late(const struct pipeline_view *x, uint32_t r)
{
    return x->d->schedule == SCHED_ZB_H1 ? r : x->d->schedule == SCHED_ZB_H2 ? 2 * r : 0;
}

/* Running sums over the ranks 0..r and over all: forward and backward passes with their transfers. */
struct sums {
    double forward, backward; /* of the actions of ranks before r, and of their transfers forward to r and back from
                               * r */
    double all_forward, all_backward;
    double latency; /* of all transfers */
};

static struct sums all_sums(const struct pipeline_view *x)
{
    struct sums z = {0};
    for (uint32_t s = 0; s < x->n; s++) {
        double next = pipeline_next_s(x, s), back = pipeline_back_s(x, s);
        z.all_forward += pipeline_forward_s(x, s) + next;
        z.all_backward += pipeline_backward_s(x, s) + back;
        z.latency += next + back;
    }
    return z;
}

/* One rank's own times while the paths are followed. */
struct rank {
    uint32_t r, ahead, late;
    double f, b, w;
};

/* Seconds from r's first backward pass to its last forward pass, with `middle` of each. */
static double own_middle(const struct rank *k, uint32_t middle, uint32_t from)
{
    uint32_t weights = above(middle, from > k->late ? from : k->late);
    return (middle - from) * (k->f + k->b) + weights * k->w;
}

/* Cycles of `cycle_s` for `advance` microbatches: as many as fit, or one before the weight gradients begin.  A cycle
 * over ranks after r ends with r's next backward pass, not with its last forward pass, so something must follow it. */
static double cycles(const struct rank *k, uint32_t middle, uint32_t advance, double cycle_s, bool behind, double best)
{
    if (advance == 0 || advance + behind > middle || cycle_s <= advance * (k->f + k->b))
        return best;
    uint32_t times = (middle - behind) / advance;
    double all = times * cycle_s + own_middle(k, middle, times * advance);
    if (k->w > 0)
        all = fmax(all, cycle_s + own_middle(k, middle, advance));
    return fmax(all, best);
}

static double middle_s(const struct pipeline_view *x, const struct sums *z, const struct rank *k, uint32_t middle)
{
    double best = own_middle(k, middle, 0), both = k->f + k->b;
    double below = z->forward + z->backward, all = z->all_forward + z->all_backward;
    if (z->latency <= 0) /* a cycle's mean is below the pace of its slowest rank */
        return best;
    uint32_t r = k->r, last = x->p - 1, first_ahead = linear_ahead(x, 0), last_ahead = linear_ahead(x, last);
    best = cycles(k, middle, first_ahead - k->ahead + 1, below + both, false, best);
    best = cycles(k, middle, k->ahead - last_ahead + 1, all - below, r < last, best);
    best = cycles(k, middle, first_ahead - last_ahead + 1, all, r < last, best);
    if (r > 0) {
        double before = pipeline_forward_s(x, r - 1) + pipeline_backward_s(x, r - 1) + pipeline_next_s(x, r - 1) +
                        pipeline_back_s(x, r);
        best = cycles(k, middle, linear_ahead(x, r - 1) - k->ahead + 1, before + both, false, best);
    }
    if (r < last) {
        double after = pipeline_forward_s(x, r + 1) + pipeline_backward_s(x, r + 1) + pipeline_next_s(x, r) +
                       pipeline_back_s(x, r + 1);
        best = cycles(k, middle, k->ahead - linear_ahead(x, r + 1) + 1, after + both, true, best);
    }
    return best;
}

static double linear_s(const struct pipeline_view *x)
{
    struct sums z = all_sums(x);
    bool skews = x->skews; /* then the step is timed from a rank's first action to its last */
    double longest = 0, tail = 0;
    uint32_t m = x->m;
    for (uint32_t r = 0; r < x->p; r++) {
        struct rank k = {.r = r,
                         .ahead = linear_ahead(x, r),
                         .late = linear_late(x, r),
                         .f = pipeline_forward_s(x, r),
                         .b = pipeline_backward_s(x, r),
                         .w = pipeline_weight_s(x, r)};
        uint32_t middle = m - k.ahead, weights = above(m - 1, k.late), weights_before = above(middle, k.late);
        double there_and_back = z.all_forward - z.forward - k.f + z.all_backward - z.backward - k.b;
        double first_backward = z.forward + fmax(k.ahead * k.f, k.f + there_and_back);
        double last_forward = middle ? first_backward + middle_s(x, &z, &k, middle) : z.forward + m * k.f;
        double last_backward = last_forward +
                               fmax((k.ahead - 1) * k.b + (weights - weights_before) * k.w, there_and_back);
        if (middle == 0)
            last_backward = fmax(last_backward, first_backward + (m - 1) * k.b + weights * k.w);
        /* tail: from the last backward pass of rank r back to where the step ends */
        tail = fmax((m - weights) * k.w,
                    r > 0 && !skews ? pipeline_back_s(x, r) + pipeline_backward_s(x, r - 1) + tail : 0);
        longest = fmax(longest, last_backward + k.b + tail - (skews ? z.forward : 0));
        z.forward += k.f + pipeline_next_s(x, r);
        z.backward += k.b + (r + 1 < x->p ? pipeline_back_s(x, r + 1) : 0);
    }
    return longest;
}

/* --- looped placement: interleaved and combined 1F1B --- */

struct pipeline_place pipeline_place_of(const struct pipeline_view *x, uint64_t count)
{
    uint64_t full = count / ((uint64_t)x->group * x->v);
    if (full > x->groups)
        full = x->groups;
    struct pipeline_place at = {.base = full * x->group};
    uint64_t left = x->m - at.base;
    at.size = left < x->group ? left : x->group;
    at.rest = count - at.base * x->v;
    return at;
}

double pipeline_chunk_count(const struct pipeline_place *at, uint32_t c)
{
    uint64_t before = c * at->size, own = at->rest > before ? at->rest - before : 0;
    return (double)(at->base + (own < at->size ? own : at->size));
}

/* Lower bounds of the times of events on each rank; `top` is its stage in the last chunk. */
struct looped {
    double enter[MOST_RANKS];    /* start of the first forward pass of `top` */
    double turn[MOST_RANKS];     /* start of the first backward pass, which is top's */
    double forward[MOST_RANKS];  /* end of the last forward pass, which is top's */
    double backward[MOST_RANKS]; /* end of the last backward pass of `top` */
    double own[MOST_RANKS];      /* all work of the rank from the first backward pass until then, where it takes
                                  * longer; 0: it does not */
    double rest[MOST_RANKS];     /* seconds from then to the end of the step */
};

/* Chunk by chunk: the first microbatch arrives from the previous rank, and after a whole group of the previous
 * chunk. */
static void looped_enter(const struct pipeline_view *x, struct looped *k)
{
    uint32_t p = x->p;
    double group = least(x->group, x->m);
    for (uint32_t s = 0; s < x->n; s++) {
        uint32_t r = s % p;
        double came = s == 0 ? 0
                             : k->enter[r ? r - 1 : p - 1] + pipeline_forward_s(x, s - 1) + pipeline_next_s(x, s - 1);
        k->enter[r] = s < p ? came : fmax(came, k->enter[r] + group * pipeline_forward_s(x, s - p));
    }
}

/* The same backwards in time, for the last group and the last microbatch. */
static void looped_rest(const struct pipeline_view *x, struct looped *k)
{
    uint32_t p = x->p, left = x->m % x->group;
    double group = left ? left : x->group;
    for (uint32_t s = 0; s < x->n; s++) {
        uint32_t r = s % p;
        double goes = s == 0 ? 0 : pipeline_back_s(x, s) + pipeline_backward_s(x, s - 1) + k->rest[r ? r - 1 : p - 1];
        k->rest[r] = s < p ? goes : fmax(goes, group * pipeline_backward_s(x, s - p) + k->rest[r]);
    }
}

/* The work of rank r between these events in its own order.  From its first backward pass on, this includes of every
 * chunk at most all microbatches but those of the last group. */
static void looped_own(const struct pipeline_view *x, struct looped *k, uint32_t r)
{
    bool pairs = x->d->schedule == SCHED_COMBINED_1F1B;
    uint64_t depth = 2 * (uint64_t)(x->p - 1 - r) + (uint64_t)(x->v - 1) * x->group + 1;
    uint64_t all = (uint64_t)x->m * x->v, ahead = depth < all ? depth : all;
    uint64_t first = (uint64_t)(x->v - 1) * least(x->group, x->m), left = x->m % x->group;
    uint64_t last = all - (x->v - 1) * (left ? left : x->group);
    const struct pipeline_place at_first = pipeline_place_of(x, first), at_ahead = pipeline_place_of(x, ahead);
    const struct pipeline_place at_turn = pipeline_place_of(x, all - ahead), at_last = pipeline_place_of(x, last);
    double before = 0, middle = 0, after = 0;
    for (uint32_t c = 0; c < x->v; c++) {
        uint32_t s = c * x->p + r, back = x->v - 1 - c;
        double f = pipeline_forward_s(x, s), b = pipeline_backward_s(x, s);
        double warm = pipeline_chunk_count(&at_ahead, c), steady = pipeline_chunk_count(&at_turn, back);
        before += (warm - pipeline_chunk_count(&at_first, c)) * f;
        double hidden_f = pairs ? x->stage[s].forward_hidden_s : 0,
               hidden_b = pairs ? x->stage[s].backward_hidden_s : 0;
        middle += (x->m - warm) * (f - hidden_f) + steady * (b - hidden_b);
        after += (pipeline_chunk_count(&at_last, back) - steady) * b;
    }
    k->turn[r] = k->enter[r] + before;
    k->forward[r] = middle;
    k->backward[r] = after;
    double through = (double)(x->m - (left ? left : least(x->group, x->m))),
           longer_s = x->longer_s ? through * x->longer_s[r] : 0;
    k->own[r] = longer_s > 0 ? middle + after + longer_s : 0;
}

/* For any number of ranks: the way to a rank, its own work, and the way back. */
static double looped_plain_s(const struct pipeline_view *x)
{
    double longest = 0, head = 0, tail = 0, hides = x->d->schedule == SCHED_COMBINED_1F1B ? 1 : 0;
    for (uint32_t r = 0; r < x->p; r++) {
        double work = 0;
        for (uint32_t s = r; s < x->n; s += x->p)
            work += x->m * (pipeline_forward_s(x, s) + pipeline_backward_s(x, s) -
                            hides * (x->stage[s].forward_hidden_s + x->stage[s].backward_hidden_s));
        longest = fmax(longest, head + work + tail);
        head += pipeline_forward_s(x, r) + pipeline_next_s(x, r);
        tail += pipeline_backward_s(x, r) + (r + 1 < x->n ? pipeline_back_s(x, r + 1) : 0);
    }
    return longest;
}

static double looped_s(const struct pipeline_view *x)
{
    if (x->p > MOST_RANKS)
        return looped_plain_s(x);
    struct looped k;
    uint32_t p = x->p, top = (x->v - 1) * p;
    double longest = 0;
    looped_enter(x, &k);
    looped_rest(x, &k);
    for (uint32_t r = p; r-- > 0;) {
        looped_own(x, &k, r);
        double warm = k.turn[r]; /* without a steady state the last forward pass does not wait for a backward pass */
        if (r + 1 < p)
            k.turn[r] = fmax(k.turn[r],
                             k.turn[r + 1] + pipeline_backward_s(x, top + r + 1) + pipeline_back_s(x, top + r + 1));
        else
            k.turn[r] = fmax(k.turn[r], k.enter[r] + pipeline_forward_s(x, top + r));
        k.forward[r] = k.forward[r] > 0 ? k.turn[r] + k.forward[r] : warm;
    }
    for (uint32_t r = 1; r < p; r++)
        k.forward[r] = fmax(k.forward[r],
                            k.forward[r - 1] + pipeline_next_s(x, top + r - 1) + pipeline_forward_s(x, top + r));
    for (uint32_t r = p; r-- > 0;) {
        k.backward[r] += fmax(k.forward[r], k.turn[r]);
        if (r + 1 < p)
            k.backward[r] = fmax(k.backward[r],
                                 k.backward[r + 1] + pipeline_back_s(x, top + r + 1) + pipeline_backward_s(x, top + r));
        longest = fmax(longest, fmax(k.backward[r], k.turn[r] + k.own[r]) + k.rest[r]);
    }
    return longest;
}

/* For any order: the way to a rank, then its own work. */
static double listed_s(const struct pipeline_view *x)
{
    double longest = 0, head = 0;
    for (uint32_t r = 0; r < x->p; r++) {
        double work = 0;
        for (uint32_t j = 0; j < x->v; j++) {
            const struct pipeline_stage *st = &x->stage[x->folds && j ? 2 * x->p - 1 - r : r + j * x->p];
            work += st->forward_s + fmin(st->backward_s, st->input_s + st->weight_s) - st->forward_hidden_s -
                    st->backward_hidden_s;
        }
        longest = fmax(longest, head + x->m * work);
        head += x->skews ? 0 : x->stage[r].forward_s + pipeline_next_s(x, r);
    }
    return longest;
}

static double bound_s(const struct pipeline_view *x)
{
    switch (x->d->schedule) {
    case SCHED_GPIPE:
        return gpipe_s(x);
    case SCHED_1F1B:
    case SCHED_EAGER_1F1B:
    case SCHED_ZB_H1:
    case SCHED_ZB_H2:
        return linear_s(x);
    case SCHED_INTERLEAVED:
    case SCHED_COMBINED_1F1B:
        return looped_s(x);
    case SCHED_ZB_V:
    case SCHED_V_HALF:
    case SCHED_V_MIN:
        return pipeline_folded_s(x);
    case SCHED_DUALPIPE:
    case SCHED_DUALPIPE_V:
        return pipeline_dual_s(x);
    case SCHED_AUTO:
    case SCHED_FILE:
#define SCHEDULE(KIND, word, arguments, stages, traits)
#define ORDERED(KIND, word, arguments, stages, traits) case SCHED_##KIND:
#include "compiler/model/schedule.def"
        return listed_s(x);
    case NSCHEDULES:
        break;
    }
    return 0;
}

double pipeline_bound_s(const struct decision *d, const struct pipeline_times *t)
{
    struct pipeline_view x = pipeline_view_new(d, t);
    return bound_s(&x);
}

double pipeline_longer_s(const struct decision *d, const struct pipeline_times *t, const double *longer_s)
{
    struct pipeline_view x = pipeline_view_new(d, t);
    x.longer_s = longer_s;
    return bound_s(&x);
}
