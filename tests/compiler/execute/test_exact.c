/* The exact interpreter on real plans: random valid ones compute what one rank computes, in adversarial
 * orders. */

#include "compiler/execute/exact.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/mutate.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>

enum { PLANS = 24, QUICK_PLANS = 4, MOST_RANKS = 8 };

static void test_random_plans(void)
{
    uint64_t elements = 0, ninsns = 0;
    for (uint64_t seed = 1; seed <= test_draws(PLANS, QUICK_PLANS); seed++) {
        struct arena *a = arena_new();
        const char *why = "";
        struct plan *p = random_plan(a, seed, MOST_RANKS);
        struct topo *host = random_host(a, 1);
        struct decision alone = text_decision(a, p->job, host, "microbatch=1");
        struct plan *one = compile_decision(a, p->job, host, &alone, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(one);
        struct exact_truth *truth = exact_truth(a, one, &why);
        CU_ASSERT_PTR_NOT_NULL(truth);
        if (!truth)
            printf("\n    seed %llu: the single rank: %s", (unsigned long long)seed, why);
        for (uint64_t order = 0; truth && order < 2; order++) {
            struct exact_result r = exact_compare(a, p, truth, order * seed);
            if (r.why)
                printf("\n    seed %llu, order %llu, %s: %s", (unsigned long long)seed,
                       (unsigned long long)order, decision_text(a, p->job, &p->decision), r.why);
            CU_ASSERT_PTR_NULL(r.why);
            elements += r.elements;
            ninsns += r.ninsns;
        }
        plan_close(one);
        plan_close(p);
        arena_free(a);
    }
    printf("%llu instructions, %llu numbers equal ", (unsigned long long)ninsns,
           (unsigned long long)elements);
}

/* The interpreter itself: faults of these kinds change what is computed, or nothing at all is checked. */
static void test_faults(void)
{
    static const enum mutation kinds[] = {MUTATE_REDUCTION, MUTATE_LAYER_SWAPPED, MUTATE_LAYER_SKIPPED,
                                          MUTATE_MARK, MUTATE_WAIT};
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(a, tiny_llama);
    struct topo *host = random_host(a, 8);
    job->train.batch = 8;
    struct decision d = text_decision(a, job, host, "tp=2 sp=1 pp=2 dp=2 zero=1 microbatch=1"),
                    alone = layout_alone(a, job, host);
    struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
    struct plan *one = compile_decision(a, job, host, &alone, &(struct compile_options){0}, &why);
    struct exact_truth *truth = exact_truth(a, one, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(truth);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        uint64_t state = k + 1;
        uint32_t made = 0, found = 0;
        for (uint32_t tries = 0; made < 8 && tries < 200; tries++) {
            struct mutant m;
            bool differs = false;
            if (!mutate(a, p, kinds[k], &state, &m))
                continue;
            for (uint64_t seed = 1; seed <= 6 && !differs; seed++)
                differs = exact_compare(a, &m.plan, truth, seed).why != NULL;
            made++;
            found += differs;
            mutant_free(&m);
        }
        CU_ASSERT(made == 8 && found >= (kinds[k] == MUTATE_WAIT ? 2u : 8u));
        if (found < made)
            printf("%s: %u of %u differ; ", mutation_name(kinds[k]), found, made);
    }
    plan_close(p);
    plan_close(one);
    arena_free(a);
}

/* Rows in 8 bits keep their numbers, over every way to experts: straight, with tensor-parallel experts, to nodes first,
 * in a backward pass that sends them once more; and from the forward to the backward pass, to both halves of it. */
static void test_eight(void)
{
    static const char text[] =
        "llmc 1\nmodel m {\n    vocab 64\n    width 160\n    norm rmsnorm\n    embed tokens\n    repeat 2 {\n        layer {\n"
        "            attn gqa(heads=4, kv=2, head=8, rope=10_000)\n            moe swiglu(24) {\n                experts 8\n"
        "                active 2\n                shared 1\n            }\n        }\n    }\n    head untied\n}\n"
        "train {\n    sequence 8\n    batch 8 sequences\n    precision fp8(recipe=block, dispatch=fp8, activations=fp8)\n"
        "    optimizer adamw(lr=1e-3)\n}\n";
    static const char *const decisions[] = {"dp=4 ep=4 nodes=2 microbatch=1", "tp=2 sp=1 dp=2 ep=2 etp=2 zero=1 microbatch=1",
                                            "dp=4 ep=4 nodes=2 microbatch=1 full=1", "pp=2 dp=2 ep=2 microbatch=1 schedule=dualpipe",
                                            "tp=2 pp=2 sp=1 microbatch=1 schedule=zb_h1", "ring=2 dp=2 ep=2 full=1 microbatch=2"};
    struct arena *a = arena_new();
    struct job *job = text_job(a, text);
    struct topo *host = random_host(a, 8);
    const char *why = "";
    struct decision alone = layout_alone(a, job, host);
    struct plan *one = compile_decision(a, job, host, &alone, &(struct compile_options){0}, &why);
    struct exact_truth *truth = exact_truth(a, one, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(truth);
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++) {
        struct decision d = text_decision(a, job, host, decisions[i]);
        struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        for (uint64_t seed = 0; seed < 2; seed++) {
            struct exact_result r = exact_compare(a, p, truth, seed);
            CU_ASSERT_PTR_NULL(r.why);
            if (r.why)
                printf("\n    %s: %s", decisions[i], r.why);
        }
        plan_close(p);
    }
    plan_close(one);
    arena_free(a);
}

void suite_exact(void);
void suite_exact(void)
{
    CU_pSuite s = CU_add_suite("exact", NULL, NULL);
    CU_add_test(s, "random plans compute what one rank computes, modulo a prime", test_random_plans);
    CU_add_test(s, "faults differ from one rank", test_faults);
    CU_add_test(s, "rows in 8 bits compute the same over all ways to experts, and to the backward pass", test_eight);
}
