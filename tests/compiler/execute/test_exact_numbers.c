/* The exact interpreter tells apart jobs that differ in one number of the model or the optimizer: otherwise a plan that
 * was lowered with a wrong one would compute what one rank computes. */

#include "compiler/execute/exact.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

void suite_exact_numbers(void);

static const char base[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm(eps=1e-5)\n    embed tokens(scale=2)\n"
    "    repeat 2 {\n        layer {\n"
    "            attn gqa(heads=4, kv=2, head=8, rope=10_000, window=8, softcap=50, scale=0.3)\n"
    "            ffn swiglu(48)\n        }\n    }\n    head untied(softcap=30, scale=0.5)\n}\n"
    "train {\n    sequence 16\n    batch 4 sequences\n    precision fp32\n    clip 1.5\n"
    "    optimizer adamw(lr=1e-3, beta1=0.8, beta2=0.9, eps=1e-7, weight_decay=0.2)\n}\n";

static const struct {
    const char *find, *replace;
} numbers[] = {
    {"rmsnorm(eps=1e-5)", "rmsnorm(eps=1e-6)"},
    {"tokens(scale=2)", "tokens(scale=3)"},
    {"rope=10_000", "rope=20_000"},
    {"window=8", "window=7"},
    {"softcap=50", "softcap=40"},
    {"scale=0.3", "scale=0.4"},
    {"softcap=30", "softcap=20"},
    {"scale=0.5", "scale=0.25"},
    {"clip 1.5", "clip 2.5"},
    {"beta1=0.8", "beta1=0.7"},
    {"beta2=0.9", "beta2=0.99"},
    {"eps=1e-7", "eps=1e-6"},
    {"weight_decay=0.2", "weight_decay=0.1"},
};

static struct plan *alone(struct arena *a, const char *text)
{
    const char *why = "";
    struct topo *host = random_host(a, 1);
    struct job *job = text_job(a, text);
    struct decision d = layout_alone(a, job, host);
    struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

static void test_numbers(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct plan *p = alone(a, base);
    struct exact_truth *truth = exact_truth(a, p, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(truth);
    CU_ASSERT_PTR_NULL(exact_compare(a, p, truth, 0).why);
    plan_close(p);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *at = strstr(base, numbers[i].find);
        CU_ASSERT_PTR_NOT_NULL_FATAL(at);
        p = alone(a, arena_printf(a, "%.*s%s%s", (int)(at - base), base, numbers[i].replace,
                                  at + strlen(numbers[i].find)));
        bool differs = exact_compare(a, p, truth, 0).why != NULL;
        if (!differs)
            printf("\n    %s computes the same as %s", numbers[i].replace, numbers[i].find);
        CU_ASSERT(differs);
        plan_close(p);
    }
    arena_free(a);
}

/* windows and soft caps where sequences are split: their places and the caps of every part are those of one rank */
static void test_split(void)
{
    static const char *const layouts[] = {"ring=2 microbatch=1", "all_gather=2 microbatch=1",
                                          "all_to_all=2 microbatch=1", "tp=2 sp=1 ring=2 microbatch=1"};
    struct arena *a = arena_new();
    const char *why = "";
    struct plan *one = alone(a, base);
    struct exact_truth *truth = exact_truth(a, one, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(truth);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct topo *host = random_host(a, 4);
        struct job *job = text_job(a, base);
        struct decision d = text_decision(a, job, host, layouts[i]);
        struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        struct exact_result r = exact_compare(a, p, truth, 1);
        if (r.why)
            printf("\n    %s: %s", layouts[i], r.why);
        CU_ASSERT_PTR_NULL(r.why);
        plan_close(p);
    }
    plan_close(one);
    arena_free(a);
}

void suite_exact_numbers(void)
{
    CU_pSuite s = CU_add_suite("exact_numbers", NULL, NULL);
    CU_add_test(s, "every number of a model and its optimizer counts", test_numbers);
    CU_add_test(s, "windows and caps over split sequences", test_split);
}
