/* Which candidate of the search becomes the plan.
 *
 * The search ranks decisions by closed-form estimates; what counts are the placed arena and the simulated step of
 * the emitted instructions.  So candidates are compiled in the order of the search, simpler ones first among equals,
 * and the fastest by simulation among those that fit is taken.  A candidate that promises no gain is not compiled,
 * and neither are more than RIVALS after the first that fits.  Estimates are off by a percent or two now and then,
 * so candidates that are estimated to be that close are compiled afterwards while this is cheap, the most promising
 * first; they replace the best only if they are faster by more than PLAINNESS.
 *
 * What compiling shows of a decision (placed over estimated bytes, simulated over estimated seconds) corrects the
 * estimates of similar decisions.  Where no candidate fits, the search is repeated with the memory budget reduced by
 * what placement took in excess, until one fits or nothing is left.  Where candidates that did not fit promise to be
 * faster than the plan by more than a percent, they are tried once more with a little more recomputation, and the
 * search is repeated with a smaller memory budget, at most twice: the budget under which the first candidate fits may
 * be too small for the best decision as it is, and too large for its placement. */

#include "compiler/fit.h"

#include "compiler/place/place.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/units.h"

#include <math.h>
#include <string.h>

enum { RIVALS = 3, ROUNDS = 8, LEANER_ROUNDS = 2, LEANER_BUDGET = 750000 };
#define WORTH 0.005        /* a further candidate must promise to be faster by that share, */
#define NEAR 0.025         /* or, while few instructions were lowered, not to be slower than by this share; */
#define PLAINNESS 0.003    /* in which case its simulated step must be faster by that share to be taken */
#define USUAL_NEAR 200000u /* instructions; so many are lowered in a fraction of a second */
#define MISSED 0.01        /* what is too large must promise to be faster by that share to start another search */
#define MOST_OVER 1.1      /* times the memory budget: a larger candidate is not tried with more recomputation */
#define LEAST_CUT 0.005    /* share of the memory budget that the first round gives up; doubled in every later one */

/* Bytes of device memory that a role needs: the larger of its training and evaluation arenas.  Both arenas begin
 * with the training program's host memory, which is subtracted. */
static uint64_t role_bytes(const struct plan *p, uint32_t role)
{
    const struct program *both[] = {p->train[role], p->eval[role]};
    uint64_t peak = 0;
    for (int k = 0; k < 2 && both[k]; k++) {
        uint64_t bytes = both[k]->arena_bytes - program_host_bytes(both[0]);
        peak = bytes > peak ? bytes : peak;
    }
    return peak;
}

uint64_t fit_peak_bytes(const struct plan *p)
{
    uint64_t peak = 0;
    for (uint32_t r = 0; r < p->nroles; r++) {
        uint64_t bytes = role_bytes(p, r);
        peak = bytes > peak ? bytes : peak;
    }
    return peak;
}

bool fit_room_is_open(const struct job *job)
{
    bool experts = false;
    for (uint32_t i = 0; i < model_all_layers(&job->model); i++) {
        const struct layer *l = model_layer(&job->model, i);
        experts |= l->is_moe && !(l->moe.capacity > 0);
    }
    return experts && !(job->train.expert_room > 0);
}

/* Does d leave open how many expert rows a rank has memory for?  Only with ep > 1, where rows arrive from other
 * ranks. */
static bool has_room(const struct job *job, const struct decision *d)
{
    return fit_room_is_open(job) && d->ep > 1 && !(d->room > 0);
}

static double usual_room(const struct job *job, const struct topo *topo, const struct decision *d)
{
    return has_room(job, d) ? cost_usual_room(job, &topo->types[d->type].gpu) : d->room;
}

enum { FILL = 2, LONG_FILL = 16, LONG = 64 }; /* microbatches per stage */
enum { ROOM_TRIES = 3 };
#define ROOM_SPARE 1.02 /* times the excess bytes: how much is given up per try */

/* Returns the peak in bytes with that capacity for expert rows.  With many microbatches, only `fill` of them per
 * pipeline rank are lowered: the buffers are as many as with all of them, up to what the ends of the step leave
 * allocated, so a caller who accepts a plan by this figure checks the plan's own peak. */
