/* The peak memory of a pipeline rank: follows its order of actions, as compiler/schedule writes it (orders.c), in
 * bytes.
 *
 * An order consists of stretches of a few actions that repeat.  What a rank holds changes linearly along a stretch,
 * so its first and its last round are looked at, and the second one where the first has made gradients.  Cost: a few
 * nanoseconds for each action that is looked at: tens per rank, but all of them where a schedule is a list. */

#include "compiler/cost/moments_private.h"

#include "compiler/cost/pipeline_private.h"
#include "compiler/model/actions.h"

#include <math.h>

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

/* Would that be at most the peak so far? */
static inline bool is_less(const struct order *x, double bytes)
{
    return x->held + x->gradients + bytes <= x->most.bytes;
}

/* Bytes of the places for gathered parameters, if at least as many uses follow as there are places; from the first
 * pair of actions to the last, including the places of the pairs' other actions. */
static inline double places(const struct order *x)
{
    const struct moments_shards *s = x->shards;
    return s->gathered * (s->places + (x->pairs_left && x->pairs_left < x->pairs ? s->places_beside : 0));
}

/* Bytes that the places of the pairs' other actions hold between two pairs: the next one's first parameters, which
 * were prefetched. */
static inline double between_pairs(const struct order *x)
{
    const struct moments_shards *s = x->shards;
    return x->pairs_left && x->pairs_left < x->pairs && s->gathered > 0 ? s->gathered * larger(0, s->places_beside - 1)
                                                                        : 0;
}

/* Are fewer uses left than there are places, or may places for copies from host memory be empty? */
static inline bool runs_out(const struct order *x)
{
    return (x->shards->gathered > 0 && x->uses < x->shards->places) || x->copying;
}

/* Does an action that takes gathered parameters wait for gradients on their way? */
static inline bool waits(const struct order *x)
{
    return x->made_uses < INFINITY && x->made > x->part;
}

/* Does the first use of an action share its parameters with the last use of the action before?  F and B meet in a
 * stage's last block, B and F in its first one. */
static inline bool shared(const struct order *x, uint32_t used, uint32_t c, bool back)
{
    const struct moments_stage *s = &x->stages[c];
    bool meets = back || (s->uses[0] <= s->uses[1] && s->uses[1] <= s->uses[0]);
    return used == 2 * c + !back ? meets : used == 2 * c + back && s->uses[back] <= 1;
}

/* Gradients on their way have arrived when the first parameters that were requested after them have. */
static inline void await_made(struct order *x, bool shares)
{
    if (x->made_uses + shares <= 0 && x->made > x->part) {
        x->made = x->part;
        x->unwaited = 0;
    }
}

/* Begins an action that takes gathered parameters; returns whether its first use shares them with the last use
 * before. */
static inline bool begin_uses(struct order *x, uint32_t c, bool back)
{
    if (x->shards->gathered <= 0)
        return false;
    bool shares = shared(x, x->used, c, back);
    if (shares && x->between.bytes > x->most.bytes)
        x->most = x->between;
    x->between.bytes = 0;
    x->used = 2 * c + back;
    await_made(x, shares);
    return shares;
}

/* Counts the uses of gathered parameters and the copies from host memory of an action. */
static inline void use(struct order *x, const struct moments_stage *s, bool back, bool shares)
{
    x->uses -= s->uses[back] - shares;
    x->copies -= back ? s->copies[0] : 0;
}

/* Looks at an action, and notes its peak for the case that the next one uses the same parameters. */
static void look_at(struct order *x, const struct action_at *a)
{
    const struct moments_stage *s = &x->stages[a->stage];
    const struct moments_shards *shards = x->shards;
    double others = a->held + a->gradients, bytes = moments_action(s, shards, a->kind, &a->at);
    if (others + bytes > x->most.bytes)
        x->most = (struct moments){others + bytes, a->held, a->gradients};
    if (shards->gathered <= 0 || a->kind == 'I')
        return;
    bytes = moments_again(s, shards, a->kind, &a->at);
    if (others + bytes > x->between.bytes)
        x->between = (struct moments){others + bytes, a->held, a->gradients};
}

