/* Lower bounds for the pipelines in which every rank serves two stages: V-shaped ones and DualPipe.
 *
 * For ZB-V, V-Half and V-Min eight events per rank r are followed: the starts of F and I of the first and of the
 * last microbatch on both its stages, r and 2p-1-r.  An event comes after the same one on the neighbour that passes
 * the microbatch on, and after every earlier event of its own rank plus what the rank does in between: its order is
 * known, and so is the number of each of its six kinds of action before any event.  The step ends after every event
 * plus the work that the rank has left; for V-Half and V-Min also after whole cycles of their block, over the
 * following ranks.  All of these are paths through the schedule's graph.
 *
 * For DualPipe and DualPipeV the same with two events: the way to a rank's first backward pass, then everything that
 * its order still has, less what pairs hide, then the last microbatch's way back to the first stage. */

#include "compiler/cost/pipeline_private.h"

#include <math.h>

/* --- V-Half and V-Min: the block --- */

/* slots from a rank to the next (down), in both passes; from a rank to the previous one (up); at each turn */
struct block {
    uint32_t down, up, turn[3];
};

static const struct block *block_of(enum schedule_kind k, uint32_t p)
{
    static const struct block half_even = {1, 2, {5, 1, 1}}, half_odd = {1, 2, {2, 1, 4}};
    static const struct block min = {1, 1, {1, 1, 1}}, min_thirds = {1, 1, {1, 3, 1}};
    if (k == SCHED_V_HALF)
        return p % 2 ? &half_odd : &half_even;
    return p % 3 ? &min : &min_thirds;
}

/* The first slot after `after` that is free modulo six. */
static uint32_t free_slot(unsigned *used, uint32_t after)
{
    uint32_t at = after + 1;
    while (*used & 1u << at % 6)
        at++;
    *used |= 1u << at % 6;
    return at;
}

void pipeline_block(enum schedule_kind k, uint32_t nranks, uint32_t rank, uint32_t at[NSLOTS])
{
    const struct block *b = block_of(k, nranks);
    uint32_t way = (nranks - 1) * (b->down + b->up), back = nranks - 1 - rank;
    at[SLOT_F] = b->down * rank;
    at[SLOT_F2] = b->down * (nranks - 1) + b->turn[0] + b->up * back;
    at[SLOT_I2] = way + b->turn[0] + b->turn[1] + b->down * rank;
    at[SLOT_I] = way + b->turn[0] + b->turn[1] + b->down * (nranks - 1) + b->turn[2] + b->up * back;
    unsigned used = 1u << at[SLOT_F] % 6 | 1u << at[SLOT_F2] % 6 | 1u << at[SLOT_I2] % 6 | 1u << at[SLOT_I] % 6;
    at[SLOT_W2] = free_slot(&used, at[SLOT_I2]);
    at[SLOT_W] = free_slot(&used, at[SLOT_I]);
}

/* --- actions of each kind on a rank before F or I of microbatch i --- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void count_block(const struct pipeline_view *x, const uint32_t *at, enum pipeline_slot event, uint32_t i,
                        uint32_t *count)
{
    uint64_t now = at[event] + 6 * (uint64_t)i;
    for (int k = 0; k < NSLOTS; k++) {
        uint64_t n = now > at[k] ? (now - at[k] + 5) / 6 : 0;
        count[k] = n < x->m ? (uint32_t)n : x->m;
    }
}

/* Follows the order of zbv.c, phase by phase, for max(m, 2p - 1) microbatches; those beyond m are left out of every
 * count. */
