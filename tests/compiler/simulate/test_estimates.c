/* What the search ranks a decision by against the programs that come out: the estimate's step time against the simulation of
 * the emitted instructions, its memory against the placed arena and against what may be live at a time, over drawn decisions
 * of realistic size.
 *
 * ESTIMATES=N draws, the first of them SEED; ESTIMATE=S shows draw S alone, with its model and where the time goes.  Prints
 * per schedule and per dimension how far apart they are, and the WORST=N draws of time, of memory by arena and
 * of memory by what may be live. */

#include "compiler/cost/cost_private.h"
#include "compiler/fit.h"
#include "compiler/inspect/show.h"
#include "compiler/place/place.h"
#include "compiler/model/means.h"
#include "compiler/model/sema.h"
#include "compiler/simulate/predict.h"
#include "compiler/support/units.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/random_sizes.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void suite_estimates(void);

enum { MOST_TAGS = 24, MOST_GROUPS = 100, TAG = 24 };

static uint64_t number(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : usual;
}

/* how far the estimate is off, as estimated / had - 1 */
struct sample {
    uint64_t seed;
    double time, arena, possible, spread; /* possible: of what may be live; spread: arena / possible - 1 */
    uint32_t ntags;
    char tags[MOST_TAGS][TAG];
};

static void tag(struct sample *s, const char *kind, const char *what)
{
    if (s->ntags < MOST_TAGS)
        snprintf(s->tags[s->ntags++], TAG, "%s%s%s", kind, *kind && *what ? " " : "", what);
}

static void tag_if(struct sample *s, bool is, const char *yes)
{
    if (is)
        tag(s, yes, "");
}

/* what the decision is made of: one group of the table each */
static void tag_all(struct sample *s, const struct sized_draw *x)
{
    const struct decision *d = &x->decision;
    const struct wishes *w = &x->job->wishes;
    bool experts = false;
    static const char *const zero[] = {"zero 0", "zero 1", "zero 2", "zero 3"};
    for (uint32_t i = 0; i < x->job->model.nlayers; i++)
        experts |= x->job->model.layers[i]->is_moe;
    tag(s, "all", "");
    tag(s, "profile", w->profile_name ? w->profile_name : "llmrun");
    tag(s, d->pp > 1 ? schedule_name(d->schedule) : "no pipeline", "");
    tag(s, experts ? "experts" : "dense", "");
    tag(s, d->dp > 1 ? zero[d->zero] : "dp 1", "");
    tag_if(s, d->zero && d->shard < d->dp * d->cp, "hybrid shard");
    tag(s, "recompute", recompute_names[d->recompute]);
    tag(s, d->tp == 1 ? "tp 1" : d->sp ? "tp, sp" : "tp", "");
    tag(s, d->cp == 1 ? "cp 1" : "cp", d->cp == 1 ? "" : context_names[d->context]);
    tag(s, d->ep == 1 ? "ep 1" : d->ep_nodes > 1 ? "ep over nodes" : "ep", "");
    tag_if(s, d->etp > 1, "etp");
    tag_if(s, d->order[0] != AXIS_TP || d->order[2] != AXIS_DP, "other order");
    tag_if(s, d->microbatch > 1, "microbatch > 1");
    tag_if(s, d->microbatches == 1, "one microbatch");
    tag_if(s, w->offload & OFFLOAD_OPTIMIZER, "offload optimizer");
    tag_if(s, w->offload & OFFLOAD_ACTIVATIONS, "offload activations");
    tag_if(s, decision_cuts(x->job, d) > 1, d->sp ? "overlap tp, sp" : "overlap tp");
    tag_if(s, w->never_overlap & OVERLAP_DP, "never overlap dp");
    tag_if(s, w->never_overlap & OVERLAP_CP, "never overlap cp");
    tag_if(s, w->never_overlap & OVERLAP_TP && d->tp > 1, "never overlap tp");
    tag_if(s, w->never_overlap & OVERLAP_ALL_TO_ALL && d->ep > 1, "never all_to_all");
    tag_if(s, job_is_modelled(x->job), "modelled");
    tag_if(s, x->job->model.predict, "predict");
    tag_if(s, x->job->train.precision == DT_FP8, "fp8");
    tag_if(s, x->job->train.precision == DT_FP16, "fp16");
    tag_if(s, x->job->train.master == DT_BF16, "master bf16");
    tag_if(s, x->job->train.grads == DT_BF16, "grads bf16");
    tag_if(s, x->job->train.reduce != x->job->train.grads, "reduce apart");
    tag_if(s, x->job->train.fp8_sent && experts, "dispatch fp8");
    tag_if(s, x->job->train.fp8_kept, "activations fp8");
}