/* Looks at an action at once or, with copies from host memory, once the next action is known, whose copies begin as
 * soon as there is a place for them. */
static void look_soon(struct order *x, char kind, uint32_t c, const struct moments_at *at)
{
    const struct action_at a = {kind, c, x->held + between_pairs(x), x->gradients, *at};
    x->pending = x->copying;
    if (x->copying)
        x->before = a;
    else
        look_at(x, &a);
}

/* Looks at the previous action, given the next one. */
static void look_before(struct order *x, const struct action_of *next)
{
    struct action_at *a = &x->before;
    if (!x->pending)
        return;
    const struct moments_stage *s = &x->stages[next->kind == 'P' ? next->other : next->stage];
    if (next->kind != 'F')
        a->at.ahead[0] = s->fetches[next->kind == 'W'];
    a->at.ahead[1] = next->kind == 'F' || next->kind == 'W' ? 0 : s->leaves[1];
    a->at.apart = s->fetched_to != x->stages[a->stage].emptied;
    look_at(x, a);
    x->pending = false;
}

/* Notes the bytes of a forward pass from its last transfer on, after all its uses of parameters but the last one. */
static void note_moved(struct order *x, const struct moments_stage *s)
{
    const struct moments_shards *shards = x->shards;
    double uses = x->uses + (s->uses[0] > 0),
           places = shards->gathered > 0 ? shards->gathered * (uses < shards->places ? uses : shards->places) : 0;
    x->moved = (struct moments){x->held + x->gradients + s->moved + places + x->made, x->held, x->gradients};
}

static void forward(struct order *x, uint32_t c)
{
    const struct moments_stage *s = &x->stages[c];
    bool shares = begin_uses(x, c, false);
    use(x, s, false, shares);
    x->held -= s->sent;
    if (is_less(x, s->forward + places(x) + x->made))
        ;
    else if (runs_out(x) || waits(x))
        look(x, moments_action(
                    s, x->shards, 'F',
                    &(struct moments_at){
                        .made = x->made, .made_uses = x->made_uses + shares, .part = x->part, .uses = x->uses}));
    else
        look(x, s->forward + places(x) + x->made);
    x->made_uses -= s->uses[0] - shares;
    note_moved(x, s);
    x->held += s->keep + s->sent;
}

/* Looks at the next step's first forward passes while the gradients still exist, because these may have to be
 * clipped. */
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

/* Bytes of gradients on their way after a B or W of a stage.  Sums that are a stage's first are not waited for until
 * their place, one of two, is needed again. */
static double left_made(struct order *x, const struct moments_stage *s, bool settled, char kind)
{
    const struct moments_shards *shards = x->shards;
    if (s->scatters <= 0 || shards->own <= 0)
        return x->made;
    double left = settled       ? shards->before + s->part
                  : kind == 'W' ? shards->first
                                : shards->first_b,
           before = x->unwaited;
    left += !settled && shards->converted ? s->part : 0;
    x->part = s->part;
    x->unwaited = settled ? 0 : before + s->scatters < 2 ? before + s->scatters : 2;
    if (shards->converted || shards->blocks || s->scatters + (settled ? 0 : before) >= 2)
        return left;
    return settled ? left + (before < 1 ? before : 1) * shards->own : shards->own;
}

/* Updates the state after a B or W of a stage. */
static void note_made(struct order *x, uint32_t c, char kind)
{
    const struct moments_stage *s = &x->stages[c];
    bool settled = had(x, c, true);
    x->gradients += settled ? 0 : s->gradients - (had(x, c, false) ? s->early : 0);
    if (!--x->left[c])
        x->gradients += s->after - s->made;
    x->begun[0] |= (uint64_t)1 << c;
    x->begun[1] |= (uint64_t)1 << c;
    x->made = left_made(x, s, settled, kind);
    if (s->scatters <= 0)
        return;
    x->made_uses = x->shards->uses;
    if (kind == 'B')
        x->made_uses -= s->since;
}

