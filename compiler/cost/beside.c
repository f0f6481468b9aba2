/* Memory of two actions that run together: the steps of their stages' blocks (lives_levels.c), one after the other as lower_pair()
 * of compiler/lower/lower.c has their instructions (strands.c), behind what both receive.  While a step runs, the other pass lies
 * between two of its own.
 *
 * Linear in steps, some nanoseconds each; what a pair of stages comes to is remembered. */

#include "compiler/cost/moments_private.h"

#include "compiler/cost/cost_private.h"

#include <math.h>

/* a pass over a stage's blocks */
struct side {
    const struct moments_stage *stage;
    const struct cost_levels *levels; /* of the block; NULL: behind all of them */
    struct walk_run steps;            /* at its next one */
    uint32_t run;
    bool begun;                       /* the block has had a step */
    double left;                      /* blocks of the run behind this one */
    double kept;                      /* of blocks in front of it, and what it finds besides */
    double now;                       /* bytes between two steps */
    const struct moments_shards *shards;
    double uses;                      /* of gathered parameters, this block's among them */
};

static void begin_block(struct side *x, bool back)
{
    const struct moments_run *r = &x->stage->runs[x->run];
    x->levels = &r->lives->levels[back];
    x->begun = false;
    walk_run_enter(&x->steps, x->levels->step, x->levels->n);
}

/* Of a pass that goes front to back or, `back`, back to front.  queue_s: of receives, which are asked for first. */
static void begin_side(struct side *x, const struct moments_stage *s, bool back, const struct moments_shards *shards, double uses, double *queue_s)
{
    *x = (struct side){.stage = s, .shards = shards, .uses = s->uses[back] + uses};
    double all_s = s->receives_s[back] + s->sends_s[back];
    x->steps.apart = shards->apart;
    *queue_s += s->receives_s[back];
    x->steps.there_s[WALK_RECEIVED] = s->receives_s[back] > 0 ? *queue_s : 0;
    for (uint32_t k = 0; k < s->nruns; k++)
        all_s += s->runs[k].times * s->runs[k].lives->levels[back].all_s;
    x->steps.share = all_s > 0 ? 1 / all_s : 0;
    x->steps.done = s->receives_s[back] * x->steps.share;
    x->run = back ? s->nruns - 1 : 0;
    if (!s->nruns)
        return;
    const struct moments_run *r = &s->runs[x->run];
    x->left = r->times - 1;
    x->kept = (back ? s->keep - r->keep : 0) + r->places[back];
    for (uint32_t k = s->nruns; k-- > 0 && back && x->steps.there_s[WALK_FETCHED] <= 0;)
        x->steps.there_s[WALK_FETCHED] = s->runs[k].lives->levels[1].fetch_s;
    begin_block(x, back);
    x->now = x->kept + x->levels->front;
}

/* to the next block; false: there is none */
static bool next_block(struct side *x, bool back)
{
    const struct moments_run *r = &x->stage->runs[x->run];
    x->kept += back ? 0 : r->keep;
    x->uses -= back ? r->uses : 1;
    if (x->left >= 1) {
        x->left--;
        x->kept -= back ? r->keep : 0;
    } else if (back ? x->run == 0 : x->run + 1 == x->stage->nruns) {
        x->levels = NULL;
        return false;
    } else {
        x->run = back ? x->run - 1 : x->run + 1;
        const struct moments_run *next = &x->stage->runs[x->run];
        x->left = next->times - 1;
        x->kept += next->places[back] - r->places[back] - (back ? next->keep : 0);
    }
    begin_block(x, back);
    return true;
}

/* the next step; returns bytes while it runs, 0: it is a transfer */
static double take(struct side *x, double *queue_s)
{
    const struct cost_level *bytes = &x->levels->bytes[x->steps.at - x->levels->step];
    bool kernel = x->steps.at->kind == WALK_KERNEL;
    x->begun = true;
    walk_run_next(queue_s, &x->steps);
    if (!kernel)
        return 0;
    x->now = x->kept + (double)bytes->behind;
    return x->kept + (double)bytes->during;
}

/* Bytes of places for gathered parameters that nothing is in: while fewer uses are left than there are places, and the last one's
 * behind a pass and in one that uses none.  Without transfers beside compute parameters are gathered as their block begins. */
static double unused(const struct side *x, bool back, bool rests)
{
    const struct moments_shards *s = x->shards;
    bool none = !x->levels || (back && x->stage->runs[x->run].uses <= 0) || (s->blocks && rests && !x->begun);
    double places = back ? s->places_beside : s->places, left = x->uses < places - none ? x->uses : places - none;
    return s->gathered * (places - left);
}

static bool is_over(const struct side *x)
{
    return x->steps.at == x->steps.end;
}

static void note(double *most, double bytes)
{
    *most = bytes > *most ? bytes : *most;
}