/* the most that may be live at a time in some run, of the fullest role */
static uint64_t possible_bytes(struct arena *a, const struct plan *p)
{
    uint64_t most = 0;
    for (uint32_t r = 0; r < p->nroles; r++) {
        uint64_t bytes = place_peak(a, p->train[r]).possible;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* by rank: what is placed, what may live at a time in any run, what was estimated; then what lives at the fullest one's peak */
static void show_ranks(struct arena *a, const struct sized_draw *x, const struct plan *p)
{
    const struct cost *c = cost_new(a, x->job, x->topo, &p->decision);
    struct cost_kinds kinds = cost_kinds_new(a, &x->job->model);
    struct cost_shape shape;
    uint32_t fullest = 0;
    cost_shape_init(a, c, &kinds, &shape);
    for (uint32_t r = 0; r < p->nroles; r++) {
        struct estimate e = {0};
        uint64_t gradients = 0, bytes = p->train[r]->arena_bytes - program_host_bytes(p->train[r]);
        for (uint32_t b = 0; b < p->train[r]->nbuffers; b++)
            gradients += strncmp(p->train[r]->buffers[b].name, "grad.", 5) ? 0 : p->train[r]->buffers[b].bytes;
        cost_rank_memory(c, &shape, r, &e);
        printf("rank %u: arena %s, possible %s, estimated %s (gradients %s, really %s; activations %s, buffers %s)\n", r,
               units_show_bytes(bytes).s, units_show_bytes(place_peak(a, p->train[r]).possible).s, units_show_bytes(e.peak_bytes).s,
               units_show_bytes(e.gradient_bytes).s, units_show_bytes(gradients).s, units_show_bytes(e.activation_bytes).s,
               units_show_bytes(e.buffer_bytes).s);
        if (bytes > p->train[fullest]->arena_bytes - program_host_bytes(p->train[fullest]))
            fullest = r;
    }
    show_memory(p, stdout, &(struct show_options){.rank = -1, .stage = fullest, .width = 100});
}

static void show(struct arena *a, const struct sized_draw *x, const struct plan *p, const struct estimate *e)
{
    double step_s = 1e-9 * (double)p->timeline->step_ns;
    printf("\n%s\ncluster %s, %s\n", x->model, x->cluster, decision_text(a, x->job, &p->decision));
    printf("offload %u, overlap %u, never overlap %u, post-validation %d, room %g, prefetch %u, batch %llu\n",
           x->job->wishes.offload, x->job->wishes.overlap, x->job->wishes.never_overlap, x->job->wishes.post_validation, p->decision.room, p->decision.prefetch,
           (unsigned long long)x->job->train.batch);
    printf("step %.5g s, estimated %.5g s: compute %.5g, transfers %.5g, pp %.5g, bubble %.5g,", step_s, e->step_time_s,
           e->compute_s, e->tp_comm_s, e->pp_comm_s, e->bubble_s);
    printf(" dp %.5g, optimizer %.5g\n", e->dp_comm_s, e->optimizer_s);
    printf("arena %s, possible %s, estimated %s on %u: parameters %s,", units_show_bytes(fit_peak_bytes(p)).s,
           units_show_bytes(possible_bytes(a, p)).s, units_show_bytes(e->peak_bytes).s, e->peak_stage,
           units_show_bytes(e->parameter_bytes).s);
    printf(" gradients %s, optimizer %s,", units_show_bytes(e->gradient_bytes).s, units_show_bytes(e->optimizer_bytes).s);
    printf(" activations %s, buffers %s\n", units_show_bytes(e->activation_bytes).s, units_show_bytes(e->buffer_bytes).s);
    show_ranks(a, x, p);
}

/* formats that the jobs of sized_draw() don't have, of every other draw */
static void draw_formats(uint64_t seed, struct train *t)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    if (t->precision == DT_FP32 || random_below(&state, 2))
        return;
    t->master = random_below(&state, 2) ? DT_FP32 : DT_BF16;
    t->moments = random_below(&state, 2) ? DT_FP32 : DT_BF16;
    t->grads = random_below(&state, 2) ? DT_FP32 : DT_BF16;
    t->reduce = random_below(&state, 2) ? t->grads : t->grads == DT_FP32 ? DT_BF16 : DT_FP32;
    if (t->precision != DT_BF16 || t->master != DT_FP32 || random_below(&state, 2))
        return;
    t->precision = DT_FP16;
    t->loss_scale = 65536;
    t->scale_window = 2000;
    t->scale_hysteresis = 1;
    t->grads = t->grads == DT_BF16 ? DT_FP16 : DT_FP32;
    t->reduce = t->reduce == DT_BF16 ? DT_FP16 : DT_FP32;
}

/* what becomes of a drawn job: nothing; another stack's, whose switches are drawn; one that forbids overlaps */
enum variant { AS_DRAWN, OF_A_STACK, IN_TURNS, NVARIANTS };

static void plain_formats(struct train *t)
{
    t->precision = t->precision == DT_FP16 ? DT_BF16 : t->precision;
    t->master = t->moments = t->grads = t->reduce = DT_FP32;
    t->fp8_sent = t->fp8_kept = false;
    t->loss_scale = 0;
}

static void set_setting(struct arena *a, struct job **job, enum target_row row, const char *word)
{
    *job = job_with_setting(a, *job, row, target_bit(row, word));
}

static void vary(struct arena *a, uint64_t seed, enum variant variant, struct sized_draw *x)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + variant;
    static const uint32_t never[] = {OVERLAP_TP, OVERLAP_ALL_TO_ALL, OVERLAP_TP | OVERLAP_ALL_TO_ALL};
    if (variant == IN_TURNS) {
        x->job->wishes.overlap = 0;
        x->job->wishes.never_overlap |= never[random_below(&state, 3)];
    }
    if (variant != OF_A_STACK)
        return;
    bool titan = random_below(&state, 2);
    struct decision *d = &x->decision;
    plain_formats(&x->job->train);
    x->job->wishes.offload = x->job->wishes.overlap = x->job->wishes.never_overlap = 0;
    x->job->wishes.post_validation = false;
    if (!d->listed && !decision_folds(d)) /* what both stacks have */
        d->schedule = d->vpp == 1                                              ? SCHED_1F1B
                      : !titan && d->ep > 1 && d->recompute != RECOMPUTE_FULL ? SCHED_COMBINED_1F1B
                                                                               : SCHED_INTERLEAVED;
    x->job = job_for_target(a, x->job, titan ? "torchtitan" : "megatron-core");
    if (titan && random_below(&state, 3))
        set_setting(a, &x->job, TARGET_async_tp, random_below(&state, 2) ? "yes" : "no");
    if (!titan && random_below(&state, 2))
        set_setting(a, &x->job, TARGET_dispatcher, random_below(&state, 2) ? "alltoall" : "deepep");
    if (!titan && (x->decision.pp == 1 || decision_pairs(x->decision.schedule)) && random_below(&state, 2))
        set_setting(a, &x->job, TARGET_expert_overlap, "yes");
    if (!titan && random_below(&state, 2))
        set_setting(a, &x->job, TARGET_tp_comm_overlap, random_below(&state, 2) ? "yes" : "no");
}