static double peak_of_room(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                           double room, uint32_t fill, const struct compile_options *o)
{
    struct arena_mark mark = arena_mark(a);
    struct decision d = *decision;
    struct cost *cost;
    d.room = room;
    if (d.schedule != SCHED_AUTO && d.schedule != SCHED_FILE && d.microbatches > fill * d.pp)
        d.microbatches = fill * d.pp;
    if (schedule_unsupported(a, &d)) /* a schedule whose microbatches come in whole groups */
        d.microbatches = decision->microbatches;
    struct plan *p = compile_lowered(a, job, topo, &d, o, true, &cost);
    place_roles(a, p->train, NULL, p->nroles, PLACE_FOR_PEAK);
    uint64_t peak = fit_peak_bytes(p);
    plan_close(p);
    arena_reset(a, mark);
    return (double)peak;
}

/* Returns the plan if it fits in `limit` bytes, else NULL; *placed is its peak.  A long program is tried with part
 * of its microbatches first, since one that is too large is usually too large with those already. */
static struct plan *compile_within(struct arena *a, struct job *job, struct topo *topo, const struct decision *d,
                                   uint64_t limit, const struct compile_options *o, uint64_t *placed, const char **why)
{
    if (d->microbatches > LONG * d->pp) {
        *placed = (uint64_t)peak_of_room(a, job, topo, d, d->room, LONG_FILL, o);
        if (*placed > limit)
            return NULL;
    }
    struct plan *p = compile_decision(a, job, topo, d, o, why);
    if (!p)
        return NULL;
    *placed = fit_peak_bytes(p);
    if (*placed <= limit)
        return p;
    plan_close(p);
    return NULL;
}

/* For a decision that is too large with the usual capacity for expert rows, or with capacity for every row that can
 * come (usual = 0): compiles it with the largest capacity that fits.  The arena grows almost linearly with the
 * capacity; bytes per unit of capacity are measured by a plan with capacity for the mean and this one, whose peak is
 * `peak` bytes.  NULL if even the mean does not fit, or if what fits is tight and a different decision could have
 * the usual capacity. */
static struct plan *fit_room(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                             const struct compile_options *o, double usual, double peak, uint64_t limit,
                             const char **why)
{
    struct decision d = *decision;
    double enough = cost_may_be_tight(job, decision) ? 0 : usual > 1 ? COST_NEARLY_USUAL * usual : INFINITY;
    double least = isfinite(enough) ? peak_of_room(a, job, topo, decision, 1, FILL, o) : INFINITY;
    if (least > (double)limit)
        return NULL;
    if (!(usual > 1)) {
        usual = 1.5;
        peak = peak_of_room(a, job, topo, decision, usual, FILL, o);
    }
    if (peak <= least)
        return NULL;
    struct plan *p = NULL;
    double placed = peak, each = (peak - least) / (usual - 1); /* bytes */
    d.room = usual;
    for (int tries = 0; !p && d.room > 1; tries++) {
        double less = ROOM_SPARE * (placed - (double)limit) / each;
        d.room = tries < ROOM_TRIES ? fmax(1, floor((d.room - less) * 100) / 100) : 1;
        if (d.room < enough)
            break;
        uint64_t bytes;
        p = compile_within(a, job, topo, &d, limit, o, &bytes, why);
        if (tries && (double)bytes >= placed && enough > 0)
            break; /* the fullest role holds no expert rows */
        placed = (double)bytes;
    }
    return p;
}

/* what compiling has shown of one decision */
struct trial {
    const struct decision *decision;
    double bytes, time; /* placed over estimated bytes; simulated over estimated seconds, 0: not simulated */
};
enum { TRIALS = 64 };
struct fitting {
    struct arena *arena;
    struct diag *diag;
    struct job *job;
    struct topo *topo;
    const struct compile_options *options;
    /* limit: memory budget, bytes; least: the fewest placed bytes of any candidate that is too large */
    uint64_t limit, least;
    const struct candidate *nearest; /* the candidate with `least` bytes */
    struct trial trials[TRIALS];
    uint32_t ntrials, nrivals;
    double tried;       /* memory budget of the last search in which nothing was pinned, bytes */
    uint64_t lowered;   /* instructions of plans that were compiled */
    double fastest;     /* objective of the fastest plan compiled (fit_worth()) */
    double missed;      /* the least objective that a candidate that is too large promised */
    double least_ratio; /* least placed over estimated bytes among this round's candidates that are too large */
    struct plan *best;
    bool stuck;
};

/* Are two decisions so similar that the ratio of simulated to estimated seconds of one predicts that of the other? */
static bool alike(const struct decision *x, const struct decision *y)
{
    return x->tp == y->tp && x->cp == y->cp && x->pp == y->pp && x->dp == y->dp && x->ep == y->ep && x->etp == y->etp &&
           x->vpp == y->vpp && x->schedule == y->schedule && x->context == y->context && x->sp == y->sp;
}