static void count_zb_v(const struct pipeline_view *x, uint32_t r, enum pipeline_slot event, uint32_t i, uint32_t *count)
{
    uint32_t p = x->p, all = x->m > 2 * p - 1 ? x->m : 2 * p - 1, lead = 2 * (p - r) - 1, k;
    enum { NOTHING, WARM, FIRST, STEADY, DRAIN, LAST } phase = NOTHING;
    uint32_t f = 0, f2 = 0, i1 = 0, w1 = 0, i2 = 0, w2 = 0; /* f i1 w1: first stage; f2 i2 w2: second */
    switch (event) {
    case SLOT_F:
        k = i < lead ? 0 : i < lead + r ? i - lead : i - lead - r;
        phase = i < lead ? NOTHING : i < lead + r ? WARM : STEADY;
        f = i;
        f2 = phase == WARM ? k + 1 : p + k;
        i1 = w1 = k;
        i2 = w2 = p - r + k;
        break;
    case SLOT_F2:
        phase = i < r ? WARM : i < p ? FIRST : STEADY;
        k = phase == WARM ? i : phase == FIRST ? i - r : i - p;
        f = phase == WARM ? lead + i : phase == FIRST ? lead + r : lead + r + k + 1;
        f2 = i;
        i1 = w1 = k + 1;
        i2 = w2 = phase == FIRST ? k : p - r + k;
        break;
    case SLOT_I2:
        phase = i < p - r ? FIRST : i < all - r ? STEADY : DRAIN;
        k = phase == FIRST ? i : phase == STEADY ? i - (p - r) : i - (all - r);
        f = phase == FIRST ? lead + r : phase == STEADY ? lead + r + k + 1 : all;
        f2 = phase == FIRST ? r + i + 1 : phase == STEADY ? p + k + 1 : all;
        i1 = phase == DRAIN ? all - p + k + 1 : k + 1;
        w1 = phase == DRAIN ? all - p : k + 1;
        i2 = i;
        w2 = phase == DRAIN ? all - r : i;
        break;
    case SLOT_I:
        phase = i < all - p ? STEADY : i < all - p + r ? DRAIN : LAST;
        k = phase == STEADY ? i : phase == DRAIN ? i - (all - p) : i - (all - p + r);
        f = phase == STEADY ? lead + r + i + 1 : all;
        f2 = phase == STEADY ? p + i : all;
        i1 = i;
        w1 = phase == STEADY ? i : phase == DRAIN ? all - p : all - p + k;
        i2 = phase == STEADY ? p - r + i : phase == DRAIN ? all - r + k : all;
        w2 = phase == STEADY ? p - r + i : all - r;
        break;
    case SLOT_W:
    case SLOT_W2:
    case NSLOTS:
        break;
    }
    bool none = phase == NOTHING, backs = phase != WARM && !none, first = phase != FIRST && backs;
    count[SLOT_F] = least(f, x->m);
    count[SLOT_F2] = none ? 0 : least(f2, x->m);
    count[SLOT_I2] = backs ? least(i2, x->m) : 0;
    count[SLOT_W2] = backs ? least(w2, x->m) : 0;
    count[SLOT_I] = first ? least(i1, x->m) : 0;
    count[SLOT_W] = first ? least(w1, x->m) : 0;
}

void pipeline_folded_count(const struct pipeline_view *x, uint32_t r, enum pipeline_slot event, uint32_t i,
                           uint32_t count[NSLOTS])
{
    uint32_t at[NSLOTS];
    if (x->d->schedule == SCHED_ZB_V) {
        count_zb_v(x, r, event, i, count);
        return;
    }
    pipeline_block(x->d->schedule, x->p, r, at);
    count_block(x, at, event, i, count);
}

/* --- events --- */

/* in the order in which a microbatch meets them, for the first and for the last one */
enum event { FIRST_F, FIRST_F2, FIRST_I2, FIRST_I, LAST_F, LAST_F2, LAST_I2, LAST_I, NEVENTS };

struct folded {
    double takes[NSLOTS];      /* seconds of one action of each kind */
    double all_s;              /* all work of the rank */
    double before[NEVENTS];    /* work before each event in the rank's order */
    uint32_t rank_of[NEVENTS]; /* number of the rank's actions before it */
    double at[NEVENTS];        /* lower bound of its time */
};

static enum pipeline_slot slot_of(enum event e)
{
    static const enum pipeline_slot slots[] = {SLOT_F, SLOT_F2, SLOT_I2, SLOT_I};
    return slots[e % 4];
}