/* false: no decision, or one whose programs get stuck */
static bool try_draw(uint64_t seed, enum variant variant, bool verbose, struct sample *s)
{
    struct arena *a = arena_new();
    struct sized_draw x;
    const char *why = "";
    bool drawn = sized_draw(a, seed, &x);
    if (drawn)
        draw_formats(seed, &x.job->train);
    if (drawn)
        vary(a, seed, variant, &x);
    drawn = drawn && means_allow(a, x.job, &x.decision, &why) && decision_legal(a, x.job, x.topo, &x.decision, &why) &&
            decision_emittable(a, x.job, &x.decision, &why);
    if (drawn)
        job_emits(a, x.job);
    struct plan *p = drawn ? compile_decision(a, x.job, x.topo, &x.decision, &(struct compile_options){0}, &why) : NULL;
    CU_ASSERT(!drawn || p);
    if (drawn && !p)
        printf("\n    draw %llu: %s", (unsigned long long)seed, why);
    if (p) {
        struct estimate e;
        predict(a, cost_new(a, x.job, x.topo, &p->decision), &e);
        x.decision = p->decision;
        *s = (struct sample){.seed = seed, .time = e.step_time_s / (1e-9 * (double)p->timeline->step_ns) - 1};
        double possible = (double)possible_bytes(a, p);
        if (!job_is_modelled(x.job)) { /* else memory is not that of the programs */
            s->arena = (double)e.peak_bytes / (double)fit_peak_bytes(p) - 1;
            s->possible = (double)e.peak_bytes / possible - 1;
            s->spread = (double)fit_peak_bytes(p) / possible - 1;
        }
        tag_all(s, &x);
        if (verbose)
            show(a, &x, p, &e);
        plan_close(p);
    }
    arena_free(a);
    return p != NULL;
}

