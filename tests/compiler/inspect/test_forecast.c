/* What estimates tell is what plans are: drawn jobs with drawn pins, asked for both ways.  FORECASTS=N draws, SEED=M the first. */

#include "compiler/inspect/estimate.h"
#include "compiler/inspect/forecast.h"
#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "tests/compiler/random_model.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void suite_forecast(void);

static const char *const pins[] = {"tp = 1", "tp = 2", "pp = 2", "dp = 2", "zero = 1", "zero in [2, 3]", "schedule 1f1b",
                                   "schedule in [zb_v, interleaved]", "recompute full", "minimize gpu_time", "cp <= 2", "gpus <= 3"};

/* a drawn job, the same for the same seed; NULL where its pins are refused */
static struct job *drawn_job(struct arena *a, uint64_t seed)
{
    uint64_t state = seed;
    const char *text = random_model(a, &state), *plan = "plan {\n";
    for (uint32_t n = random_below(&state, 3); n > 0; n--)
        plan = arena_printf(a, "%s    %s\n", plan, pins[random_below(&state, sizeof pins / sizeof *pins)]);
    struct source *source = ARENA_NEW(a, struct source);
    const char *whole = arena_printf(a, "%s%s}\n", text, plan);
    *source = (struct source){"drawn", whole, strlen(whole), false};
    return job_parse(a, diag_new(a), source, NULL, 0);
}

static bool same(double x, double y)
{
    return fabs(x - y) <= 1e-12 * fabs(x);
}

/* decision, time and memory of the forecast against the plan's, items against their sums */
static bool agrees(struct arena *a, const struct job *job, const struct topo *topo, const struct forecast *f, const struct plan *p)
{
    const struct candidate *c = &f->found->candidates[0];
    const struct estimate *e = &c->estimate;
    struct predicted told = estimate_predicted(job, topo, c), is = plan_predicted(p);
    double seconds = e->compute_s + e->tp_comm_s + e->pp_comm_s + e->dp_comm_s + e->bubble_s + e->optimizer_s;
    uint64_t bytes = e->parameter_bytes + e->gradient_bytes + e->optimizer_bytes + e->activation_bytes + e->buffer_bytes +
                     e->allocator_bytes + e->communicator_bytes + e->context_bytes;
    return !strcmp(decision_text(a, job, &c->decision), decision_text(a, p->job, &p->decision)) &&
           !strcmp(decision_layout(a, &c->decision), decision_layout(a, &p->decision)) && c->emittable &&
           told.step_time_s == is.step_time_s && told.peak_memory_bytes == is.peak_memory_bytes &&
           told.peak_memory_rank == is.peak_memory_rank && same(told.bubble_fraction, is.bubble_fraction) &&
           same(told.exposed_comm_fraction, is.exposed_comm_fraction) && same(seconds, e->step_time_s) &&
           bytes == e->peak_bytes && e->compute_s > 0 && f->found->gap == p->search.gap;
}

/* Others that were compiled: none is below the plan's gap or faster by more than plainness is worth, and which fit is told. */
static bool others_hold(const struct job *job, const struct topo *topo, const struct forecast *f)
{
    bool by_gpus = job->wishes.objective == MINIMIZE_GPU_TIME;
    const struct decision *d = &f->plan->decision;
    double own = 1e-9 * (double)f->plan->timeline->step_ns * (by_gpus ? d->gpus_used : 1);
    for (uint32_t i = 1; i < f->found->ncandidates; i++) {
        const struct candidate *c = &f->found->candidates[i];
        double worth = c->simulated_s * (by_gpus ? c->decision.gpus_used : 1);
        uint64_t most = decision_memory_bytes(job, topo, &c->decision);
        if (c->simulated_s > 0 && (worth < own * (1 - f->found->gap) * (1 - 1e-12) || worth < 0.997 * own || c->placed_bytes > most))
            return false;
        if (c->placed_bytes && c->simulated_s <= 0 && c->placed_bytes <= most)
            return false;
    }
    return true;
}