static double *phase_of(struct moments_backward *b, const struct moments_run *r, uint32_t phase)
{
    return phase >= 4 ? &b->used : phase & r->makes ? &b->made : &b->begin;
}

/* the most of a pair while each of the backward pass's runs of blocks comes, in its last block and in those in front of it */
struct pair {
    struct moments_backward run[MOMENTS_RUNS][2];
    double ends[MOMENTS_RUNS][2];
};

static void clear(struct pair *x, uint32_t nruns)
{
    for (uint32_t k = 0; k < 2 * nruns; k++) {
        x->run[k / 2][k % 2] = (struct moments_backward){-INFINITY, -INFINITY, -INFINITY};
        x->ends[k / 2][k % 2] = -INFINITY;
    }
}

/* What a pass that is over leaves in places for copies: the next one's copies come there once those before them are through. */
static double at_rest(const struct side *y, const double *queue_s)
{
    bool later = !y->levels && y->stage->nruns && queue_s[WALK_COPY] > queue_s[WALK_COMPUTE];
    return y->now - (later ? y->stage->runs[y->run].places[1] : 0);
}

/* a step of the forward pass while the other one rests */
static void go_forward(struct side *x, const struct side *y, double *queue_s, double *most)
{
    double places = x->shards->gathered > 0 ? unused(x, false, false) + unused(y, true, true) : 0;
    double bytes = take(x, queue_s);
    if (bytes > 0)
        note(most, bytes + at_rest(y, queue_s) - places);
    if (is_over(x))
        next_block(x, false);
}

/* is the next step of both the forward pass's? */
static bool is_forward(const double *queue_s, const struct side *x, const struct side *y)
{
    return x->levels && walk_run_is_next(queue_s, &x->steps, &y->steps);
}

static void run_together(const struct moments_stage *f, const struct moments_stage *b, const struct moments_shards *shards,
                         const double uses[2], struct pair *out)
{
    double queue_s[NWALK_QUEUES + 1] = {0}, receives_s = 0;
    struct side x, y;
    begin_side(&x, f, false, shards, uses[0], &receives_s);
    begin_side(&y, b, true, shards, uses[1], &receives_s);
    clear(out, b->nruns);
    bool last = true;
    double *most = y.levels ? phase_of(&out->run[y.run][1], &b->runs[y.run], 0) : NULL;
    while (y.levels) {
        if (is_forward(queue_s, &x, &y)) {
            go_forward(&x, &y, queue_s, most);
            continue;
        }
        double places = shards->gathered > 0 ? unused(&x, false, true) + unused(&y, true, false) : 0;
        uint32_t phase = y.steps.at->passes;
        double bytes = take(&y, queue_s);
        if (bytes > 0) {
            most = phase_of(&out->run[y.run][last], &b->runs[y.run], phase);
            note(most, bytes + x.now - places);
        }
        if (!is_over(&y))
            continue;
        const struct moments_run *r = &b->runs[y.run];
        if (r->end > 0)
            note(&out->ends[y.run][last], y.kept - r->places[1] + r->end + x.now - places);
        uint32_t run = y.run;
        last = next_block(&y, true) && y.run != run;
        most = y.levels ? phase_of(&out->run[y.run][last], &b->runs[y.run], 0) : most;
    }
    while (x.levels && most)
        go_forward(&x, &y, queue_s, most);
}

/* the most of all a stage's runs */
static double fullest(const struct pair *x, uint32_t nruns)
{
    double most = -INFINITY;
    for (uint32_t k = 0; k < 2 * nruns; k++) {
        note(&most, moments_backward(&x->run[k / 2][k % 2], 0, 0, 0));
        note(&most, x->ends[k / 2][k % 2]);
    }
    return most;
}

/* pairs of stages that have been asked for last, and uses of parameters in orders, by their marks */
#define PAIRS 8192
#define ORDERS 4096
struct moments_pairs {
    struct arena *arena;
    struct known_waits *waits;
    struct {
        uint64_t mark;
        double uses;
    } orders[ORDERS];
    struct {
        uint64_t mark;
        double most; /* of the pair */
    } at[PAIRS];
    struct pair pair[PAIRS];
};

struct moments_pairs *moments_pairs_new(struct arena *a)
{
    struct moments_pairs *known = ARENA_NEW(a, struct moments_pairs);
    known->arena = a;
    known->waits = waits_new(a);
    return known;
}

struct arena *moments_arena(struct moments_pairs *known)
{
    return known->arena;
}

struct known_waits *moments_known_waits(struct moments_pairs *known)
{
    return known->waits;
}

double *moments_known_uses(struct moments_pairs *known, uint64_t mark)
{
    if (known->orders[mark % ORDERS].mark != mark)
        known->orders[mark % ORDERS].uses = 0;
    known->orders[mark % ORDERS].mark = mark;
    return &known->orders[mark % ORDERS].uses;
}