/* ---- the table ---- */

struct column {
    double *values; /* of one group; their sizes after sorting */
    uint32_t n;
    double middle; /* with its sign */
};

static int ascending(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static double at_share(const struct column *c, double share)
{
    uint32_t k = (uint32_t)ceil(share * c->n);
    return c->n ? c->values[k ? k - 1 : 0] : 0;
}

static void settle(struct column *c)
{
    qsort(c->values, c->n, sizeof *c->values, ascending);
    c->middle = at_share(c, 0.5);
    for (uint32_t i = 0; i < c->n; i++)
        c->values[i] = fabs(c->values[i]);
    qsort(c->values, c->n, sizeof *c->values, ascending);
}

static bool has_tag(const struct sample *s, const char *what)
{
    for (uint32_t i = 0; i < s->ntags; i++)
        if (!strcmp(s->tags[i], what))
            return true;
    return false;
}

static void print_group(const struct sample *samples, uint32_t n, const char *what)
{
    struct column c[4];
    for (int k = 0; k < 4; k++)
        c[k] = (struct column){.values = calloc(n + 1, sizeof(double))};
    for (uint32_t i = 0; i < n; i++) {
        const struct sample *s = &samples[i];
        const double values[] = {s->time, s->arena, s->possible, s->spread};
        for (int k = 0; k < 4 && has_tag(s, what); k++)
            c[k].values[c[k].n++] = values[k];
    }
    printf("%-22s %5u", what, c[0].n);
    for (int k = 0; k < 4; k++) {
        settle(&c[k]);
        printf(k == 3 ? " |" : " | %+6.1f", 100 * c[k].middle);
        printf(" %5.1f %5.1f %6.1f", 100 * at_share(&c[k], 0.5), 100 * at_share(&c[k], 0.95), 100 * at_share(&c[k], 1));
        free(c[k].values);
    }
    printf("\n");
}

static void print_table(const struct sample *samples, uint32_t n)
{
    const char *groups[MOST_GROUPS];
    uint32_t ngroups = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < samples[i].ntags; k++) {
            uint32_t g = 0;
            while (g < ngroups && strcmp(groups[g], samples[i].tags[k]))
                g++;
            if (g == ngroups && g < MOST_GROUPS)
                groups[ngroups++] = samples[i].tags[k];
        }
    for (uint32_t i = 2; i < ngroups; i++) /* in the order of letters, behind "all" */
        for (uint32_t k = i; k > 1 && strcmp(groups[k], groups[k - 1]) < 0; k--) {
            const char *t = groups[k];
            groups[k] = groups[k - 1];
            groups[k - 1] = t;
        }
    printf("\nestimated against what was emitted, in %%: signed median, then median, 95th percentile and worst of its size;\n"
           "memory against the arena and against what may be live at a time; the arena over that\n"
           "%-22s %5s | %-27s| %-27s| %-27s| %s\n", "", "n", "step time", "memory by arena", "memory by possible",
           "arena / possible");
    for (uint32_t g = 0; g < ngroups; g++)
        print_group(samples, n, groups[g]);
}

/* what print_worst() goes by */
static double off_by(const struct sample *s, const char *column)
{
    return !strcmp(column, "time") ? s->time : !strcmp(column, "arena") ? s->arena : s->possible;
}

static void print_worst(const struct sample *samples, uint32_t n, const char *column)
{
    double below = INFINITY;
    for (uint64_t k = number("WORST", 6); k; k--) {
        const struct sample *worst = NULL;
        double most = 0;
        for (uint32_t i = 0; i < n; i++) {
            double off = fabs(off_by(&samples[i], column));
            if (off < below && off > most) {
                worst = &samples[i];
                most = off;
            }
        }
        if (!worst)
            return;
        below = most;
        printf("%s %+.1f%%: LLMC_BUILD=%s ESTIMATE=%llu %s/tests/run =estimates  #", column, 100 * off_by(worst, column),
               e2e_build(), (unsigned long long)worst->seed, e2e_build());
        for (uint32_t i = 1; i < worst->ntags; i++)
            printf(" %s%s", worst->tags[i], i + 1 < worst->ntags ? "," : "\n");
    }
}