/* The same for the ratio of placed to estimated bytes. */
static bool very_alike(const struct decision *x, const struct decision *y)
{
    return alike(x, y) && x->zero == y->zero && x->microbatch == y->microbatch && x->recompute == y->recompute &&
           x->parts == y->parts;
}

/* Returns placed over estimated bytes of the decision most like d that was placed, or 0 if none was.  The latest is
 * the most similar: candidates found for less memory use as much more recomputation. */
static double bytes_of(const struct fitting *f, const struct decision *d)
{
    for (uint32_t i = f->ntrials; i-- > 0;)
        if (very_alike(f->trials[i].decision, d))
            return f->trials[i].bytes;
    return 0;
}

static double promised_s(const struct fitting *f, const struct candidate *x)
{
    for (uint32_t i = 0; i < f->ntrials; i++)
        if (f->trials[i].time > 0 && alike(f->trials[i].decision, &x->decision))
            return x->estimate.step_time_s * f->trials[i].time;
    return x->estimate.step_time_s;
}

static void learn(struct fitting *f, struct candidate *x, uint64_t placed, const struct plan *p)
{
    double bytes = (double)placed / (double)(x->estimate.peak_bytes ? x->estimate.peak_bytes : 1);
    x->placed_bytes = p ? fit_peak_bytes(p) : placed;
    x->simulated_s = p ? 1e-9 * (double)p->timeline->step_ns : 0;
    for (uint32_t r = 0; p && r < p->nroles; r++)
        f->lowered += p->train[r]->ninsns;
    if (!p)
        f->least_ratio = fmin(f->least_ratio, bytes);
    if (f->ntrials < TRIALS)
        f->trials[f->ntrials++] = (struct trial){&x->decision, bytes, x->simulated_s / x->estimate.step_time_s};
    if (p || placed >= f->least)
        return;
    f->least = placed;
    f->nearest = x;
}

/* What the programs' arena may take.  Of another stack they are a model: its own bytes, which the search holds to the
 * memory, are the cost model's. */
static uint64_t arena_limit(const struct job *job, const struct topo *topo, const struct decision *d)
{
    return job_is_modelled(job) ? INT64_MAX : decision_memory_bytes(job, topo, d);
}

struct plan *fit_decision(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                          const struct compile_options *o, uint64_t *placed, const char **why)
{
    struct arena_mark mark = arena_mark(a);
    struct decision roomy = *decision;
    roomy.room = usual_room(job, topo, &roomy);
    bool bounds = has_room(job, decision);
    uint64_t limit = arena_limit(job, topo, &roomy);
    struct plan *p = NULL;
    *why = NULL;
    *placed = bounds ? (uint64_t)peak_of_room(a, job, topo, decision, roomy.room, FILL, o) : 0;
    if (*placed <= limit)
        p = compile_within(a, job, topo, &roomy, limit, o, placed, why);
    if (!p && *why)
        return NULL;
    if (!p && bounds)
        p = fit_room(a, job, topo, decision, o, roomy.room, (double)*placed, limit, why);
    *why = NULL;
    if (!p)
        arena_reset(a, mark);
    return p;
}

/* Returns the plan of a candidate; NULL if it is too large, or if its lowered step deadlocks (f->stuck). */
static struct plan *fit_candidate(struct fitting *f, struct candidate *x)
{
    const char *why;
    uint64_t placed;
    struct plan *p = fit_decision(f->arena, f->job, f->topo, &x->decision, f->options, &placed, &why);
    f->limit = arena_limit(f->job, f->topo, &x->decision);
    f->stuck = why != NULL;
    if (f->stuck)
        diag_error(f->diag, (struct span){0}, "bug", "the lowered step gets stuck: %s", why);
    else
        learn(f, x, placed, p);
    return p;
}

double fit_worth(const struct job *job, double step_s, const struct decision *d)
{
    return step_s * (job->wishes.objective == MINIMIZE_GPU_TIME ? d->gpus_used : 1);
}

static double best_worth(const struct fitting *f)
{
    return f->best ? fit_worth(f->job, 1e-9 * (double)f->best->timeline->step_ns, &f->best->decision) : INFINITY;
}

/* the objective that a candidate promises, by what compiling others has shown */
static double promised(const struct fitting *f, const struct candidate *x)
{
    return fit_worth(f->job, promised_s(f, x), &x->decision);
}

