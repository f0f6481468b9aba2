/* Which candidate of the search becomes the plan.
 *
 * Search ranks decisions by its estimates; what counts are the placed arena and the simulated step of the very instructions.
 * So candidates are compiled in the order of the search, plainer ones first among equals, and the fastest by simulation of
 * those that fit is taken.  One that promises no gain is not compiled, nor are more than RIVALS behind the first that fits;
 * as estimates are off by a percent or two now and then, those that promise to be that close are compiled as well while it costs
 * little, and take its place if they are faster by more than plainness is worth.  What compiling has shown of a decision
 * (bytes placed and seconds simulated, over those estimated) is expected of those alike.  Where no candidate fits, the search
 * is repeated for less memory, by what placing took more, until one fits or nothing is left.  Where candidates that do not fit
 * promise more than a percent, they are tried once more with a little more recomputation, and the search is repeated for less
 * memory twice at most. */

#include "compiler/fit.h"

#include "compiler/place/place.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/units.h"

#include <math.h>
#include <string.h>

enum { RIVALS = 3, ROUNDS = 8, LEANER_ROUNDS = 2, LEANER_BUDGET = 750000 };
#define WORTH 0.005     /* a rival must promise to be faster by that share, */
#define NEAR 0.025      /* or, while little was lowered, not to be slower than by this; */
#define PLAINNESS 0.003 /* then it must be faster by that */
#define USUAL_NEAR 200000u /* instructions, lowered in a fraction of a second */
#define MISSED 0.01     /* what is too large must promise to be faster by that for another search */
#define MOST_OVER 1.1   /* times the memory: what is larger is not tried with more recomputation */
#define LEAST_CUT 0.005 /* of memory, in the first round; twice that in every next one */

/* of both programs of a role; the evaluation's arena begins behind the training's host memory, too */
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

/* does any rank hold rows for experts of others, so that it is a choice how many? */
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
#define ROOM_SPARE 1.02 /* times what is too much is given up */

/* The peak with some room for experts' rows.  Buffers are as many with a few microbatches per stage as with all of them, but
 * for what the ends of the step leave lying; who takes a plan by this looks at its own peak.  A role that takes no more than
 * one before it is not placed any better, and none is behind one that takes more than `limit`. */
static double peak_of_room(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision, double room,
                           uint32_t fill, uint64_t limit, const struct compile_options *o)
{
    struct arena_mark mark = arena_mark(a);
    struct decision d = *decision;
    struct cost *cost;
    d.room = room;
    if (d.schedule != SCHED_AUTO && d.schedule != SCHED_FILE && d.microbatches > fill * d.pp)
        d.microbatches = fill * d.pp;
    if (schedule_unsupported(a, &d)) /* groups of microbatches, which must be whole */
        d.microbatches = decision->microbatches;
    struct plan *p = compile_lowered(a, job, topo, &d, o, true, &cost);
    uint64_t peak = 0;
    for (uint32_t r = 0; r < p->nroles && peak <= limit; r++) {
        place_within(a, p->train[r], 0, peak + program_host_bytes(p->train[r]), 0);
        uint64_t bytes = role_bytes(p, r);
        peak = bytes > peak ? bytes : peak;
    }
    plan_close(p);
    arena_reset(a, mark);
    return (double)peak;
}