static void fold_rank(const struct pipeline_view *x, uint32_t r, struct folded *k)
{
    uint32_t o = 2 * x->p - 1 - r, slots[NSLOTS];
    k->takes[SLOT_F] = pipeline_forward_s(x, r);
    k->takes[SLOT_F2] = pipeline_forward_s(x, o);
    k->takes[SLOT_I] = pipeline_backward_s(x, r);
    k->takes[SLOT_I2] = pipeline_backward_s(x, o);
    k->takes[SLOT_W] = pipeline_weight_s(x, r);
    k->takes[SLOT_W2] = pipeline_weight_s(x, o);
    k->all_s = 0;
    for (int n = 0; n < NSLOTS; n++)
        k->all_s += x->m * k->takes[n];
    if (x->d->schedule != SCHED_ZB_V)
        pipeline_block(x->d->schedule, x->p, r, slots);
    for (int e = 0; e < NEVENTS; e++) {
        uint32_t count[NSLOTS], microbatch = e < LAST_F ? 0 : x->m - 1;
        if (x->d->schedule == SCHED_ZB_V)
            count_zb_v(x, r, slot_of((enum event)e), microbatch, count);
        else
            count_block(x, slots, slot_of((enum event)e), microbatch, count);
        k->before[e] = k->at[e] = 0;
        k->rank_of[e] = 0;
        for (int n = 0; n < NSLOTS; n++) {
            k->before[e] += count[n] * k->takes[n];
            k->rank_of[e] += count[n];
        }
    }
}

/* The time at which the input of event e arrives on rank r. */
static double came_s(const struct pipeline_view *x, const struct folded *ranks, uint32_t r, enum event e)
{
    uint32_t p = x->p, o = 2 * p - 1 - r;
    enum event first = e < LAST_F ? FIRST_F : LAST_F;
    switch (e % 4) {
    case FIRST_F:
        return r == 0 ? 0 : ranks[r - 1].at[e] + ranks[r - 1].takes[SLOT_F] + pipeline_next_s(x, r - 1);
    case FIRST_F2:
        if (r == p - 1)
            return ranks[r].at[first + FIRST_F] + ranks[r].takes[SLOT_F];
        return ranks[r + 1].at[e] + ranks[r + 1].takes[SLOT_F2] + pipeline_next_s(x, o - 1);
    case FIRST_I2:
        if (r == 0)
            return ranks[r].at[first + FIRST_F2] + ranks[r].takes[SLOT_F2];
        return ranks[r - 1].at[e] + ranks[r - 1].takes[SLOT_I2] + pipeline_back_s(x, o + 1);
    case FIRST_I:
        if (r == p - 1)
            return ranks[r].at[first + FIRST_I2] + ranks[r].takes[SLOT_I2];
        return ranks[r + 1].at[e] + ranks[r + 1].takes[SLOT_I] + pipeline_back_s(x, r + 1);
    }
    return 0;
}

static void place_event(const struct pipeline_view *x, struct folded *ranks, uint32_t r, enum event e)
{
    struct folded *k = &ranks[r];
    double at = fmax(k->at[e], came_s(x, ranks, r, e));
    for (int n = 0; n < NEVENTS; n++)
        if (k->rank_of[n] < k->rank_of[e])
            at = fmax(at, k->at[n] + k->before[e] - k->before[n]);
    k->at[e] = at;
}

/* Seconds of a microbatch's way from a rank's first stage to its second, beyond that one and back, and home. */
struct ways {
    double forward, backward;           /* over the stages between the rank's two, in either direction */
    double last_forward, last_backward; /* over the stages after its second one */
};

static struct ways ways_of_first(const struct pipeline_view *x)
{
    struct ways w = {0};
    for (uint32_t s = 0; s + 1 < 2 * x->p; s++) {
        w.forward += pipeline_forward_s(x, s) + pipeline_next_s(x, s);
        w.backward += pipeline_backward_s(x, s + 1) + pipeline_back_s(x, s + 1);
    }
    return w;
}

/* From those of rank r to those of rank r + 1. */
static void ways_of_next(const struct pipeline_view *x, uint32_t r, struct ways *w)
{
    uint32_t o = 2 * x->p - 1 - r;
    w->forward -= pipeline_forward_s(x, r) + pipeline_next_s(x, r) + pipeline_forward_s(x, o - 1) +
                  pipeline_next_s(x, o - 1);
    w->backward -= pipeline_backward_s(x, o) + pipeline_back_s(x, o) + pipeline_backward_s(x, r + 1) +
                   pipeline_back_s(x, r + 1);
    w->last_forward += pipeline_next_s(x, o - 1) + pipeline_forward_s(x, o);
    w->last_backward += pipeline_backward_s(x, o) + pipeline_back_s(x, o);
}

/* From a rank's first action to its last, for steps that follow each other rank by rank: its own order, and the way
 * of the first and of the last microbatch to its next action on the rank. */
