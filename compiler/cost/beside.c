/* Memory of two actions that run together: the steps of the blocks of their stages (lives_levels.c), interleaved in
 * the order that lower_pair() of compiler/lower/lower.c gives their instructions (strands.c), after what both
 * receive.  While a step of one pass runs, the other pass is between two of its own.
 *
 * Cost: linear in steps, a few nanoseconds each; results are cached by pair of stages. */

#include "compiler/cost/moments_private.h"

#include "compiler/cost/cost_private.h"

#include <math.h>
#include <string.h>

/* a pass over a stage's blocks */
struct side {
    const struct moments_stage *stage;
    const struct cost_levels *levels; /* of the block; NULL: after the last block */
    struct walk_run steps;            /* positioned at the next step */
    uint32_t run;
    bool begun;  /* the block has run a step */
    double left; /* blocks of the run that come after this one */
    double kept; /* bytes of the blocks before it, and what it finds in places for copies */
    double now;  /* bytes between two steps */
    const struct moments_shards *shards;
    double uses; /* uses of gathered parameters left, including this block's */
};

static void begin_block(struct side *x, bool back)
{
    const struct moments_run *r = &x->stage->runs[x->run];
    x->levels = &r->lives->levels[back];
    x->begun = false;
    walk_run_enter(&x->steps, x->levels->step, x->levels->n);
}

/* Starts a pass, from front to back or, `back`, from back to front.  queue_s: end of the receives, which are
 * requested first. */
static void begin_side(struct side *x, const struct moments_stage *s, bool back, const struct moments_shards *shards,
                       double uses, double *queue_s)
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

/* Moves to the next block; false: there is none. */
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

/* Runs the next step; returns the bytes while it runs, or 0 for a transfer. */
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

/* Bytes of the places for gathered parameters that are empty: those beyond the uses left and, after a pass and in a
 * pass that uses none, the one of the last use.  Where transfers do not overlap compute, parameters are gathered as
 * their block begins. */
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

/* The peak bytes of a pair while a block of the backward pass runs, indexed by what it has made: gradients of
 * matrices (1), of experts (2); after the last use of its parameters (4); and at its end, if its gradients are
 * converted there.  What a ZeRO level makes of these is left to most_of(), so that all levels share the cache. */
enum { PHASES = 5 };
struct met {
    double most[PHASES], end;
};
/* the same for a run of blocks: the blocks before the last one, and the last one; then for all runs of a pass */
struct run_met {
    struct met block[2];
};
struct pair {
    struct run_met run[MOMENTS_RUNS];
};

static double *phase_of(struct met *x, uint32_t phase)
{
    return &x->most[phase < PHASES ? phase : PHASES - 1];
}

static void clear(struct pair *x, uint32_t nruns)
{
    for (uint32_t k = 0; k < 2 * nruns; k++)
        x->run[k / 2].block[k % 2] = (struct met){{-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY}, -INFINITY};
}

/* makes: which of the gradients that the block makes are on their way to shards. */
static struct moments_backward backward_of(const struct met *x, uint32_t makes)
{
    struct moments_backward b = {x->most[0], -INFINITY, x->most[PHASES - 1]};
    for (uint32_t k = 1; k < PHASES - 1; k++)
        note(k & makes ? &b.made : &b.begin, x->most[k]);
    return b;
}

/* Bytes between two steps.  A pass that has ended leaves its places for copies to the next one, whose copies are
 * there once the earlier ones are done. */
static double at_rest(const struct side *y, const double *queue_s)
{
    bool later = !y->levels && y->stage->nruns && queue_s[WALK_COPY] > queue_s[WALK_COMPUTE];
    return y->now - (later ? y->stage->runs[y->run].places[1] : 0);
}

/* Runs a step of the forward pass while the other one is between steps. */
static void go_forward(struct side *x, const struct side *y, double *queue_s, double *most)
{
    double places = x->shards->gathered > 0 ? unused(x, false, false) + unused(y, true, true) : 0;
    double bytes = take(x, queue_s);
    if (bytes > 0)
        note(most, bytes + at_rest(y, queue_s) - places);
    if (is_over(x))
        next_block(x, false);
}

/* Is the forward pass's step the next one? */
static bool is_forward(const double *queue_s, const struct side *x, const struct side *y)
{
    return x->levels && walk_run_is_next(queue_s, &x->steps, &y->steps);
}

static void run_together(const struct moments_stage *f, const struct moments_stage *b,
                         const struct moments_shards *shards, const double uses[2], struct pair *out)
{
    double queue_s[NWALK_QUEUES + 1] = {0}, receives_s = 0;
    struct side x, y;
    begin_side(&x, f, false, shards, uses[0], &receives_s);
    begin_side(&y, b, true, shards, uses[1], &receives_s);
    clear(out, b->nruns);
    bool last = true;
    double *most = y.levels ? phase_of(&out->run[y.run].block[1], 0) : NULL;
    while (y.levels) {
        if (is_forward(queue_s, &x, &y)) {
            go_forward(&x, &y, queue_s, most);
            continue;
        }
        double places = shards->gathered > 0 ? unused(&x, false, true) + unused(&y, true, false) : 0;
        uint32_t phase = y.steps.at->passes;
        double bytes = take(&y, queue_s);
        if (bytes > 0) {
            most = phase_of(&out->run[y.run].block[last], phase);
            note(most, bytes + x.now - places);
        }
        if (!is_over(&y))
            continue;
        const struct moments_run *r = &b->runs[y.run];
        if (r->end > 0)
            note(&out->run[y.run].block[last].end, y.kept - r->places[1] + r->end + x.now - places);
        uint32_t run = y.run;
        last = next_block(&y, true) && y.run != run;
        most = y.levels ? phase_of(&out->run[y.run].block[last], 0) : most;
    }
    while (x.levels && most)
        go_forward(&x, &y, queue_s, most);
}

