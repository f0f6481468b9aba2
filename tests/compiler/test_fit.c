/* Which candidate of a search becomes the plan: lists made by hand of decisions whose simulated steps are known,
 * with estimates as the case wants them. */

#include "compiler/fit.h"

#include "compiler/search/search.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <math.h>

void suite_fit(void);

/* SLOW and FAST are alike in what trials are compared by, OTHER is like neither and in between */
enum { SLOW, FAST, OTHER, NDECISIONS, MOST = 6 };
static const char *const decisions[] = {"tp=2 dp=2 microbatch=1", "tp=2 dp=2 microbatch=4", "dp=4 microbatch=1"};

struct entry {
    int decision;
    int of; /* estimated at this share of the simulated step of that decision */
    double share;
};
struct rule {
    const char *rule;
    struct entry list[MOST];
    uint32_t n;
    int chosen;
};
static const struct rule cases[] = {
    {"the fastest by simulation is taken", {{SLOW, SLOW, 1}, {FAST, FAST, 1}}, 2, FAST},
    {"a promise that is not kept changes nothing", {{FAST, FAST, 1}, {SLOW, FAST, 0.5}}, 2, FAST},
    {"half a percent must be promised", {{SLOW, SLOW, 1}, {FAST, SLOW, 0.996}}, 2, SLOW},
    {"more than half a percent is tried", {{SLOW, SLOW, 1}, {FAST, SLOW, 0.994}}, 2, FAST},
    {"one alike took twice as long as estimated", {{SLOW, SLOW, 0.5}, {FAST, SLOW, 0.6}}, 2, SLOW},
    {"one that is not alike teaches nothing", {{SLOW, SLOW, 0.5}, {OTHER, SLOW, 0.6}}, 2, OTHER},
    {"nor does it hide what another taught", {{SLOW, SLOW, 1}, {OTHER, OTHER, 0.5}, {FAST, OTHER, 0.9}}, 3, FAST},
    {"three rivals are tried",
     {{SLOW, SLOW, 1}, {SLOW, SLOW, 0.5}, {SLOW, SLOW, 0.5}, {FAST, SLOW, 0.5}},
     4,
     FAST},
    {"a fourth is not",
     {{SLOW, SLOW, 1}, {SLOW, SLOW, 0.5}, {SLOW, SLOW, 0.5}, {SLOW, SLOW, 0.5}, {FAST, SLOW, 0.5}},
     5,
     SLOW},
};
/* where little was lowered yet */
static const struct rule near_cases[] = {
    {"one that promises as much is tried", {{SLOW, SLOW, 1}, {FAST, SLOW, 1}}, 2, FAST},
    {"one that promises a little less is tried", {{SLOW, SLOW, 1}, {FAST, SLOW, 1.024}}, 2, FAST},
    {"one that promises more than two and a half percent less is not", {{SLOW, SLOW, 1}, {FAST, SLOW, 1.026}}, 2, SLOW},
    {"the first stays among equals", {{FAST, FAST, 1}, {SLOW, FAST, 1}}, 2, FAST},
    {"rivals are not counted",
     {{SLOW, SLOW, 1}, {SLOW, SLOW, 0.5}, {SLOW, SLOW, 0.5}, {SLOW, SLOW, 0.5}, {FAST, SLOW, 0.5}},
     5,
     FAST},
};

/* seconds of the simulated step */
static double step_s(const struct plan *p)
{
    return 1e-9 * (double)p->timeline->step_ns;
}

/* the decisions and what their steps take */
struct known {
    struct arena *a;
    struct job *job;
    struct topo *topo;
    struct decision d[NDECISIONS];
    double took_s[NDECISIONS];
};