static double skewed_s(const struct pipeline_view *x)
{
    struct ways w = ways_of_first(x);
    double longest = 0;
    for (uint32_t r = 0; r < x->p; r++) {
        struct folded k;
        fold_rank(x, r, &k);
        /* starts of F F2 I2 I of one microbatch, in that order */
        const double way[] = {0, w.forward, k.takes[SLOT_F2] + w.last_forward + w.last_backward, w.backward};
        for (int e = 1; e < NEVENTS; e++) {
            double at = e % 4 ? k.at[e - 1] + way[e % 4] : 0;
            for (int n = 0; n < NEVENTS; n++)
                if (k.rank_of[n] < k.rank_of[e])
                    at = fmax(at, k.at[n] + k.before[e] - k.before[n]);
            k.at[e] = at;
        }
        for (int e = 0; e < NEVENTS; e++)
            longest = fmax(longest, k.at[e] + k.all_s - k.before[e]);
        if (r + 1 < x->p)
            ways_of_next(x, r, &w);
    }
    return longest;
}

/* Seconds of a rank's work in `count` actions of each kind. */
static double work_s(const struct folded *k, const uint32_t *count)
{
    double work = 0;
    for (int n = 0; n < NSLOTS; n++)
        work += count[n] * k->takes[n];
    return work;
}

/* Repeated blocks: action X of a microbatch, its way over the following ranks to Y, the rank's own order from Y to a
 * later microbatch's X, and so on. way: seconds from X to Y.  Counts whole cycles where the block is complete, and
 * the rank's own work around them. */
static double cycles_s(const struct pipeline_view *x, const struct folded *k, const uint32_t *at, enum event from,
                       enum pipeline_slot to, double way)
{
    enum pipeline_slot slot = slot_of(from);
    uint32_t most = 0, last = at[SLOT_F] + 6 * x->m; /* forward passes of the first stage end */
    for (int n = 0; n < NSLOTS; n++)
        most = at[n] > most ? at[n] : most;
    uint32_t first = (most - at[slot] + 5) / 6, advance = (at[to] - at[slot]) / 6 + 1;
    if (x->m > UINT32_MAX / 16 || at[slot] + 6 * (first + advance) > last)
        return 0;
    uint32_t times = ((last - at[slot]) / 6 - first) / advance, start[NSLOTS], back[NSLOTS], next[NSLOTS], end[NSLOTS];
    count_block(x, at, slot, first, start);
    count_block(x, at, to, first, back);
    count_block(x, at, slot, first + advance, next);
    count_block(x, at, slot, first + times * advance, end);
    double cycle = way + work_s(k, next) - work_s(k, back);
    return k->at[from] + work_s(k, start) - k->before[from] + times * cycle + k->all_s - work_s(k, end);
}

static double all_cycles_s(const struct pipeline_view *x, const struct folded *ranks)
{
    struct ways w = ways_of_first(x);
    double longest = 0;
    for (uint32_t r = 0; r < x->p; r++) {
        const struct folded *k = &ranks[r];
        uint32_t at[NSLOTS];
        pipeline_block(x->d->schedule, x->p, r, at);
        double turn = k->takes[SLOT_F2] + w.last_forward + w.last_backward;
        longest = fmax(longest, cycles_s(x, k, at, FIRST_F, SLOT_F2, w.forward));
        longest = fmax(longest, cycles_s(x, k, at, FIRST_F, SLOT_I, w.forward + turn + w.backward));
        longest = fmax(longest, cycles_s(x, k, at, FIRST_F2, SLOT_I2, turn));
        longest = fmax(longest, cycles_s(x, k, at, FIRST_I2, SLOT_I, w.backward));
        if (r + 1 < x->p)
            ways_of_next(x, r, &w);
    }
    return longest;
}