/* Looks at a B or W in any situation; shares: its first use of parameters is the last one before. */
static void look_made(struct order *x, uint32_t c, char kind, bool shares)
{
    const struct moments_stage *s = &x->stages[c];
    const struct moments_shards *shards = x->shards;
    bool last = x->left[c] == 1 && (s->after < s->made || s->after > s->made);
    bool alike = (s->all_scatter || shards->own <= 0) && shards->gathered <= 0;
    if (had(x, c, true) && alike && !last && !runs_out(x) && x->made >= shards->before + s->part &&
        x->made <= shards->before + s->part) {
        double rest = x->made + shards->own;
        look(x, kind == 'W' ? s->weight + rest : moments_backward(&s->backward, x->made, rest, 0));
        look(x, (kind == 'W' ? s->weight_end : s->backward_end) + shards->sent + rest);
        look(x, s->leaving[kind == 'W'] + rest + s->part);
        return;
    }
    double most = kind == 'W' ? larger(s->weight, s->weight_end)
                              : larger(moments_backward(&s->backward, 0, 0, 0), s->backward_end);
    if (had(x, c, true) && !last &&
        is_less(x, most + places(x) + shards->sent + shards->most + shards->part + shards->fetched))
        return;
    look_soon(x, kind, c,
              &(struct moments_at){had(x, c, true), had(x, c, false), last, .made = x->made,
                                   .made_uses = x->made_uses + shares, .part = x->part, .unwaited = x->unwaited > 0,
                                   .uses = x->uses, .copies = x->copies});
}

static void backward(struct order *x, uint32_t c)
{
    const struct moments_stage *s = &x->stages[c];
    x->held -= s->keep + s->received;
    bool shares = begin_uses(x, c, true);
    use(x, s, true, shares);
    look_made(x, c, 'B', shares);
    if (s->scatters <= 0)
        x->made_uses -= s->uses[1] - shares;
    x->held += s->received;
    note_made(x, c, 'B');
}

static void input(struct order *x, uint32_t c)
{
    const struct moments_stage *s = &x->stages[c];
    bool early = had(x, c, false), shares = begin_uses(x, c, true);
    x->held -= s->keep + s->received;
    use(x, s, true, shares);
    if (early && is_less(x, s->input + places(x) + x->made + x->shards->fetched))
        ;
    else if (early && !runs_out(x) && !waits(x) && s->uses[1] >= s->uses[0]) /* otherwise a block leaves a place free */
        look(x, s->input + places(x) + x->made);
    else
        look_soon(x, 'I', c,
                  &(struct moments_at){had(x, c, true), early, .made = x->made, .made_uses = x->made_uses + shares,
                                       .part = x->part, .uses = x->uses, .copies = x->copies});
    x->made_uses -= s->uses[1] - shares;
    x->gradients += early ? 0 : s->early;
    x->begun[0] |= (uint64_t)1 << c;
    x->held += s->left + s->received;
}

static void weight(struct order *x, uint32_t c)
{
    const struct moments_stage *s = &x->stages[c];
    x->held -= s->left;
    x->copies -= s->copies[1];
    await_made(x, false);
    look_made(x, c, 'W', false);
    note_made(x, c, 'W');
}

/* Counts the uses after a pair: those of the places of its forward pass, and those of its backward pass, which has
 * other places. */
static void uses_behind(const struct order *x, uint32_t b, double uses[2])
{
    double pairs = x->pairs_left > 1 ? (double)(x->pairs_left - 1) : 0;
    uses[1] = pairs * x->stages[b].uses[1];
    uses[0] = larger(0, x->uses - uses[1]);
}

