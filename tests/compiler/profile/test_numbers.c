/* Every parameter of a profile changes what its meaning says, by as much as it says.
 *
 * A case is a job on a cluster with a decision, and one parameter at two values; all others have the values of a
 * stack without effects, but for those that the case sets.  Where the change of an item of the estimate, or of a
 * price, follows from other prices, numbers.c computes it from them; `least` and `most` say within which
 * multiples of that it must lie.  The loop over all parameters fails for one without a case. */

#include "compiler/model/sema.h"
#include "compiler/search/search.h"
#include "compiler/support/vec.h"
#include "tests/compiler/profile/numbers.h"

#include <CUnit/CUnit.h>
#include <string.h>

static void test_changes(void)
{
    for (size_t i = 0; i < numbers_n; i++) {
        const struct number *x = &numbers_all[i];
        struct arena *a = arena_new();
        struct seen b = numbers_situation(a, x);
        const struct profile_param *param = profile_param(x->param);
        CU_ASSERT_PTR_NOT_NULL_FATAL(param);
        CU_ASSERT_FATAL(x->from >= param->low && x->from <= param->high && x->to >= param->low && x->to <= param->high);
        *PROFILE_PARAM(&b.profile, param) = x->from;
        numbers_look(&b);
        double item = x->item(&b), want = x->change(&b, x->from, x->to, item);
        double change = x->item(numbers_with(&b, x->param, x->to)) - item;
        bool fine = want != 0 && change / want >= x->least && change / want <= x->most;
        CU_ASSERT(fine);
        if (!fine)
            printf("\n    %s from %g to %g: an item of %g changes by %g, %g times the expected %g", x->param,
                   x->from, x->to, item, change, change / want, want);
        arena_free(a);
    }
}

/* Generations of GPUs have parameters of their own, and in a domain of several nodes the host does not wait. */
static void test_others(void)
{
    static const char *const gpus[] = {"A100-SXM", "H100-SXM", "B200"};
    for (size_t i = 0; i < numbers_n; i++)
        for (size_t g = 0; g < ARRAY_LEN(gpus) && strstr(numbers_all[i].param, "_sm"); g++) {
            struct arena *a = arena_new();
            struct number x = numbers_all[i];
            x.gpu = gpus[g];
            struct seen b = numbers_situation(a, &x);
            numbers_look(&b);
            double change = x.item(numbers_with(&b, x.param, x.to)) - x.item(&b);
            CU_ASSERT_EQUAL(change == 0, strcmp(x.gpu, numbers_all[i].gpu) != 0);
            arena_free(a);
        }
    for (size_t i = 0; i < numbers_n; i++) {
        if (strcmp(numbers_all[i].param, "moe_wait_us") != 0)
            continue;
        struct arena *a = arena_new();
        struct seen b = numbers_situation(a, &numbers_all[i]);
        b.topo->types[0].scale_up.span = 2;
        numbers_look(&b);
        CU_ASSERT_EQUAL(numbers_with(&b, "moe_wait_us", 1000)->e.compute_s, b.e.compute_s);
        CU_ASSERT(numbers_with(&b, "moe_layer_us", 1000)->e.compute_s > b.e.compute_s);
        arena_free(a);
    }
}

/* What graphs leave of the wait for counts: within a node; between two the whole wait stays. */
static void test_waits(void)
{
    uint32_t found = 0;
    for (size_t i = 0; i < numbers_n; i++) {
        if (strcmp(numbers_all[i].param, "graph_wait") != 0)
            continue;
        for (uint32_t nodes = 1; nodes <= 2; nodes++) {
            struct arena *a = arena_new();
            struct number x = numbers_all[i];
            x.decision = nodes == 1 ? "dp=8 ep=8 microbatch=1" : "dp=16 ep=16 microbatch=1";
            struct seen b = numbers_situation(a, &x);
            numbers_look(&b);
            CU_ASSERT_EQUAL(numbers_with(&b, "graph_wait", 0)->e.compute_s < b.e.compute_s, nodes == 1);
            CU_ASSERT(numbers_with(&b, "moe_wait_us", 0)->e.compute_s < b.e.compute_s);
            arena_free(a);
            found++;
        }
    }
    CU_ASSERT_EQUAL(found, 2);
}

