/* The fullest moment of a pipeline rank: its order of actions, as compiler/schedule writes it, with bytes instead of names.
 *
 * An order is stretches of a few actions that repeat.  What a rank holds changes evenly along a stretch, so its first round
 * and its last one are looked at, and its second one, where the first has made gradients.  Cost: a few nanoseconds for each
 * action that is looked at: tens per rank, and all of them where a schedule is listed. */

#include "compiler/cost/moments.h"

#include "compiler/cost/pipeline_private.h"
#include "compiler/model/actions.h"

#include <math.h>

enum { PAIRS = 4 }; /* stages whose pairs are remembered */
struct order {
    const struct decision *d;
    const struct moments_stage *stages;
    double held, gradients; /* now; of the actions before */
    const struct moments_shards *shards;
    double made, made_uses; /* gradients of shards on their way; uses of parameters that they stay through */
    uint64_t begun[2];      /* stages that have had their first I; their first B or W */
    uint32_t used;          /* the action that used parameters last: 2 * its stage + (is it a B or I) */
    struct moments between; /* of a B or W since then, should they stay for the next use */
    uint32_t left[DECISION_MOST_VPP]; /* by stage: actions to come that make gradients of weights */
    double uses, copies, whole;       /* of gathered parameters, and from host memory, to come; of B or I among these */
    uint64_t pairs, pairs_left;       /* of actions that run together: all of them, those to come */
    uint32_t paired;                  /* bits of those that are known: */
    double (*beside)[PAIRS][2];
    bool copying;           /* there are copies */
    bool ends;              /* last actions of stages find other things than those before */
    struct moments most;
    double enough; /* bytes that tell what is asked for */
};

static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

static inline void look(struct order *x, double bytes)
{
    double all = x->held + x->gradients + bytes;
    if (all > x->most.bytes)
        x->most = (struct moments){all, x->held, x->gradients};
}

/* would that be no more than the fullest moment so far? */
static inline bool is_less(const struct order *x, double bytes)
{
    return x->held + x->gradients + bytes <= x->most.bytes;
}

/* places for parameters while as many uses of them follow as there are places, or more; of actions beside others, from the first
 * such pair to the last */
static inline double places(const struct order *x)
{
    const struct moments_shards *s = x->shards;
    return s->gathered * (s->places + (x->pairs_left && x->pairs_left < x->pairs ? s->places_beside : 0));
}

/* does an action find fewer uses left than there are places, or the last copies back? */
static inline bool runs_out(const struct order *x)
{
    return (x->shards->gathered > 0 && x->uses < x->shards->places) || (x->copying && (x->copies < 3 || x->whole <= 0));
}

/* gradients on their way with those of a block that makes some */
static inline double making(const struct order *x)
{
    double all = x->made + x->shards->own;
    return all < x->shards->most ? all : x->shards->most;
}

/* are gradients on their way waited for by an action that takes gathered parameters? */
static inline bool waits(const struct order *x)
{
    return x->made_uses < INFINITY && x->made > x->shards->part;
}

/* Uses of an action that are one with the last use before: F and B meet in a stage's last block, B and F in its first one. */
static inline bool shared(const struct order *x, uint32_t c, bool back)
{
    const struct moments_stage *s = &x->stages[c];
    bool meets = back || (s->uses[0] <= s->uses[1] && s->uses[1] <= s->uses[0]);
    return x->used == 2 * c + !back ? meets : x->used == 2 * c + back && s->uses[back] <= 1;
}

/* an action that takes gathered parameters; is its first use one with the last one before? */
static inline bool begin_uses(struct order *x, uint32_t c, bool back)
{
    if (x->shards->gathered <= 0)
        return false;
    bool shares = shared(x, c, back);
    if (shares && x->between.bytes > x->most.bytes)
        x->most = x->between;
    x->between.bytes = 0;
    x->used = 2 * c + back;
    return shares;
}

/* behind so many of them */
static inline void end_uses(struct order *x, double uses)
{
    x->made_uses -= uses;
    if (x->made_uses <= 0 && x->made > x->shards->part)
        x->made = x->shards->part;
}

/* an action that takes gathered parameters, and copies back from host memory */
static inline void use(struct order *x, const struct moments_stage *s, bool back)
{
    x->uses -= s->uses[back];
    if (back && x->copying) {
        x->copies -= s->copies;
        x->whole -= s->copies;
    }
}