/* The peak bytes of a pair, or an upper bound where even that is below the peak so far. */
static double beside(struct order *x, uint32_t f, uint32_t b, bool first, double places)
{
    const struct moments_stage *s = &x->stages[b];
    double others = (first ? s->gradients : 0) + larger(x->made, x->shards->most) + x->shards->part + x->shards->sent;
    double all = x->stages[f].forward + larger(moments_backward(&s->backward, 0, 0, 0), s->backward_end) + places +
                 others;
    if (is_less(x, all))
        return all;
    double uses[2];
    uses_behind(x, b, uses);
    const struct moments_at at = {
        .had = !first, .made = x->made, .made_uses = x->made_uses, .part = x->part, .unwaited = x->unwaited > 0};
    double less = x->most.bytes - x->held - x->gradients - places;
    return moments_beside(x->remembered, &x->stages[f], s, x->shards, &at, uses, others, less) + places;
}

/* Runs a forward beside a backward pass; both progress at the same fraction of their time. */
static void both(struct order *x, uint32_t f, uint32_t b)
{
    const struct moments_stage *s = &x->stages[b];
    const struct moments_shards *shards = x->shards;
    bool first = !had(x, b, true);
    if (shards->gathered > 0)
        await_made(x, false);
    x->held -= s->keep + s->received + x->stages[f].sent;
    use(x, &x->stages[f], false, shards->gathered > 0 && shared(x, x->used, f, false));
    use(x, s, true, false);
    look(x, beside(x, f, b, first, shards->gathered * (shards->places + shards->places_beside)) -
                (first && had(x, b, false) ? s->early : 0));
    x->used = 2 * f; /* the backward pass's parameters are in other places */
    x->between.bytes = 0;
    note_made(x, b, 'B');
    x->pairs_left -= x->pairs_left > 0;
    x->held += x->stages[f].keep + x->stages[f].sent + s->received;
}

/* ---- stretches ---- */

/* Bytes of inputs that have arrived for later forward passes. */
static double inputs_waiting(struct order *x, bool forward)
{
    x->to_come -= forward;
    return (x->ahead < x->to_come ? x->ahead : x->to_come) * x->stages[0].arrives;
}

/* Bytes that wait for other actions while the k-th action runs. */
static inline double waits_at(const struct order *x, uint32_t k)
{
    const struct waits *w = &x->waits;
    uint32_t half = w->n / 2;
    if (k >= half && w->left)
        k = k >= half + w->left ? k - w->left : half - w->period + (k - half) % w->period;
    return w->at[k] * x->stages[0].waits;
}

/* Number of uses of gathered parameters in a round after those of *used, the action that used some last; updates
 * *used. */
static double round_uses(const struct order *x, const struct action_of *a, uint32_t n, uint32_t *used)
{
    double uses = 0;
    for (uint32_t k = 0; k < n; k++) {
        bool back = a[k].kind == 'B' || a[k].kind == 'I';
        if (a[k].kind == 'W')
            continue;
        uses += x->stages[a[k].stage].uses[back] - shared(x, *used, a[k].stage, back);
        uses += a[k].kind == 'P' ? x->stages[a[k].other].uses[1] : 0;
        *used = 2 * a[k].stage + back;
    }
    return uses;
}

/* The first transfers of an action need nothing of the forward pass before, so they begin as soon as its last
 * transfers are over. */
static void look_between(struct order *x, const struct action_of *a)
{
    bool passes = a->kind == 'B' || a->kind == 'I' || a->kind == 'W';
    double ahead = passes ? x->stages[a->stage].ahead[a->kind == 'B' ? 0 : a->kind == 'I' ? 1 : 2] : 0;
    if (ahead > 0 && x->moved.bytes > 0 && x->moved.bytes + ahead > x->most.bytes)
        x->most = (struct moments){x->moved.bytes + ahead, x->moved.kept, x->moved.gradients};
    x->moved.bytes = 0;
}

static void list_one(struct listing *to, char kind, uint32_t stage, bool pair)
{
    uint32_t *microbatch = &to->microbatch[kind == 'F' ? 0 : kind == 'W' ? 2 : 1][stage];
    to->at[to->n++] = (struct action){.kind = kind, .stage = stage, .microbatch = (*microbatch)++, .pair = pair};
}