/* What prices instructions changes the simulated step of an emitted plan as it changes the estimate. */
static void test_plans(void)
{
    static const char *const priced[] = {"matmul_sm80",       "matmul_sm90",    "matmul_sm100",
                                         "attention_sm80",    "attention_sm90", "attention_sm100",
                                         "attention_unfused", "stream_traffic", "cp_attention",
                                         "straggle",          "far_nic_gbs",    "joins"};
    for (size_t i = 0; i < numbers_n; i++)
        for (size_t k = 0; k < ARRAY_LEN(priced); k++) {
            if (strcmp(numbers_all[i].param, priced[k]) != 0)
                continue;
            struct arena *a = arena_new();
            struct seen b = numbers_situation(a, &numbers_all[i]);
            double step_s[2], plan_s[2];
            for (int n = 0; n < 2; n++) {
                const char *why = "";
                *PROFILE_PARAM(&b.profile, profile_param(priced[k])) = n ? numbers_all[i].to : numbers_all[i].from;
                numbers_look(&b);
                step_s[n] = b.e.step_time_s;
                struct plan *p = compile_decision(a, b.job, b.topo, b.decision, &(struct compile_options){0}, &why);
                CU_ASSERT_PTR_NOT_NULL_FATAL(p);
                plan_s[n] = 1e-9 * (double)p->timeline->step_ns;
                plan_close(p);
            }
            double ratio = (plan_s[1] - plan_s[0]) / (step_s[1] - step_s[0]);
            CU_ASSERT(ratio > 0.8 && ratio < 1.25);
            if (!(ratio > 0.8 && ratio < 1.25))
                printf("\n    %s: the plan's step changes by %g, %g times what the estimate's does", priced[k],
                       plan_s[1] - plan_s[0], ratio);
            arena_free(a);
        }
}

static void test_sequence_parallel(void)
{
    static const struct {
        const char *plan;
        enum tri want;
    } cases[] = {{"", TRI_AUTO},
                 {"adjust sequence_parallel = 1", TRI_AUTO},
                 {"adjust sequence_parallel = 0", TRI_NO},
                 {"adjust sequence_parallel = 0\n sequence_parallel yes", TRI_YES}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const struct job *job = numbers_job(a, NUMBERS_DENSE, "bf16", cases[i].plan);
        CU_ASSERT_EQUAL(job->wishes.sequence_parallel, cases[i].want);
        arena_free(a);
    }
}

/* 0.67 billion parameters in 10 GiB, whole on every rank: 18 bytes of each are 11.2 GiB */
static void test_zero_most(void)
{
    static const struct {
        const char *plan;
        uint32_t least, most; /* ZeRO of the best; least > most: nothing fits */
    } cases[] = {{"", 1, 3},
                 {"adjust zero_most = 3", 1, 3},
                 {"adjust zero_most = 1", 1, 1},
                 {"adjust zero_most = 0", 1, 0},
                 {"zero = 3\n adjust zero_most = 0", 3, 3}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *plan = arena_printf(a, "tp = 1\n pp = 1\n cp = 1\n microbatch = 1\n memory <= 10GiB\n %s",
                                        cases[i].plan);
        struct number x = numbers_all[0];
        x.plan = plan;
        struct seen s = numbers_situation(a, &x);
        struct diag *d = diag_new(a);
        const struct search_result *r =
            search(a, d, numbers_job(a, NUMBERS_DENSE, "bf16", plan), s.topo, 1, 0, false);
        CU_ASSERT_EQUAL(r->ncandidates, cases[i].least <= cases[i].most);
        if (r->ncandidates)
            CU_ASSERT(r->candidates[0].decision.zero >= cases[i].least &&
                      r->candidates[0].decision.zero <= cases[i].most);
        arena_free(a);
    }
}

/* what no estimate of one decision shows: the two above */
static const char *const elsewhere[] = {"sequence_parallel", "zero_most"};

/* a parameter without a case */
static void test_all(void)
{
    size_t nparams;
    const struct profile_param *params = profile_params(&nparams);
    for (size_t i = 0; i < nparams; i++) {
        bool found = false;
        for (size_t k = 0; k < numbers_n; k++)
            found = found || !strcmp(numbers_all[k].param, params[i].name);
        for (size_t k = 0; k < ARRAY_LEN(elsewhere); k++)
            found = found || !strcmp(elsewhere[k], params[i].name);
        CU_ASSERT(found);
        if (!found)
            printf("\n    no case for %s", params[i].name);
    }
}

void suite_profile_numbers(void);
void suite_profile_numbers(void)
{
    CU_pSuite s = CU_add_suite("profile_numbers", NULL, NULL);
    CU_add_test(s, "every parameter changes what its meaning says", test_changes);
    CU_add_test(s, "no parameter changes what it is not about", test_others);
    CU_add_test(s, "waits within a node and between nodes", test_waits);
    CU_add_test(s, "an emitted plan's step changes as the estimate", test_plans);
    CU_add_test(s, "sequence parallelism where nobody speaks of it", test_sequence_parallel);
    CU_add_test(s, "the largest ZeRO that is looked for", test_zero_most);
    CU_add_test(s, "every parameter has a case", test_all);
}