static void forward(struct order *x, uint32_t c)
{
    const struct moments_stage *s = &x->stages[c];
    bool shares = begin_uses(x, c, false);
    use(x, s, false);
    x->held -= s->sent;
    if (is_less(x, s->forward + places(x) + x->made))
        ;
    else if (runs_out(x) || waits(x))
        look(x, moments_action(s, x->shards, 'F', &(struct moments_at){.made = x->made, .made_uses = x->made_uses + shares,
                                                                      .uses = x->uses - s->passes_on}));
    else
        look(x, s->forward + places(x) + x->made);
    end_uses(x, s->uses[0] - shares);
    x->held += s->keep + s->sent;
}

/* the next step's first forwards while gradients are still needed, should they have to be clipped */
static void look_early(struct order *x)
{
    double held = x->held;
    x->gradients = x->shards->foretold;
    for (uint32_t k = 0; k < x->shards->early; k++) {
        look(x, x->stages[0].forward + places(x));
        x->held += x->stages[0].keep;
    }
    x->gradients = 0;
    x->held = held;
}

static bool had(const struct order *x, uint32_t c, bool weights)
{
    return x->begun[weights] >> c & 1;
}

/* behind a B or W of a stage */
static void note_made(struct order *x, uint32_t c)
{
    const struct moments_stage *s = &x->stages[c];
    bool settled = had(x, c, true);
    x->gradients += settled ? 0 : s->gradients - (had(x, c, false) ? s->early : 0);
    if (!--x->left[c])
        x->gradients += s->after - s->made;
    x->begun[0] |= (uint64_t)1 << c;
    x->begun[1] |= (uint64_t)1 << c;
    x->made = x->shards->then[settled];
    x->made_uses = x->shards->uses;
}

/* B or W, whatever it finds; shares: its first use of parameters is the last one before */
static void look_made(struct order *x, uint32_t c, char kind, bool shares)
{
    const struct moments_stage *s = &x->stages[c];
    const struct moments_shards *shards = x->shards;
    bool last = x->left[c] == 1 && (s->after < s->made || s->after > s->made);
    if (had(x, c, true) && !last && !runs_out(x) && x->made >= shards->then[1] && x->made <= shards->then[1] && shards->gathered <= 0) {
        double rest = x->made + shards->own;
        look(x, kind == 'W' ? s->weight + rest : moments_backward(&s->backward, x->made, rest, 0));
        look(x, (kind == 'W' ? s->weight_end : s->backward_end) + rest);
        return;
    }
    double most = kind == 'W' ? larger(s->weight, s->weight_end) : larger(moments_backward(&s->backward, 0, 0, 0), s->backward_end);
    if (had(x, c, true) && !last && !x->copying && is_less(x, most + places(x) + shards->most))
        return;
    const struct moments_at at = {had(x, c, true), had(x, c, false), last, x->made, x->made_uses + shares, x->uses, x->copies, x->whole > 0, false};
    double bytes = moments_action(s, shards, kind, &at);
    look(x, bytes);
    if (shards->gathered <= 0)
        return;
    bytes = kind == 'B' ? moments_front(s, shards, kind, &at) : bytes + (x->uses >= shards->places ? shards->gathered : 0);
    if (x->held + x->gradients + bytes > x->between.bytes)
        x->between = (struct moments){x->held + x->gradients + bytes, x->held, x->gradients};
}

static void backward(struct order *x, uint32_t c)
{
    const struct moments_stage *s = &x->stages[c];
    x->held -= s->keep + s->received;
    use(x, s, true);
    look_made(x, c, 'B', begin_uses(x, c, true));
    x->held += s->received;
    note_made(x, c);
}

static void input(struct order *x, uint32_t c)
{
    const struct moments_stage *s = &x->stages[c];
    bool early = had(x, c, false), shares = begin_uses(x, c, true);
    x->held -= s->keep + s->received;
    use(x, s, true);
    if (early && !x->copying && is_less(x, s->input + places(x) + x->made))
        ;
    else if (early && !runs_out(x) && !waits(x))
        look(x, s->input + places(x) + x->made);
    else
        look(x, moments_action(s, x->shards, 'I', &(struct moments_at){had(x, c, true), early, .made = x->made,
                                                                      .made_uses = x->made_uses + shares,
                                                                      .uses = x->uses, .copies = x->copies, .whole = x->whole > 0}));
    end_uses(x, s->uses[1] - shares);
    x->gradients += early ? 0 : s->early;
    x->begun[0] |= (uint64_t)1 << c;
    x->held += s->left + s->received;
}

static void weight(struct order *x, uint32_t c)
{
    const struct moments_stage *s = &x->stages[c];
    x->held -= s->left;
    x->copies -= s->copies;
    look_made(x, c, 'W', false);
    note_made(x, c);
}