static void open_known(struct known *k)
{
    k->a = arena_new();
    k->job = text_job(k->a, tiny_llama);
    k->topo = random_host(k->a, 4);
    for (int i = 0; i < NDECISIONS; i++) {
        const char *why = "";
        k->d[i] = text_decision(k->a, k->job, k->topo, decisions[i]);
        struct plan *p = compile_decision(k->a, k->job, k->topo, &k->d[i], &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        k->took_s[i] = step_s(p);
        plan_close(p);
    }
    CU_ASSERT_FATAL(k->took_s[FAST] < 0.97 * k->took_s[OTHER] && k->took_s[OTHER] < 0.97 * k->took_s[SLOW]);
}

static void check_rule(struct known *k, const struct rule *r, uint64_t near)
{
    struct candidate list[MOST];
    struct search_result found = {.ncandidates = r->n, .candidates = list, .least = INFINITY};
    const struct compile_options o = {.near = near};
    for (uint32_t i = 0; i < r->n; i++) {
        const struct entry *e = &r->list[i];
        list[i] = (struct candidate){.decision = k->d[e->decision], .emittable = true};
        list[i].estimate.step_time_s = e->share * k->took_s[e->of];
        list[i].estimate.peak_bytes = 1 << 20;
    }
    struct plan *p = NULL;
    CU_ASSERT_EQUAL(fit_plan(k->a, diag_new(k->a), k->job, k->topo, &found, MOST, &o, &p), STATUS_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    if (step_s(p) != k->took_s[r->chosen])
        printf("\n    %s: %g s, wanted %g s", r->rule, step_s(p), k->took_s[r->chosen]);
    CU_ASSERT_EQUAL(step_s(p), k->took_s[r->chosen]);
    double fastest_s = INFINITY;
    for (uint32_t i = 0; i < r->n; i++) { /* what was compiled says what came out */
        CU_ASSERT_EQUAL(list[i].simulated_s > 0, list[i].placed_bytes > 0);
        CU_ASSERT(!list[i].placed_bytes || list[i].simulated_s == k->took_s[r->list[i].decision]);
        if (list[i].placed_bytes)
            fastest_s = fmin(fastest_s, list[i].simulated_s);
    }
    CU_ASSERT(list[0].placed_bytes > 0);
    CU_ASSERT_EQUAL(found.least, fastest_s);
    plan_close(p);
}

static void test_rules(void)
{
    struct known k;
    open_known(&k);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_rule(&k, &cases[i], 1);
    for (size_t i = 0; i < sizeof near_cases / sizeof *near_cases; i++)
        check_rule(&k, &near_cases[i], 0);
    arena_free(k.a);
}

/* one decision alone: as it is where it fits, else with the bytes that it takes */
static void test_decision(void)
{
    struct known k;
    open_known(&k);
    for (int tight = 0; tight < 2; tight++) {
        uint64_t placed = 0;
        const char *why;
        struct plan *p = fit_decision(k.a, k.job, k.topo, &k.d[FAST], &(struct compile_options){0}, &placed, &why);
        CU_ASSERT_EQUAL(p == NULL, tight);
        CU_ASSERT_PTR_NULL(why);
        if (p)
            CU_ASSERT_EQUAL(step_s(p), k.took_s[FAST]);
        CU_ASSERT(placed > 0);
        plan_close(p);
        k.job->wishes.memory = placed - 1;
    }
    arena_free(k.a);
}

/* Where no candidate fits, a search for less memory finds the plan.  A candidate that promised more than that plan and
 * is only a little too large is tried with a little less memory all the same: with so small a budget the search itself
 * never gets there. */
static void test_too_large(void)
{
    enum { TINY_BUDGET = 4 };
    const struct compile_options o = {.budget = TINY_BUDGET};
    double took_s[2] = {0};
    struct known k;
    open_known(&k);
    for (int promises = 0; promises < 2; promises++) {
        uint64_t placed;
        const char *why;
        k.job->wishes.memory = 0;
        plan_close(fit_decision(k.a, k.job, k.topo, &k.d[FAST], &o, &placed, &why));
        k.job->wishes.memory = placed - 1;
        struct candidate only = {.decision = k.d[FAST], .emittable = true};
        only.estimate.step_time_s = promises ? k.took_s[FAST] : 2 * k.took_s[SLOW];
        only.estimate.peak_bytes = placed;
        struct search_result found = {.ncandidates = 1, .candidates = &only, .least = INFINITY};
        struct plan *p = NULL;
        CU_ASSERT_EQUAL(fit_plan(k.a, diag_new(k.a), k.job, k.topo, &found, MOST, &o, &p), STATUS_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        const struct decision *d = &p->decision;
        CU_ASSERT_EQUAL(d->tp == 2 && d->dp == 2 && d->microbatch == 4, promises);
        CU_ASSERT(fit_peak_bytes(p) < placed);
        took_s[promises] = step_s(p);
        plan_close(p);
    }
    CU_ASSERT(took_s[1] < 0.99 * took_s[0]);
    arena_free(k.a);
}

void suite_fit(void)
{
    CU_pSuite s = CU_add_suite("fit", NULL, NULL);
    CU_add_test(s, "rules of the choice", test_rules);
    CU_add_test(s, "one decision", test_decision);
    CU_add_test(s, "a candidate that is a little too large", test_too_large);
}