/* a pair of stages by its hash; most: the peak over all of run */
struct known_pair {
    uint64_t mark;
    struct known_pair *next; /* in the same bucket */
    double most;
    struct run_met run[];
};

/* All pairs of stages requested so far, in a hash table whose size is a power of two; uses of parameters in recent
 * orders. */
#define ORDERS 4096
struct moments_pairs {
    struct arena *arena;
    struct known_waits *waits;
    struct {
        uint64_t mark;
        double uses;
    } orders[ORDERS];
    uint64_t npairs, places;
    struct known_pair **pairs;
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

static struct known_pair **place_of(struct moments_pairs *known, uint64_t mark)
{
    return &known->pairs[(mark ^ mark >> 32) & (known->places - 1)];
}

/* Doubles the hash table once there are as many pairs as buckets. */
static void grow(struct moments_pairs *known)
{
    struct known_pair **old = known->pairs;
    uint64_t n = known->places;
    if (known->npairs < n)
        return;
    known->places = n ? 2 * n : 1024;
    known->pairs = ARENA_ARRAY(known->arena, struct known_pair *, known->places);
    for (uint64_t i = 0; i < n; i++)
        for (struct known_pair *x = old[i], *next; x; x = next) {
            struct known_pair **place = place_of(known, x->mark);
            next = x->next;
            x->next = *place;
            *place = x;
        }
}

static struct known_pair *add_pair(struct moments_pairs *known, uint64_t mark, const struct pair *pair, uint32_t nruns)
{
    struct known_pair *x = arena_alloc(known->arena, sizeof *x + nruns * sizeof *x->run);
    x->mark = mark;
    x->most = -INFINITY;
    memcpy(x->run, pair->run, nruns * sizeof *x->run);
    for (uint32_t k = 0; k < 2 * nruns; k++) {
        for (uint32_t i = 0; i < PHASES; i++)
            note(&x->most, x->run[k / 2].block[k % 2].most[i]);
        note(&x->most, x->run[k / 2].block[k % 2].end);
    }
    grow(known);
    struct known_pair **place = place_of(known, mark);
    x->next = *place;
    *place = x;
    known->npairs++;
    return x;
}

/* The peak bytes of a run's last block, or of the blocks before it, including gradients on their way. */
static double at_run(const struct met *x, const struct moments_stage *b, uint32_t k, bool last,
                     const struct moments_shards *shards, const struct moments_at *at)
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
    double made = had ? 0 : r->made - r->scattered; /* its own gradients, if they are the stage's first */
    struct moments_backward own = backward_of(x, r->makes);
    double most = moments_backward(&own, sure ? before : rest, rest + made, place);
    return r->converts ? cost_larger(most, x->end + shards->sent + sent + made) : most;
}

/* Adds the gradients of the blocks after the one that is looked at; the sums of the block directly after it only
 * exist once they are converted back. */
static double most_of(const struct run_met *run, const struct moments_stage *b, const struct moments_shards *shards,
                      const struct moments_at *at)
{
    double most = 0, behind = 0, before = 0; /* bytes of gradients of the blocks after; of the sums of the one that
                                              * ran last */
    for (uint32_t k = b->nruns; k-- > 0;) {
        const struct moments_run *r = &b->runs[k];
        for (int last = 1; last >= (r->times <= 1); last--) {
            double others = last ? behind - before
                                 : behind + (r->times - 1) * r->made - (shards->converted ? r->scattered : 0);
            note(&most, at_run(&run[k].block[last], b, k, last, shards, at) + (at->had ? 0 : others));
        }
        behind += r->times * r->made;
        before = shards->converted ? r->scattered : 0;
    }
    return most;
}

/* Hash of a pair: its stages, and whatever else its places depend on. */
static uint64_t mark_of(const struct moments_stage *f, const struct moments_stage *b, const struct moments_shards *s,
                        const double uses[2])
{
    uint64_t mark = f->mark * 3 + b->mark;
    if (s->gathered <= 0)
        return mark;
    const double left[] = {s->gathered,
                           s->places,
                           s->places_beside,
                           s->blocks,
                           uses[0] < s->places ? uses[0] : s->places,
                           uses[1] < s->places_beside ? uses[1] : s->places_beside,
                           f->uses[0],
                           b->uses[1]};
    return cost_mark(mark, left, sizeof left);
}

double moments_beside(struct moments_pairs *known, const struct moments_stage *f, const struct moments_stage *b,
                      const struct moments_shards *shards, const struct moments_at *at, const double uses[2],
                      double others, double less)
{
    struct pair own;
    if (!known) {
        run_together(f, b, shards, uses, &own);
        return most_of(own.run, b, shards, at);
    }
    uint64_t mark = mark_of(f, b, shards, uses);
    struct known_pair *x = known->places ? *place_of(known, mark) : NULL;
    while (x && x->mark != mark)
        x = x->next;
    if (!x) {
        run_together(f, b, shards, uses, &own);
        x = add_pair(known, mark, &own, b->nruns);
    }
    return x->most + others <= less ? x->most + others : most_of(x->run, b, shards, at);
}

/* ---- places for copies ---- */

/* What the places of a stage hold before its first layer that takes one, when an action of stage `other` runs before
 * or after it. */
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

/* The last layers of the previous F are being copied out as an F begins, and those of the next B are fetched as a B
 * ends.  Both belong to the same stage or, for F before and B after, to the previous stage on its rank; to the
 * rank's other stage where the two directions alternate. */
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