/* moments_beside(), or more where even that is less than the fullest moment so far; kept for the next pair of the same stages */
static double beside(struct order *x, uint32_t f, uint32_t b, bool first, double most)
{
    uint32_t bit = f < PAIRS && b < PAIRS ? (uint32_t)1 << (2 * (PAIRS * f + b) + first) : 0;
    if (x->paired & bit)
        return x->beside[f][b][first];
    const struct moments_stage *s = &x->stages[b];
    double all = x->stages[f].forward + moments_backward(&s->backward, 0, 0, 0) + (first ? s->gradients : 0);
    if (x->held + x->gradients + all + most <= x->most.bytes)
        return all;
    double bytes = moments_beside(&x->stages[f], s, first);
    if (bit)
        x->beside[f][b][first] = bytes;
    x->paired |= bit;
    return bytes;
}

/* a forward beside a backward, at equal shares of their time */
static void both(struct order *x, uint32_t f, uint32_t b)
{
    const struct moments_stage *s = &x->stages[b];
    const struct moments_shards *shards = x->shards;
    bool first = !had(x, b, true);
    x->held -= s->keep + s->received + x->stages[f].sent;
    use(x, &x->stages[f], false);
    use(x, s, true);
    double most = shards->gathered * (shards->places + shards->places_beside);
    most += x->begun[1] ? making(x) : shards->most;
    double bytes = beside(x, f, b, first, most) - (first && had(x, b, false) ? s->early : 0);
    look(x, bytes + most);
    x->used = UINT32_MAX;
    note_made(x, b);
    x->pairs_left -= x->pairs_left > 0;
    x->held += x->stages[f].keep + x->stages[f].sent + s->received;
}

/* ---- stretches ---- */

/* a round of a stretch: actions of one kind after another, with the stages that they are of */
struct action_of {
    char kind; /* F B I W, or P: a pair of F and B */
    uint32_t stage, other;
};

static void round_of(struct order *x, const struct action_of *a, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        switch (a[k].kind) {
        case 'F':
            forward(x, a[k].stage);
            break;
        case 'B':
            backward(x, a[k].stage);
            break;
        case 'I':
            input(x, a[k].stage);
            break;
        case 'W':
            weight(x, a[k].stage);
            break;
        case 'P':
            both(x, a[k].stage, a[k].other);
            break;
        }
}

/* n times an action that is not looked at */
static void skip(struct order *x, char kind, uint32_t stage, uint64_t times)
{
    const struct moments_stage *s = &x->stages[stage];
    x->uses -= kind == 'W' ? 0 : (double)times * s->uses[kind != 'F'];
    x->copies -= kind == 'F' ? 0 : (double)times * s->copies;
    x->whole -= kind == 'F' || kind == 'W' ? 0 : (double)times * s->copies;
    if (kind == 'B' || kind == 'W')
        x->left[stage] -= (uint32_t)times;
}

static void skip_rounds(struct order *x, const struct action_of *a, uint32_t n, uint64_t times)
{
    bool counts = times && (x->ends || x->shards->gathered > 0);
    for (uint32_t k = 0; k < n && counts; k++)
        if (a[k].kind == 'P') {
            skip(x, 'F', a[k].stage, times);
            skip(x, 'B', a[k].other, times);
            x->pairs_left -= x->pairs_left < times ? x->pairs_left : times;
        } else {
            skip(x, a[k].kind, a[k].stage, times);
        }
}

static bool is_told(const struct order *x)
{
    return x->most.bytes > x->enough;
}

/* its first round, its second one where the first has made gradients, and its last ones */
static void stretch(struct order *x, uint64_t times, const struct action_of *a, uint32_t n)
{
    if (is_told(x))
        return;
    double before = x->held, gradients = x->gradients, made = x->made;
    if (times)
        round_of(x, a, n);
    double change = x->held - before;
    uint64_t left = times ? times - 1 : 0;
    if (left && (x->gradients < gradients || x->gradients > gradients || x->made < made || x->made > made)) {
        round_of(x, a, n);
        left--;
    }
    uint64_t last = x->shards->gathered > 0 ? (uint64_t)x->shards->places : change > 0 || x->ends; /* that may be like no other */
    if (left > last) {
        skip_rounds(x, a, n, left - last);
        x->held += change * (double)(left - last);
        left = last;
    }
    for (; left; left--)
        round_of(x, a, n);
}
#define STRETCH(x, times, ...) \
    stretch(x, times, (const struct action_of[]){__VA_ARGS__}, sizeof(const struct action_of[]){__VA_ARGS__} / sizeof(struct action_of))

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- one stage ---- */

