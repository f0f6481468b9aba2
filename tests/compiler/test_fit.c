/* Which candidate of a search becomes the plan: lists made by hand of decisions whose simulated steps are known,
 * with estimates as the case wants them. */

#include "compiler/fit.h"

#include "compiler/search/search.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>

void suite_fit(void);

/* SLOW and FAST are alike in what trials are compared by, OTHER is like neither and in between */
enum { SLOW, FAST, OTHER, NDECISIONS, MOST = 6 };
static const char *const decisions[] = {"tp=2 dp=2 microbatch=1", "tp=2 dp=2 microbatch=4", "dp=4 microbatch=1"};

struct entry {
    int decision;
    int of; /* estimated at this share of the simulated step of that decision */
    double share;
};
static const struct {
    const char *rule;
    struct entry list[MOST];
    uint32_t n;
    int chosen;
} cases[] = {
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

/* seconds of the simulated step */
static double step_s(const struct plan *p)
{
    return 1e-9 * (double)p->timeline->step_ns;
}

static void test_rules(void)
{
    struct arena *a = arena_new();
    struct job *job = text_job(a, tiny_llama);
    struct topo *topo = random_host(a, 4);
    const struct compile_options none = {0};
    struct decision d[NDECISIONS];
    double took_s[NDECISIONS];
    for (int i = 0; i < NDECISIONS; i++) {
        const char *why = "";
        d[i] = text_decision(a, job, topo, decisions[i]);
        struct plan *p = compile_decision(a, job, topo, &d[i], &none, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        took_s[i] = step_s(p);
        plan_close(p);
    }
    CU_ASSERT_FATAL(took_s[FAST] < 0.97 * took_s[OTHER] && took_s[OTHER] < 0.97 * took_s[SLOW]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct candidate list[MOST];
        struct search_result found = {.ncandidates = cases[i].n, .candidates = list};
        for (uint32_t k = 0; k < cases[i].n; k++) {
            const struct entry *e = &cases[i].list[k];
            list[k] = (struct candidate){.decision = d[e->decision], .emittable = true};
            list[k].estimate.step_time_s = e->share * took_s[e->of];
            list[k].estimate.peak_bytes = 1 << 20;
        }
        struct plan *p = NULL;
        CU_ASSERT_EQUAL(fit_plan(a, diag_new(a), job, topo, &found, MOST, &none, &p), STATUS_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        if (step_s(p) != took_s[cases[i].chosen])
            printf("\n    %s: %g s, wanted %g s", cases[i].rule, step_s(p), took_s[cases[i].chosen]);
        CU_ASSERT_EQUAL(step_s(p), took_s[cases[i].chosen]);
        plan_close(p);
    }
    arena_free(a);
}

void suite_fit(void)
{
    CU_pSuite s = CU_add_suite("fit", NULL, NULL);
    CU_add_test(s, "rules of the choice", test_rules);
}