static void list(struct order *x, const struct action_of *a, uint32_t n, uint64_t times)
{
    struct listing *to = x->lists;
    for (uint64_t i = 0; i < times; i++)
        for (uint32_t k = 0; k < n; k++) {
            bool pair = a[k].kind == 'P';
            list_one(to, pair ? 'F' : a[k].kind, a[k].stage, pair);
            if (pair)
                list_one(to, 'B', a[k].other, false);
        }
}

void moments_round(struct order *x, const struct action_of *a, uint32_t n)
{
    if (x->lists) {
        list(x, a, n, 1);
        return;
    }
    if (x->counts) {
        x->uses -= round_uses(x, a, n, &x->used);
        return;
    }
    for (uint32_t k = 0; k < n; k++) {
        look_before(x, &a[k]);
        look_between(x, &a[k]);
        if (x->ahead)
            x->waiting = inputs_waiting(x, a[k].kind == 'F');
        if (x->waits.n)
            x->waiting = waits_at(x, x->nth++);
        double waiting = x->waiting;
        if (waiting > 0)
            x->held += waiting;
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
        if (waiting > 0)
            x->held -= waiting;
    }
}

void moments_end(struct order *x)
{
    if (x->pending)
        look_at(x, &x->before);
}

/* Counts an action `times` times without looking at it. */
static void skip(struct order *x, char kind, uint32_t stage, uint64_t times)
{
    const struct moments_stage *s = &x->stages[stage];
    x->to_come -= kind == 'F' && x->ahead ? (uint32_t)times : 0;
    x->copies -= kind == 'F' ? 0 : (double)times * s->copies[kind == 'W'];
    if (kind == 'B' || kind == 'W')
        x->left[stage] -= (uint32_t)times;
}

void moments_skip(struct order *x, const struct action_of *a, uint32_t n, uint64_t times)
{
    if (x->lists) {
        list(x, a, n, times);
        return;
    }
    x->nth += (uint32_t)times * n;
    bool counts = times && (x->ends || x->shards->gathered > 0 || x->ahead);
    uint32_t used = UINT32_MAX;
    if (times && x->shards->gathered > 0) {
        round_uses(x, a, n, &used);
        x->uses -= (double)times * round_uses(x, a, n, &used);
    }
    for (uint32_t k = 0; k < n && counts; k++)
        if (a[k].kind == 'P') {
            skip(x, 'F', a[k].stage, times);
            skip(x, 'B', a[k].other, times);
            x->pairs_left -= x->pairs_left < times ? x->pairs_left : times;
        } else {
            skip(x, a[k].kind, a[k].stage, times);
        }
}

/* Is the rest of a stretch at most the peak so far, whatever waits? */
static bool is_less_along(const struct order *x, const struct action_of *a, uint32_t n, uint64_t left, double change)
{
    const struct moments_shards *shards = x->shards;
    double most = 0, waiting = 0, moved = 0, ahead = 0;
    for (uint32_t k = 0; k < n; k++) {
        bool pair = a[k].kind == 'P';
        const struct moments_stage *s = &x->stages[pair ? a[k].other : a[k].stage];
        double bytes = a[k].kind == 'F' ? s->forward : larger(moments_backward(&s->backward, 0, 0, 0), s->backward_end);
        most = larger(most, bytes + (pair ? x->stages[a[k].stage].forward : 0));
        moved = a[k].kind == 'F' ? larger(moved, s->moved) : moved;
        for (uint32_t i = 0; i < 3 && a[k].kind != 'F' && !pair; i++)
            ahead = larger(ahead, s->ahead[i]);
    }
    most = larger(most, moved + ahead); /* look_between() */
    most += places(x) + shards->sent + shards->most + shards->part + shards->fetched + larger(0, change * (double)left);
    if (is_less(x, most + x->waits.most * x->stages[0].waits))
        return true;
    for (uint64_t k = 0; k < left * n && is_less(x, most + waiting); k++)
        waiting = larger(waiting, waits_at(x, x->nth + (uint32_t)k));
    return is_less(x, most + waiting);
}