/* of a run's last block, or of one in front of it, which finds gradients on their way */
static double at_run(const struct pair *x, const struct moments_stage *b, uint32_t k, bool last, const struct moments_shards *shards,
                     const struct moments_at *at)
{
    const struct moments_run *r = &b->runs[k];
    bool scatters = r->scattered > 0, begins = last && k + 1 == b->nruns, had = at->had;
    double place = scatters || shards->blocks ? shards->gathered * r->uses : 0;
    double since = last ? r->since : scatters ? 0 : r->since + r->uses;
    double before = begins || at->made_uses > 1 ? at->made : at->made < at->part ? at->made : at->part;
    double part = begins ? at->part : last ? r->part_behind : r->part;
    before = moments_on_way(shards, at, since, before, part, scatters);
    double rest = moments_making(shards, before, part, scatters);
    bool sure = !shards->unsure || begins || (had && before <= shards->before + part);
    double sent = shards->blocks ? rest - place : cost_larger(rest - place, rest - shards->own + r->part);
    double made = had ? 0 : r->made - r->scattered; /* its own gradients, as its stage's first */
    double most = moments_backward(&x->run[k][last], sure ? before : rest, rest + made, place);
    return cost_larger(most, x->ends[k][last] + shards->sent + sent + made);
}

/* Behind the block that is looked at are the gradients of others, the sums of the one before not before they are converted back. */
static double most_of(const struct pair *x, const struct moments_stage *b, const struct moments_shards *shards, const struct moments_at *at)
{
    double most = 0, behind = 0, before = 0; /* gradients of blocks behind; sums of the last one of them */
    for (uint32_t k = b->nruns; k-- > 0;) {
        const struct moments_run *r = &b->runs[k];
        for (int last = 1; last >= (r->times <= 1); last--) {
            double others = last ? behind - before : behind + (r->times - 1) * r->made - (shards->converted ? r->scattered : 0);
            note(&most, at_run(x, b, k, last, shards, at) + (at->had ? 0 : others));
        }
        behind += r->times * r->made;
        before = shards->converted ? r->scattered : 0;
    }
    return most;
}

/* of such a pair: its stages, and what of places depends on more */
static uint64_t mark_of(const struct moments_stage *f, const struct moments_stage *b, const struct moments_shards *s, const double uses[2])
{
    uint64_t mark = f->mark * 3 + b->mark;
    if (s->gathered <= 0)
        return mark;
    const double left[] = {s->gathered, s->places, s->places_beside, s->blocks, uses[0] < s->places ? uses[0] : s->places,
                           uses[1] < s->places_beside ? uses[1] : s->places_beside};
    return cost_mark(mark, left, sizeof left);
}

double moments_beside(struct moments_pairs *known, const struct moments_stage *f, const struct moments_stage *b,
                      const struct moments_shards *shards, const struct moments_at *at, const double uses[2], double others, double less)
{
    struct pair own;
    if (!known) {
        run_together(f, b, shards, uses, &own);
        return most_of(&own, b, shards, at);
    }
    uint64_t mark = mark_of(f, b, shards, uses), k = mark % PAIRS;
    if (known->at[k].mark != mark) {
        run_together(f, b, shards, uses, &known->pair[k]);
        known->at[k].mark = mark;
        known->at[k].most = fullest(&known->pair[k], b->nruns);
    }
    return known->at[k].most + others <= less ? known->at[k].most + others : most_of(&known->pair[k], b, shards, at);
}

/* ---- places for copies ---- */

/* what the places of a stage hold in front of its first layer that takes one, where an action of stage `other` is next to it */
static void share_copies_of(struct moments_stage *s, const struct moments_stage *other)
{
    const double *leaves = other->leaves;
    bool same = other->fetched_to == s->emptied;
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < s->in_front && i < s->nruns; i++)
            s->runs[i].places[k] = cost_larger(s->runs[i].places[k], leaves[0] + leaves[1]);
        if (s->in_front < s->nruns)
            s->runs[s->in_front].places[k] = cost_larger(s->runs[s->in_front].places[k], k && same ? 0 : leaves[same]);
    }
    s->mark = cost_mark(s->mark, leaves, sizeof other->leaves) + same;
}

/* The last layers of the F before are on their way as one begins, those of the B behind are fetched as one ends.  Both are of the
 * same stage or, F before and B behind, of the one in front of it on its rank; of the rank's other one where directions take turns. */
void moments_share_copies(const struct decision *d, uint32_t n, struct moments_stage *stages)
{
    uint32_t group = d->schedule_group ? d->schedule_group : d->pp;
    bool turns = d->schedule == SCHED_DUALPIPE || d->schedule == SCHED_DUALPIPE_V;
    for (uint32_t j = 0; j < n; j++) {
        if (!turns)
            share_copies_of(&stages[j], &stages[j]);
        if (turns || j || d->microbatches > group)
            share_copies_of(&stages[j], &stages[j ? j - 1 : n - 1]);
    }
}