/* how far memory is from all that lies between what may be live and what placing makes of it */
static double memory_off(const struct sample *s)
{
    double least = s->possible < s->arena ? s->possible : s->arena, most = s->possible < s->arena ? s->arena : s->possible;
    return (least <= 0 && most >= 0) ? 0 : least > 0 ? least : -most;
}

/* of one figure of all samples: the most at the median, the 90th and the 95th percentile, and at worst */
static void expect_column(const double *values, uint32_t n, const double most[4])
{
    static const double shares[] = {0.5, 0.9, 0.95, 1};
    struct column own = {.values = calloc(n + 1, sizeof(double)), .n = n};
    memcpy(own.values, values, n * sizeof *values);
    settle(&own);
    for (int k = 0; k < 4; k++)
        CU_ASSERT(at_share(&own, shares[k]) <= most[k]);
    free(own.values);
}

/* Bounds that the table of 2,000 draws keeps with room: a model that misses some transfers or buffers does not.  Worse by
 * time are pairs of few microbatches that wait for their host most of the time, and kernels of which a stack hides a share
 * alone. */
static void expect(const struct sample *samples, uint32_t n, enum variant variant)
{
    enum { TIME, MEMORY, POSSIBLE, ARENA, SPREAD, NFIGURES };
    static const double most[NFIGURES][4] = {[TIME] = {0.0015, 0.011, 0.02, 0.065},
                                             [MEMORY] = {0.002, 0.02, 0.035, 0.25},
                                             [POSSIBLE] = {0.001, 0.015, 0.025, 0.3},
                                             [ARENA] = {0.006, 0.035, 0.05, 0.3},
                                             [SPREAD] = {0.006, 0.03, 0.05, 0.2}}; /* of placing alone */
    static const double others[4] = {0.002, 0.012, 0.025, 0.11};
    double *values[NFIGURES];
    for (int k = 0; k < NFIGURES; k++)
        values[k] = calloc(n + 1, sizeof(double));
    for (uint32_t i = 0; i < n; i++) {
        values[TIME][i] = samples[i].time;
        values[MEMORY][i] = memory_off(&samples[i]);
        values[POSSIBLE][i] = samples[i].possible;
        values[ARENA][i] = samples[i].arena;
        values[SPREAD][i] = samples[i].spread;
    }
    for (int k = 0; k < NFIGURES; k++) {
        expect_column(values[k], n, k == TIME && variant != AS_DRAWN ? others : most[k]);
        free(values[k]);
    }
}

/* Programs take the memory that llmrun gives them, whatever stack's times their search goes by. */
static void test_whose_memory(void)
{
    static const char *const stacks[] = {"megatron-2022", "megatron-core", "torch-fsdp"};
    uint32_t differ = 0, faster = 0;
    for (uint64_t seed = 1; seed <= test_draws_usual(200, 60, 40); seed++) {
        struct arena *a = arena_new();
        struct sized_draw x;
        struct estimate own, other, its;
        struct profile profile = {0}, player;
        if (sized_draw(a, seed, &x)) {
            x.decision.prefetch = x.decision.zero == 3; /* both follow from times */
            x.decision.ep_nodes = 1;
            x.job->wishes.profile_name = stacks[seed % (sizeof stacks / sizeof *stacks)];
            CU_ASSERT(profile_find(&profile, x.job->wishes.profile_name) && profile_find(&player, "llmrun"));
            x.job->wishes.profile = &profile;
            cost_estimate(a, cost_new(a, x.job, x.topo, &x.decision), &its);
            job_emits(a, x.job);
            cost_estimate(a, cost_new(a, x.job, x.topo, &x.decision), &other);
            x.job->wishes.profile = &player;
            cost_estimate(a, cost_new(a, x.job, x.topo, &x.decision), &own);
            if (!decision_pairs(x.decision.schedule)) /* there what lives beside one another depends on times */
                CU_ASSERT_EQUAL(other.peak_bytes, own.peak_bytes);
            if (!(x.job->wishes.offload & OFFLOAD_ACTIVATIONS)) { /* what is kept takes time, too */
                bool travels = x.decision.ep * x.decision.etp > 1; /* weights' gradients hide rows, rows less of other transfers */
                CU_ASSERT(travels ? other.step_time_s < 1.01 * its.step_time_s : other.step_time_s == its.step_time_s);
                faster += other.step_time_s < its.step_time_s;
            }
            differ += its.peak_bytes != own.peak_bytes;
        }
        arena_free(a);
    }
    CU_ASSERT(differ > 10);
    CU_ASSERT(faster > 3);
}