/* The plan, if it fits; *placed: its peak.  A long program that is too large is as a rule with a part of its microbatches, too. */
static struct plan *compile_within(struct arena *a, struct job *job, struct topo *topo, const struct decision *d, uint64_t limit,
                                   const struct compile_options *o, uint64_t *placed, const char **why)
{
    if (d->microbatches > LONG * d->pp) {
        *placed = (uint64_t)peak_of_room(a, job, topo, d, d->room, LONG_FILL, UINT64_MAX, o);
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

/* A plan that is too large with the usual room for rows that come to experts, or with room for all of them (0): with as much
 * room as fits, which placement takes almost linearly.  What a row takes is told by the plan with room for the mean and this
 * one, of `peak` bytes.  NULL if even the mean does not fit, or what fits is tight and something else may have the usual room. */
static struct plan *fit_room(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                                 const struct compile_options *o, double usual, double peak, uint64_t limit, const char **why)
{
    struct decision d = *decision;
    double enough = cost_may_be_tight(job, decision) ? 0 : usual > 1 ? COST_NEARLY_USUAL * usual : INFINITY;
    double least = isfinite(enough) ? peak_of_room(a, job, topo, decision, 1, FILL, limit, o) : INFINITY;
    if (least > (double)limit)
        return NULL;
    if (!(usual > 1)) {
        usual = 1.5;
        peak = peak_of_room(a, job, topo, decision, usual, FILL, UINT64_MAX, o);
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
            break; /* what is fullest has no rows for experts */
        placed = (double)bytes;
    }
    return p;
}

/* what compiling has shown of one decision */
struct trial {
    const struct decision *decision;
    double bytes, time; /* placed over estimated; simulated over estimated, 0: not simulated */
};
enum { TRIALS = 64 };
struct fitting {
    struct arena *arena;
    struct diag *diag;
    struct job *job;
    struct topo *topo;
    const struct compile_options *options;
    uint64_t limit, least; /* bytes; least: of what is too large */
    const struct candidate *nearest; /* that */
    struct trial trials[TRIALS];
    uint32_t ntrials, nrivals;
    uint64_t lowered; /* instructions of plans that were compiled */
    double fastest;   /* worth of the fastest plan */
    double missed;    /* the least that was promised by a candidate that is too large */
    double least_ratio; /* of this round's candidates that are too large */
    struct plan *best;
    bool stuck;
};

/* does a step of one take about as much longer than estimated as one of the other? */
static bool alike(const struct decision *x, const struct decision *y)
{
    return x->tp == y->tp && x->cp == y->cp && x->pp == y->pp && x->dp == y->dp && x->ep == y->ep && x->etp == y->etp &&
           x->vpp == y->vpp && x->schedule == y->schedule && x->context == y->context;
}

/* the same of memory */
static bool very_alike(const struct decision *x, const struct decision *y)
{
    return alike(x, y) && x->zero == y->zero && x->microbatch == y->microbatch && x->recompute == y->recompute &&
           x->parts == y->parts;
}

/* Bytes placed over those estimated, as far as anything like d was placed; else 0.  The last that was is most like it: what is
 * found for less memory recomputes as much more. */
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
        f->trials[f->ntrials++] =
            (struct trial){&x->decision, bytes, x->simulated_s / x->estimate.step_time_s};
    if (p || placed >= f->least)
        return;
    f->least = placed;
    f->nearest = x;
}

struct plan *fit_decision(struct arena *a, struct job *job, struct topo *topo, const struct decision *decision,
                          const struct compile_options *o, uint64_t *placed, const char **why)
{
    struct arena_mark mark = arena_mark(a);
    struct decision roomy = *decision;
    roomy.room = usual_room(job, topo, &roomy);
    bool bounds = has_room(job, decision);
    uint64_t limit = decision_memory_bytes(job, topo, &roomy);
    struct plan *p = NULL;
    *why = NULL;
    *placed = bounds ? (uint64_t)peak_of_room(a, job, topo, decision, roomy.room, FILL, UINT64_MAX, o) : 0;
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

/* The plan of a candidate; NULL if it is too large, or stuck. */
static struct plan *fit_candidate(struct fitting *f, struct candidate *x)
{
    const char *why;
    uint64_t placed;
    struct plan *p = fit_decision(f->arena, f->job, f->topo, &x->decision, f->options, &placed, &why);
    f->limit = decision_memory_bytes(f->job, f->topo, &x->decision);
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

/* Is it worth compiling x, of what it promises?  With `*gain` it must then be faster. */
static bool promising(const struct fitting *f, const struct candidate *x, double *gain)
{
    double promised = fit_worth(f->job, promised_s(f, x), &x->decision), best = best_worth(f);
    bool faster = promised < best * (1 - WORTH) && f->nrivals <= RIVALS;
    *gain = faster ? 0 : PLAINNESS;
    return faster || (promised < best * (1 + NEAR) && f->lowered < (f->options->near ? f->options->near : USUAL_NEAR));
}

/* the better of the best plan and p, which must be faster by `gain`; the other is closed */
static void keep_better(struct fitting *f, struct plan *p, double gain)
{
    double new = fit_worth(f->job, 1e-9 * (double)p->timeline->step_ns, &p->decision);
    bool better = new < best_worth(f) * (1 - gain);
    f->fastest = fmin(f->fastest, new);
    if (f->best)
        plan_close(better ? f->best : p);
    f->best = better ? p : f->best;
}

/* Candidates in their order, until none is left that promises to be faster than the best. */
static void try_candidates(struct fitting *f, struct search_result *found)
{
    double gain;
    f->least_ratio = f->fastest = f->missed = INFINITY;
    for (uint32_t i = 0; i < found->ncandidates && !f->stuck; i++) {
        struct candidate *x = &found->candidates[i];
        double bytes = bytes_of(f, &x->decision);
        if (!promising(f, x, &gain))
            continue;
        double promised = fit_worth(f->job, promised_s(f, x), &x->decision);
        if (bytes * (double)x->estimate.peak_bytes > (double)f->limit) {
            f->least_ratio = fmin(f->least_ratio, bytes);
            f->missed = fmin(f->missed, promised);
            continue;
        }
        struct plan *p = fit_candidate(f, x);
        if (!p) {
            f->missed = fmin(f->missed, promised);
            continue;
        }
        f->nrivals++;
        keep_better(f, p, gain);
    }
    found->least = fmin(found->least, f->fastest);
}

/* Searches for less and less memory, until something fits as it is placed. */
static void try_smaller(struct fitting *f, uint32_t top)
{
    double tried = (double)f->limit, empty = 0, cut = LEAST_CUT;
    for (int round = 0; round < ROUNDS && !f->best && !f->stuck && tried - empty > LEAST_CUT * (double)f->limit; round++) {
        struct job smaller = *f->job;
        double next = tried / fmax(isfinite(f->least_ratio) ? f->least_ratio : 1, 1 + cut);
        if (next <= empty)
            next = (tried + empty) / 2;
        smaller.wishes.memory = (uint64_t)next;
        struct search_result *found =
            search(f->arena, diag_new(f->arena), &smaller, f->topo, top, f->options->budget, true);
        cut *= 2;
        if (!found->ncandidates) {
            empty = next;
            continue;
        }
        tried = next;
        try_candidates(f, found);
    }
}

/* d's degrees, microbatch and schedule; what is left open trades memory for time: recomputation, ZeRO level and shards */
static void wish_for(struct wishes *w, const struct decision *d, struct schedule_wish *schedule)
{
    const uint32_t degrees[NDEGREES] = {[DEG_TP] = d->tp, [DEG_CP] = d->cp, [DEG_PP] = d->pp, [DEG_VPP] = d->vpp, [DEG_DP] = d->dp,
                                        [DEG_EP] = d->ep, [DEG_ETP] = d->etp, [DEG_MICROBATCH] = d->microbatch};
    for (uint32_t k = 0; k < NDEGREES; k++)
        if (degrees[k])
            w->degree[k] = (struct wish){.relation = REL_EQ, .value = degrees[k]};
    *schedule = (struct schedule_wish){.kind = d->schedule, .group = d->schedule_group};
    w->schedules = schedule;
    w->nschedules = d->pp > 1;
}

/* is there something too large that promises to be faster than the plan by more than a percent? */
static bool misses(const struct fitting *f)
{
    return !f->stuck && f->missed < best_worth(f) * (1 - MISSED);
}

/* The same decision, too large by a little and promising, with a little more recomputation; with yet more, by what placing that has
 * shown, while what is found is too large again. */
static void try_more_recomputation(struct fitting *f, const struct candidate *x, uint32_t top)
{
    struct job own = *f->job;
    struct schedule_wish schedule;
    double over = (double)x->placed_bytes / (double)f->limit, memory = (double)f->limit;
    if (x->decision.schedule == SCHED_AUTO || x->decision.schedule == SCHED_FILE || over > MOST_OVER || over <= 1)
        return;
    wish_for(&own.wishes, &x->decision, &schedule);
    for (int round = 0; round < LEANER_ROUNDS && (round == 0 || misses(f)); round++) {
        memory = fmin((double)f->limit / (round ? bytes_of(f, &x->decision) : over), memory / (1 + LEAST_CUT));
        own.wishes.memory = (uint64_t)memory;
        try_candidates(f, search(f->arena, diag_new(f->arena), &own, f->topo, top, LEANER_BUDGET, true));
    }
}

/* What promised to be faster than the plan and is too large may fit with a little more recomputation, or less of something else. */
static void try_leaner(struct fitting *f, const struct search_result *first, uint32_t top)
{
    const double missed = f->missed, ratio = f->least_ratio;
    for (uint32_t i = 0, n = 0; i < first->ncandidates && n < RIVALS && !f->stuck; i++) {
        const struct candidate *x = &first->candidates[i];
        double promised = fit_worth(f->job, promised_s(f, x), &x->decision);
        if (x->simulated_s > 0 || !x->placed_bytes || promised >= best_worth(f) * (1 - MISSED))
            continue;
        n++;
        try_more_recomputation(f, x, top);
    }
    f->missed = missed;
    f->least_ratio = ratio;
    double tried = (double)f->limit;
    for (int round = 0; round < LEANER_ROUNDS && misses(f); round++) {
        struct job smaller = *f->job;
        tried /= fmax(isfinite(f->least_ratio) ? f->least_ratio : 1, 1 + LEAST_CUT);
        smaller.wishes.memory = (uint64_t)tried;
        uint64_t budget = f->options->budget ? f->options->budget / 4 : LEANER_BUDGET;
        struct search_result *found = search(f->arena, diag_new(f->arena), &smaller, f->topo, top, budget, true);
        try_candidates(f, found);
    }
}

/* Stated wishes without any one of which something would fit, by estimates that placing has corrected. */
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
    if (!f.best && !f.stuck)
        try_smaller(&f, top);
    else
        try_leaner(&f, found, top);
    *plan = f.best;
    if (f.stuck)
        return STATUS_BUG;
    if (!f.best)
        does_not_fit(&f);
    return f.best ? STATUS_OK : STATUS_NO_PLAN;
}