/* `ahead` forwards, then one of each in turn */
static void run_1f1b(struct order *x, uint32_t ahead)
{
    uint32_t m = x->d->microbatches, w = least(ahead, m);
    STRETCH(x, w, {'F', 0, 0});
    STRETCH(x, m - w, {'F', 0, 0}, {'B', 0, 0});
    STRETCH(x, w, {'B', 0, 0});
}

/* the first I has `ahead` forwards before it, W comes `lag` microbatches after I; forward: behind them in a round */
static void run_zb_h(struct order *x, uint32_t ahead, uint32_t lag, bool behind)
{
    uint32_t m = x->d->microbatches, w = least(ahead, m), forwards = m - w, cut = least(lag, m);
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
        stretch(x, end - k, round, n);
    }
    STRETCH(x, cut, {'W', 0, 0});
}

/* ---- looped stages ---- */

/* a place in the order of forwards: the chunk, how many more of it come in a row, and the microbatches of rounds before */
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
    uint64_t all = (uint64_t)m * v, w = 2 * (uint64_t)(p - 1 - r) + (uint64_t)(v - 1) * group + pairs, f = 0, b = 0, more;
    uint64_t round = m % group ? 0 : (uint64_t)group * v; /* every round is like the one before */
    struct looped forward = {.left = round_size(x, group, 0)}, backward = forward;
    w = w < all ? w : all;
    x->pairs = x->pairs_left = pairs ? all - w : 0;
    for (; f < w && !is_told(x); f += more) {
        uint32_t c = forward.chunk;
        more = forward.left < w - f ? forward.left : w - f;
        STRETCH(x, more, {'F', c, 0});
        advance(x, group, &forward, more);
    }
    while (b < all && !is_told(x)) {
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
        if (round && !backward.chunk && backward.left == group && f + 2 * round <= all) {
            uint64_t rounds = (all - f) / round - 1;
            f += rounds * round;
            b += rounds * round;
            forward.base += rounds * group;
            backward.base += rounds * group;
            for (uint32_t c = 0; c < v; c++)
                skip_rounds(x, &(struct action_of){pairs ? 'P' : 'B', c, c}, 1, rounds * group);
            for (uint32_t c = 0; c < v && !pairs; c++)
                skip_rounds(x, &(struct action_of){'F', c, c}, 1, rounds * group);
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
        round_of(x->x, &(struct action_of){kind, c, 0}, 1);
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
        if (rounds == 3 && x.f[0] + 1 < all && m == all) { /* every round is like the one before */
            uint32_t more = all - x.f[0] - 1;
            for (uint32_t c = 0; c < 2; c++) {
                x.f[c] += more;
                x.i[c] += more;
                x.w[c] += more;
                skip_rounds(o, (const struct action_of[]){{'F', c, 0}, {'I', c, 0}, {'W', c, 0}}, 3, more);
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

/* the block of six slots again and again, for microbatches that there are */
static void run_block(struct order *x, uint32_t r)
{
    static const struct action_of kinds[] = {[SLOT_F] = {'F', 0, 0},   [SLOT_F2] = {'F', 1, 0}, [SLOT_I2] = {'I', 1, 0},
                                             [SLOT_W2] = {'W', 1, 0}, [SLOT_I] = {'I', 0, 0},  [SLOT_W] = {'W', 0, 0}};
    uint32_t at[NSLOTS], by_time[6], m = x->d->microbatches, last = 0;
    pipeline_block(x->d->schedule, x->d->pp, r, at);
    for (uint32_t k = 0; k < NSLOTS; k++) {
        by_time[at[k] % 6] = k;
        last = at[k] / 6 > last ? at[k] / 6 : last;
    }
    for (uint32_t cycle = 0; cycle < m + last + 1; cycle++) {
        if (cycle == last + 2 && m > cycle + 1) { /* every cycle is like the one before, until forwards end */
            skip_rounds(x, kinds, NSLOTS, m - 1 - cycle);
            cycle = m - 1;
        }
        for (uint32_t k = 0; k < 6; k++) {
            uint32_t slot = by_time[k], first = at[slot] / 6;
            if (cycle >= first && cycle - first < m)
                round_of(x, &kinds[slot], 1);
        }
    }
}

/* ---- both directions ---- */

/* phases as in compiler/schedule/dualpipe.c; slot 0: the stage whose entry is nearer */
static void run_dual(struct order *x, uint32_t h, uint32_t n, uint32_t all, uint32_t near)
{
    uint32_t outer = n - h - 1, far = 1 - near, steady = all + h + 1 - 2 * n, late = 0;
    x->pairs = x->pairs_left = 2 * (uint64_t)steady - (steady && h == n - 1) + outer;
    x->copies += (outer + (h + 2) / 2) * x->stages[near].copies + (outer + (h + 1) / 2) * x->stages[far].copies; /* of halves */
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
            backward(x, slot);
        } else {
            input(x, slot);
            left[late++ % sizeof left] = (char)slot;
        }
    }
    uint32_t done = 0;
    for (uint32_t k = 0; k < outer; k++) {
        weight(x, (uint32_t)left[done++ % sizeof left]);
        input(x, near);
        left[late++ % sizeof left] = (char)near;
    }
    while (done < late)
        weight(x, (uint32_t)left[done++ % sizeof left]);
}

/* ---- all ---- */

static void run_listed(struct order *x, const struct schedule *s, uint32_t r)
{
    for (uint32_t k = 0; k < s->nactions[r]; k++) {
        const struct action *a = &s->actions[r][k];
        struct action_of own = {a->kind, a->stage / x->d->pp, 0};
        round_of(x, &own, a->kind != 'O');
    }
}

/* what is to come */
static void begin_order(struct order *x, uint32_t rank)
{
    const struct decision *d = x->d;
    bool dual = d->schedule == SCHED_DUALPIPE;
    uint32_t m = dual ? d->microbatches / 2 : d->microbatches, halves = pipeline_splits(d->schedule) && !decision_pairs(d->schedule);
    for (uint32_t c = 0; c < (dual ? 2 : d->vpp) && !d->listed; c++) {
        x->left[c] = m;
        x->uses += m * (x->stages[c].uses[0] + x->stages[c].uses[1]);
        x->copies += (halves ? 2 * m : m) * x->stages[c].copies;
        x->whole += m * x->stages[c].copies;
    }
    for (uint32_t k = 0; d->listed && k < d->listed->nactions[rank]; k++) {
        const struct action *a = &d->listed->actions[rank][k];
        const struct moments_stage *s = &x->stages[a->stage / d->pp];
        if (a->kind == 'O')
            continue;
        x->left[a->stage / d->pp] += a->kind == 'B' || a->kind == 'W';
        x->uses += a->kind == 'W' ? 0 : s->uses[a->kind != 'F'];
        x->copies += a->kind == 'F' ? 0 : s->copies;
        x->whole += a->kind == 'F' || a->kind == 'W' ? 0 : s->copies;
    }
    x->copying = x->ends = x->copies > 0;
    for (uint32_t c = 0; c < (dual ? 2 : d->vpp); c++) {
        const struct moments_stage *s = &x->stages[c];
        x->held += s->sent + s->received;
        x->ends |= s->after < s->made || s->after > s->made;
    }
}

struct moments pipeline_moments(const struct decision *d, uint32_t rank, const struct moments_stage *stages,
                                const struct moments_shards *shards, double enough)
{
    double known[PAIRS][PAIRS][2];
    struct order x = {.d = d, .stages = stages, .shards = shards, .beside = known, .used = UINT32_MAX, .enough = enough};
    uint32_t p = d->pp, m = d->microbatches, other = p - 1 - rank, group = d->schedule_group ? d->schedule_group : p;
    begin_order(&x, rank);
    look_early(&x);
    switch (d->schedule) {
    case SCHED_AUTO:
    case SCHED_FILE:
        if (d->listed)
            run_listed(&x, d->listed, rank);
        else
            for (uint32_t c = 0; c < d->vpp; c++)
                STRETCH(&x, m, {'F', c, 0});
        break;
    case SCHED_GPIPE:
    case NSCHEDULES:
        run_1f1b(&x, m);
        break;
    case SCHED_1F1B:
        run_1f1b(&x, other);
        break;
    case SCHED_EAGER_1F1B:
        run_1f1b(&x, 2 * other);
        break;
    case SCHED_ZB_H1:
        run_zb_h(&x, other, rank, false);
        break;
    case SCHED_ZB_H2:
        run_zb_h(&x, 2 * (p - rank) - 1, 2 * rank, true);
        break;
    case SCHED_INTERLEAVED:
    case SCHED_COMBINED_1F1B:
        run_looped(&x, rank, group, d->schedule == SCHED_COMBINED_1F1B);
        break;
    case SCHED_ZB_V:
        run_zb_v(&x, rank);
        break;
    case SCHED_V_HALF:
    case SCHED_V_MIN:
        run_block(&x, rank);
        break;
    case SCHED_DUALPIPE_V:
        run_dual(&x, rank, p, m, 0);
        break;
    case SCHED_DUALPIPE:
        run_dual(&x, rank < other ? rank : other, p / 2, m / 2, rank < other ? 0 : 1);
        break;
    }
    return x.most;
}