static void estimate_all(enum variant variant)
{
    uint64_t one = number("ESTIMATE", 0), first = one ? one : number("SEED", 1);
    uint32_t draws = one ? 1 : (uint32_t)number("ESTIMATES", test_draws_usual(100, 100, 30)), n = 0;
    struct sample *samples = calloc(draws, sizeof *samples);
    for (uint32_t i = 0; i < draws; i++)
        n += try_draw(first + i, variant, one, &samples[n]);
    if (getenv("ESTIMATES") || one) {
        print_table(samples, n);
        print_worst(samples, n, "time");
        print_worst(samples, n, "arena");
        print_worst(samples, n, "possible");
    }
    if (!one)
        expect(samples, n, variant);
    free(samples);
}

static void test_estimates(void)
{
    estimate_all(AS_DRAWN);
}

static void test_stacks(void)
{
    estimate_all(OF_A_STACK);
}

static void test_turns(void)
{
    estimate_all(IN_TURNS);
}

/* one draw each of what memory was once far off for: transfers that wait for a sum; places of layers of two kinds in pairs; one
 * gather for a stage of one layer; gradients on their way of matrices alone, and of a step's second block; the head's gradient with a
 * prediction module; W without copies from host memory; sums of gradients of blocks that are not as large, and those that are
 * converted twice in a step's only microbatch; sums at the end of F beside what the next pass gathers; fewer key
 * heads than ranks of tensor parallelism; inputs and gradients that wait where ranks have several stages;
 * two layers that the next action copies back; sums that parameters asked for before them do not wait for; what one of two actions that
 * run together receives, and copies to host memory, while the other one goes on */
static void test_causes(void)
{
    static const uint64_t draws[] = {895, 4510, 2340, 3239, 2603, 4441, 5606, 384, 225, 176, 937, 1362, 1094, 909, 5672, 685, 731};
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++) {
        struct sample s = {0};
        CU_ASSERT(try_draw(draws[i], AS_DRAWN, false, &s));
        CU_ASSERT(fabs(s.possible) < 0.02);
    }
}

/* Pairs of published sizes: transfers between nodes that the other microbatch hides for the most part, and what of a layer runs
 * again with rows that are gathered again. */
static void test_large_pairs(void)
{
    static const struct {
        const char *model, *cluster, *sets[7];
    } all[] = {
        {"plans/deepseek-v3/model.llm", "topologies/h800-2048.xml", {"expert_room=1.2"}},
        {"plans/llama3-70b/model.llm", "topologies/h800-2048.xml",
         {"gpus=256", "tp=8", "pp=8", "vpp=2", "schedule=combined_1f1b", "recompute=[norm, ffn]", "sequence_parallel=yes"}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        uint32_t n = 0;
        while (n < sizeof all[i].sets / sizeof *all[i].sets && all[i].sets[n])
            n++;
        struct job *job = job_read(a, d, all[i].model, (const char **)all[i].sets, n);
        struct topo *topo = topo_read(a, d, all[i].cluster);
        CU_ASSERT_FATAL(job && topo);
        struct search_result *r = search(a, d, job, topo, 1, 20000, true);
        CU_ASSERT_FATAL(r->ncandidates > 0);
        const char *why;
        struct plan *p = compile_decision(a, job, topo, &r->candidates[0].decision, &(struct compile_options){0}, &why);
        double off = 1e-9 * (double)p->timeline->step_ns / r->candidates[0].estimate.step_time_s - 1;
        if (fabs(off) >= 0.03)
            printf("\n    %s: %s off by %.1f %%", all[i].model, decision_text(a, job, &p->decision), 100 * off);
        CU_ASSERT(fabs(off) < 0.03);
        plan_close(p);
        arena_free(a);
    }
}

void suite_estimates(void)
{
    CU_pSuite s = CU_add_suite("estimates", NULL, NULL);
    CU_add_test(s, "drawn decisions", test_estimates);
    CU_add_test(s, "of other stacks", test_stacks);
    CU_add_test(s, "without overlaps", test_turns);
    CU_add_test(s, "whose memory", test_whose_memory);
    CU_add_test(s, "causes of errors", test_causes);
    CU_add_test(s, "large pairs", test_large_pairs);
}