/* 1: both ways give the same plan; 0: both give none; -1: they disagree */
static int try_job(uint64_t seed)
{
    struct arena *a = arena_new();
    struct topo *topo = random_host(a, 1u << (seed % 4));
    struct job *job = drawn_job(a, seed), *again = drawn_job(a, seed);
    struct forecast f = {0};
    struct plan *p = NULL;
    int got = 0;
    if (job) {
        uint32_t top = (uint32_t)(seed % 3 ? seed % 20 : 0);
        enum status told = forecast(a, diag_new(a), job, topo, top, 0, &f);
        enum status is = compile_best(a, diag_new(a), again, topo, &(struct compile_options){.top = top > COMPILE_TOP ? top : 0}, &p, NULL);
        bool good = p ? told == STATUS_OK && f.plan && agrees(a, job, topo, &f, p) : told != STATUS_OK || (is == STATUS_NO_PLAN && !f.plan);
        good = good && (!p || others_hold(job, topo, &f));
        for (uint32_t i = 1; good && p && i < f.found->ncandidates; i++) /* told once */
            good = strcmp(decision_text(a, job, &f.found->candidates[i].decision), decision_text(a, job, &p->decision)) != 0 ||
                   strcmp(decision_layout(a, &f.found->candidates[i].decision), decision_layout(a, &p->decision)) != 0;
        got = !good ? -1 : p != NULL;
        if (!good)
            printf("\n    seed %llu: told %d, is %d: %s\n", (unsigned long long)seed, told, is,
                   p ? decision_text(a, again, &p->decision) : "no plan");
    }
    plan_close(f.plan);
    plan_close(p);
    arena_free(a);
    return got;
}

static void test_plans(void)
{
    const char *own = getenv("FORECASTS"), *seed = getenv("SEED");
    uint32_t n = own ? (uint32_t)strtoul(own, NULL, 10) : test_draws(200, 40), planned = 0, wrong = 0;
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 1;
    for (uint32_t i = 0; i < n; i++) {
        int got = try_job(first + i);
        planned += got > 0;
        wrong += got < 0;
    }
    if (own)
        printf("\n    %u jobs drawn, %u of them planned; %u told otherwise by their estimate ", n, planned, wrong);
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(planned > n / 4);
}

/* what no plan can be written of is told with the search's figures, and said so */
static void test_not_emitted(void)
{
    struct arena *a = arena_new();
    struct topo *topo = random_host(a, 2);
    struct diag *d = diag_new(a);
    static const char *const sets[] = {"tp=2", "pp=1"};
    struct source source = {"full", "llmc 1\nmodel tiny {\n vocab 256\n width 64\n norm rmsnorm\n embed tokens\n layer {\n"
                                    " attn gqa(heads=8, kv=4, qk_norm=full, rope=10_000)\n ffn swiglu(128)\n }\n head untied\n}\n"
                                    "train {\n sequence 64\n batch 2 sequences\n precision fp32\n optimizer adamw(lr=1e-3)\n}\n",
                            0, false};
    source.size = strlen(source.text);
    struct job *job = job_parse(a, d, &source, sets, 2);
    struct forecast f;
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    CU_ASSERT_EQUAL_FATAL(forecast(a, d, job, topo, 3, 0, &f), STATUS_OK);
    CU_ASSERT_PTR_NULL(f.plan);
    CU_ASSERT_FATAL(f.found->ncandidates >= 1);
    CU_ASSERT(!f.found->candidates[0].emittable && *f.found->candidates[0].cannot);
    CU_ASSERT_EQUAL(diag_errors(d), 0);
    arena_free(a);
}

/* messages of one list behind those of another: text, completions and count */
static void test_append(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a), *from = diag_new(a);
    diag_warning(d, (struct span){0}, "first", "one");
    diag_error(from, (struct span){0}, "second", "two");
    diag_help(from, "a way out");
    diag_append(d, from);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    diag_print(d, out, false);
    fclose(out);
    CU_ASSERT_STRING_EQUAL(text, "warning: one\nerror: two\n   help: a way out\n");
    CU_ASSERT(diag_errors(d) == 1 && diag_warnings(d) == 1 && diag_has(d, "second"));
    free(text);
    arena_free(a);
}

void suite_forecast(void)
{
    CU_pSuite s = CU_add_suite("forecast", NULL, NULL);
    CU_add_test(s, "an estimate tells of the plan", test_plans);
    CU_add_test(s, "what cannot be emitted is told with the search's figures", test_not_emitted);
    CU_add_test(s, "messages are appended", test_append);
}