/* Keeps the better of the best plan and p, which must be faster by the share `gain` to win; closes the other one. */
static void keep_better(struct fitting *f, struct plan *p, double gain)
{
    double new = fit_worth(f->job, 1e-9 * (double)p->timeline->step_ns, &p->decision);
    bool better = new < best_worth(f) * (1 - gain);
    f->fastest = fmin(f->fastest, new);
    if (f->best)
        plan_close(better ? f->best : p);
    f->best = better ? p : f->best;
}

/* Which candidate is compiled next: the first that promises to be faster than the best plan, else, while few
 * instructions were lowered, the one that promises the most of those that are near.  *gain: the share by which its
 * simulated step must then be faster than the best.  NULL: none is worth it. */
static struct candidate *next_candidate(const struct fitting *f, const struct search_result *found, const bool *tried,
                                        double *gain)
{
    const double best = best_worth(f);
    const bool cheap = f->lowered < (f->options->near ? f->options->near : USUAL_NEAR);
    struct candidate *near = NULL;
    for (uint32_t i = 0; i < found->ncandidates; i++) {
        struct candidate *x = &found->candidates[i];
        if (tried[i])
            continue;
        *gain = 0;
        if (promised(f, x) < best * (1 - WORTH) && f->nrivals <= RIVALS)
            return x;
        double bound = near ? promised(f, near) * (1 - PLAINNESS) : best * (1 + NEAR);
        if (cheap && promised(f, x) < bound)
            near = x;
    }
    *gain = PLAINNESS;
    return near;
}

/* Compiles candidates as long as they promise to be faster than the best plan. */
static void try_candidates(struct fitting *f, struct search_result *found)
{
    bool *tried = ARENA_ARRAY(f->arena, bool, found->ncandidates + 1);
    struct candidate *x;
    double gain;
    f->least_ratio = f->fastest = f->missed = INFINITY;
    while (!f->stuck && (x = next_candidate(f, found, tried, &gain))) {
        double bytes = bytes_of(f, &x->decision), promises = promised(f, x);
        tried[x - found->candidates] = true;
        if (bytes * (double)x->estimate.peak_bytes > (double)f->limit) {
            f->least_ratio = fmin(f->least_ratio, bytes);
            f->missed = fmin(f->missed, promises);
            continue;
        }
        struct plan *p = fit_candidate(f, x);
        if (!p) {
            f->missed = fmin(f->missed, promises);
            continue;
        }
        f->nrivals++;
        keep_better(f, p, gain);
    }
    found->least = fmin(found->least, f->fastest);
}

/* Repeats the search with a shrinking memory budget until a candidate fits as placed. */
static void try_smaller(struct fitting *f, uint32_t top)
{
    double empty = 0, cut = LEAST_CUT;
    for (int round = 0; round < ROUNDS && !f->best && !f->stuck && f->tried - empty > LEAST_CUT * (double)f->limit;
         round++) {
        struct job smaller = *f->job;
        double next = f->tried / fmax(isfinite(f->least_ratio) ? f->least_ratio : 1, 1 + cut);
        if (next <= empty)
            next = (f->tried + empty) / 2;
        smaller.wishes.memory = (uint64_t)next;
        struct search_result *found = search(f->arena, diag_new(f->arena), &smaller, f->topo, top, f->options->budget,
                                             true);
        cut *= 2;
        if (!found->ncandidates) {
            empty = next;
            continue;
        }
        f->tried = next;
        try_candidates(f, found);
    }
}

/* Pins d's degrees, microbatch and schedule.  What stays open trades memory for time: recomputation, ZeRO level and
 * shards. */
static void wish_for(struct wishes *w, const struct decision *d, struct schedule_wish *schedule)
{
    for (enum degree k = 0; k < NDEGREES; k++)
        if (k != DEG_ZERO && k != DEG_SHARD && k != DEG_GPUS)
            w->degree[k] = (struct wish){.relation = REL_EQ, .value = decision_degree(d, k)};
    *schedule = (struct schedule_wish){.kind = d->schedule, .group = d->schedule_group};
    w->schedules = schedule;
    w->nschedules = d->pp > 1;
}

/* Does a candidate that is too large promise to be faster than the plan by more than a percent? */
static bool misses(const struct fitting *f)
{
    return !f->stuck && f->missed < best_worth(f) * (1 - MISSED);
}

/* Tries a promising decision that is slightly too large again with a little more recomputation, and, while what is
 * found is still too large, with more, by what placing it and similar ones has shown. */