double pipeline_folded_s(const struct pipeline_view *x)
{
    if (x->skews)
        return skewed_s(x);
    struct folded ranks[MOST_RANKS];
    double longest = 0, head = 0;
    for (uint32_t r = 0; r < x->p; r++) {
        struct folded *k = &ranks[r < MOST_RANKS ? r : 0];
        fold_rank(x, r, k);
        longest = fmax(longest, head + k->all_s);
        head += k->takes[SLOT_F] + pipeline_next_s(x, r);
    }
    if (x->d->schedule == SCHED_ZB_V) /* it repeats no block, and its ranks are hardly ever idle */
        return fmax(longest, skewed_s(x));
    if (x->p > MOST_RANKS)
        return longest;
    /* with few microbatches the last forward passes come before the first backward passes: then a second sweep finds
     * new bounds */
    for (int sweep = x->m > 2 * x->p ? 1 : 0; sweep < 2; sweep++)
        for (int e = 0; e < NEVENTS; e++)
            for (uint32_t k = 0; k < x->p; k++)
                place_event(x, ranks, e % 2 ? x->p - 1 - k : k, (enum event)e);
    for (uint32_t r = 0; r < x->p; r++)
        for (int e = 0; e < NEVENTS; e++)
            longest = fmax(longest, ranks[r].at[e] + ranks[r].all_s - ranks[r].before[e]);
    return fmax(longest, all_cycles_s(x, ranks));
}

/* --- DualPipe and DualPipeV --- */

/* Counts of dualpipe.c's phases for distance h from the entry; near and far: the rank's two stages. */
struct dual {
    double rest_s;  /* seconds from the first backward pass to the rank's last action */
    double left_s;  /* of these, at most for weight gradients after the last backward pass of the near stage */
    double start_s; /* seconds of work before the first backward pass */
};

static struct dual dual_rank(const struct pipeline_view *x, uint32_t h, uint32_t n, uint32_t m)
{
    uint32_t near = h, far = 2 * n - 1 - h, outer = n - h - 1, steady = m + h + 1 > 2 * n ? m + h + 1 - 2 * n : 0;
    bool middle = outer == 0;
    double f = pipeline_forward_s(x, near), f2 = pipeline_forward_s(x, far);
    double b = pipeline_fused_s(x, near), b2 = pipeline_fused_s(x, far);
    double split = pipeline_backward_s(x, near) + pipeline_weight_s(x, near);
    double split2 = pipeline_backward_s(x, far) + pipeline_weight_s(x, far);
    uint32_t early = 2 * n - h - 1 + (middle && steady ? 1 : 0); /* forward passes of the near stage before the first
                                                                  * backward pass */
    uint32_t pairs = steady - (middle && steady ? 1 : 0), pairs2 = m - n;
    uint32_t fused = steady + outer + (h + 1) / 2, fused2 = steady + outer + h / 2 + 1;
    const struct pipeline_stage *a = &x->stage[near], *z = &x->stage[far];
    double hidden = pairs * (a->forward_hidden_s + z->backward_hidden_s) +
                    pairs2 * (z->forward_hidden_s + a->backward_hidden_s);
    struct dual k = {.start_s = early * f + (h + 1) * f2,
                     .left_s = (h + 1) * fmax(pipeline_weight_s(x, near), pipeline_weight_s(x, far))};
    k.rest_s = m * (f + f2) - k.start_s + fused * b + (m - fused) * split + fused2 * b2 + (m - fused2) * split2 -
               hidden;
    return k;
}

double pipeline_dual_s(const struct pipeline_view *x)
{
    uint32_t n = x->folds ? x->p : x->p / 2, m = x->folds ? x->m : x->m / 2, last = 2 * n - 1;
    double longest = 0, head = 0, way = 0, down = 0, tail = 0;
    for (uint32_t s = 0; s <= last; s++)
        way += pipeline_forward_s(x, s) + pipeline_next_s(x, s);
    for (uint32_t h = 0; h < n; h++) {
        struct dual k = dual_rank(x, h, n, m);
        if (x->longer_s) /* the mirror rank has the same stages */
            k.rest_s += x->m * (x->folds ? x->longer_s[h] : fmax(x->longer_s[h], x->longer_s[x->p - 1 - h]));
        double first = fmax(head + k.start_s, way + down);
        double end = first + k.rest_s;
        longest = fmax(longest, fmax(end, end - k.left_s + tail));
        head += pipeline_forward_s(x, h) + pipeline_next_s(x, h);
        down += fmin(pipeline_backward_s(x, last - h), pipeline_fused_s(x, last - h)) + pipeline_back_s(x, last - h);
        tail += fmin(pipeline_backward_s(x, h), pipeline_fused_s(x, h)) + pipeline_back_s(x, h + 1);
    }
    return longest;
}