/* How many of a stretch's next rounds find the same bytes waiting as the rounds one period before. */
static uint64_t waits_again(const struct order *x, uint32_t n, uint64_t left)
{
    const struct waits *w = &x->waits;
    uint32_t half = w->n / 2, end = half + w->left;
    uint64_t rounds = w->left && w->period % n == 0 && x->nth >= half && x->nth < end ? (end - x->nth) / n : 0;
    return rounds < left ? rounds : left;
}

/* Does the whole rest of a stretch wait as it did one period before, and not for the last time? */
static bool waits_all_again(const struct order *x, uint32_t n, uint64_t left)
{
    const struct waits *w = &x->waits;
    uint32_t half = w->n / 2;
    return x->nth >= half + w->period && x->nth + left * n + w->period <= (uint64_t)half + w->left;
}

/* Runs rounds one by one where the waiting bytes rise and fall; where they repeat, one period of them and the `last`
 * rounds, in which the rank holds most. */
static void rounds_that_wait(struct order *x, const struct action_of *a, uint32_t n, uint64_t left, double change,
                             uint64_t last)
{
    uint64_t period = x->waits.n ? x->waits.period / n : 0, ends = period > last ? period : last;
    for (uint64_t until = 0; left; left--) {
        uint64_t same = until ? 0 : waits_again(x, n, left);
        if (same > period + ends)
            until = left - period; /* the first period has been looked at */
        if (until == left) {
            uint64_t skipped = waits_again(x, n, left) - ends;
            moments_skip(x, a, n, skipped);
            x->held += change * (double)skipped;
            left -= skipped;
        }
        moments_round(x, a, n);
    }
}

/* Runs a stretch's first rounds, until they leave the gradients that they found, and its last ones. */
void moments_stretch(struct order *x, uint64_t times, const struct action_of *a, uint32_t n)
{
    if (moments_told(x))
        return;
    double change = 0;
    uint64_t left = times;
    for (bool more = left > 0; more; left--) {
        double before = x->held, gradients = x->gradients, made = x->made;
        moments_round(x, a, n);
        change = x->held - before;
        more = left > 1 && (x->gradients < gradients || x->gradients > gradients || x->made < made || x->made > made);
    }
    uint64_t last = x->shards->gathered > 0 ? (uint64_t)x->shards->places
                                            : change > 0 || x->ends; /* the last round may differ from all others */
    if (left && x->waits.n && !x->ends && is_less_along(x, a, n, left, change)) {
        moments_skip(x, a, n, left);
        x->held += change * (double)left;
        return;
    }
    if (left > last && (!x->waits.n || waits_all_again(x, n, left))) {
        moments_skip(x, a, n, left - last);
        x->held += change * (double)(left - last);
        left = last;
    }
    rounds_that_wait(x, a, n, left, change, last);
}

/* Sets the counts of what is to come. */
void moments_begin(struct order *x, uint32_t rank)
{
    const struct decision *d = x->d;
    bool dual = d->schedule == SCHED_DUALPIPE;
    uint32_t m = dual ? d->microbatches / 2 : d->microbatches,
             halves = pipeline_splits(d->schedule) && !decision_pairs(d->schedule);
    for (uint32_t c = 0; c < (dual ? 2 : d->vpp) && !d->listed; c++) {
        x->left[c] = m;
        x->copies += m * (x->stages[c].copies[0] + (halves ? x->stages[c].copies[1] : 0));
    }
    for (uint32_t k = 0; d->listed && k < d->listed->nactions[rank]; k++) {
        const struct action *a = &d->listed->actions[rank][k];
        const struct moments_stage *s = &x->stages[a->stage / d->pp];
        if (a->kind == 'O')
            continue;
        x->left[a->stage / d->pp] += a->kind == 'B' || a->kind == 'W';
        x->copies += a->kind == 'F' ? 0 : s->copies[a->kind == 'W'];
    }
    x->copying = x->ends = x->copies > 0;
    for (uint32_t c = 0; c < (dual ? 2 : d->vpp); c++) {
        const struct moments_stage *s = &x->stages[c];
        x->held += s->sent + s->received;
        x->ends |= s->after < s->made || s->after > s->made;
    }
    look_early(x);
}