static void try_more_recomputation(struct fitting *f, const struct candidate *x, uint32_t top)
{
    struct job own = *f->job;
    struct schedule_wish schedule;
    double over = (double)x->placed_bytes / (double)f->limit, memory = (double)f->limit;
    if (x->decision.schedule == SCHED_AUTO || x->decision.schedule == SCHED_FILE || over > MOST_OVER || over <= 1)
        return;
    wish_for(&own.wishes, &x->decision, &schedule);
    for (int round = 0; round < LEANER_ROUNDS && (round == 0 || misses(f)); round++) {
        memory = fmin((double)f->limit / fmax(over, bytes_of(f, &x->decision)), memory / (1 + LEAST_CUT));
        own.wishes.memory = (uint64_t)memory;
        try_candidates(f, search(f->arena, diag_new(f->arena), &own, f->topo, top, LEANER_BUDGET, true));
    }
}

/* Candidates that promised to be faster than the plan but are too large may fit with a little more recomputation, or
 * with less memory elsewhere. */
static void try_leaner(struct fitting *f, const struct search_result *first, uint32_t top)
{
    const double missed = f->missed, ratio = f->least_ratio;
    for (uint32_t i = 0, n = 0; i < first->ncandidates && n < RIVALS && !f->stuck; i++) {
        const struct candidate *x = &first->candidates[i];
        if (x->simulated_s > 0 || !x->placed_bytes || promised(f, x) >= best_worth(f) * (1 - MISSED))
            continue;
        n++;
        try_more_recomputation(f, x, top);
    }
    f->missed = missed;
    f->least_ratio = ratio;
    for (int round = 0; round < LEANER_ROUNDS && misses(f); round++) {
        struct job smaller = *f->job;
        f->tried /= fmax(isfinite(f->least_ratio) ? f->least_ratio : 1, 1 + LEAST_CUT);
        smaller.wishes.memory = (uint64_t)f->tried;
        uint64_t budget = f->options->budget ? f->options->budget / 4 : LEANER_BUDGET;
        struct search_result *found = search(f->arena, diag_new(f->arena), &smaller, f->topo, top, budget, true);
        try_candidates(f, found);
    }
}

/* Names stated wishes of which dropping any single one would let a plan fit, by estimates that placement has
 * corrected. */
static const char *advice(struct fitting *f)
{
    enum { MOST = 3 };
    struct relaxation *list;
    struct job smaller = *f->job;
    double ratio = (double)f->least / (double)f->nearest->estimate.peak_bytes;
    smaller.wishes.memory = (uint64_t)((double)f->limit / fmax(ratio, 1));
    uint32_t n = search_relaxations(f->arena, &smaller, f->topo, true, 0, &list), said = 0;
    const char *text = "";
    for (uint32_t i = 0; i < n && said < MOST; i++) {
        bool memory = !strcmp(list[i].wish, "memory");
        if (!list[i].found || (memory && !f->job->wishes.memory))
            continue;
        text = arena_printf(f->arena, "%s%s'%s': %s", text, said++ ? "; or " : "it would fit without ", list[i].wish,
                            decision_text(f->arena, f->job, &list[i].candidate.decision));
    }
    return said ? text : "use more GPUs, or GPUs with more memory";
}

static void does_not_fit(struct fitting *f)
{
    diag_error(f->diag, f->job->wishes.memory_span, "no-plan",
               "nothing fits in %s bytes%s. Closest: %s, placed in %s bytes", units_show_commas(f->limit).s,
               decision_free_text(f->arena, f->job, &f->topo->types[f->nearest->decision.type].gpu),
               decision_text(f->arena, f->job, &f->nearest->decision), units_show_commas(f->least).s);
    diag_help(f->diag, "%s", advice(f));
}

enum status fit_plan(struct arena *a, struct diag *d, struct job *job, struct topo *topo, struct search_result *found,
                     uint32_t top, const struct compile_options *o, struct plan **plan)
{
    struct fitting f = {.arena = a, .diag = d, .job = job, .topo = topo, .options = o, .least = UINT64_MAX};
    try_candidates(&f, found);
    f.tried = (double)f.limit;
    if (!f.best && !f.stuck)
        try_smaller(&f, top);
    if (f.best)
        try_leaner(&f, found, top);
    *plan = f.best;
    if (f.stuck)
        return STATUS_BUG;
    if (!f.best)
        does_not_fit(&f);
    return f.best ? STATUS_OK : STATUS_NO_PLAN;
}
