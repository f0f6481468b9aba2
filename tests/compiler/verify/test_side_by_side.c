/* Property 7 by several workers: of every plan and every fault they say what one says alone. */

#include "compiler/verify/conserve.h"
#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/mutate.h"
#include "tests/draws.h"

#include <CUnit/CUnit.h>
#include <sched.h>
#include <string.h>

enum { MOST_WORKERS = 5 };

static bool one_core(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < 2;
}

static bool same(const struct verdict *x, const struct verdict *y)
{
    bool same = x->nviolations == y->nviolations;
    for (uint32_t i = 0; same && i < x->nviolations; i++)
        same = !strcmp(x->violations[i].message, y->violations[i].message);
    return same;
}

/* Proves both kinds of programs alone and by so many workers.  *apart: were workers enough, so that nothing was proved alone
 * afterwards? */
static bool agree(struct arena *a, const struct plan *p, uint32_t workers, bool *apart)
{
    bool fine = true;
    *apart = true;
    for (int kind = 0; kind < NPROGRAM_KINDS; kind++) {
        struct verdict alone = {0}, together = {0};
        conserve_prove(a, p, kind, 1, &alone);
        *apart &= conserve_prove(a, p, kind, workers, &together) != 1;
        fine = fine && same(&alone, &together);
    }
    return fine;
}

/* can all that a rule relies on be relied on? */
static bool matched(struct arena *a, const struct plan *p)
{
    const struct verdict *v = verify_plan(a, p, false);
    bool fine = true;
    for (uint32_t i = 0; i < v->nviolations; i++)
        fine = fine && v->violations[i].property > 3;
    return fine;
}

static void test_legal(void)
{
    uint64_t n = test_draws(400, 40), several = 0, wrong = 0, alone = 0;
    for (uint64_t seed = 1; seed <= n; seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, seed, 8);
        bool apart;
        wrong += !agree(a, p, 2 + (uint32_t)(seed % (MOST_WORKERS - 1)), &apart);
        several += p->nroles > 1;
        alone += p->nroles > 1 && !apart;
        plan_close(p);
        arena_free(a);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(several >= n / 5);
    CU_ASSERT(alone == 0 || one_core());
}

/* experts, whose rows' lack is summed as the step runs, and mirrored stages, which meet at its end */
static void test_experts(void)
{
    static const char model[] =
        "llmc 1\nmodel m {\n vocab 64\n width 32\n norm rmsnorm\n embed tokens\n repeat 4 {\n layer {\n"
        " attn gqa(heads=4, kv=2, rope=10_000)\n moe swiglu(24) {\n experts 8\n active 2\n shared 1\n balance 0.01\n"
        " router sigmoid(groups=4, pick=2, bias=yes, scale=2.5, rate=0.01)\n }\n }\n }\n head untied\n}\n"
        "train {\n sequence 16\n batch 16 sequences\n precision bf16\n optimizer adamw(lr=1e-3)\n expert_room 1\n}\n";
    static const char *const decisions[] = {
        "pp=2 dp=2 ep=2", "pp=4 dp=2 ep=2 schedule=dualpipe", "pp=2 vpp=2 dp=4 ep=4 nodes=2 schedule=dualpipe_v",
        "pp=4 dp=2 ep=2 zero=1 schedule=zb_h1", "tp=2 sp=1 pp=2 ep=2 schedule=combined_1f1b vpp=2"};
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++) {
        struct arena *a = arena_new();
        const char *why = "";
        struct job *job = text_job(a, model);
        struct topo *topo = random_host(a, 8);
        struct decision d = text_decision(a, job, topo, decisions[i]);
        struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
        bool apart;
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        for (uint32_t workers = 2; workers <= 4; workers++) {
            CU_ASSERT_TRUE(agree(a, p, workers, &apart));
            CU_ASSERT(apart || one_core());
        }
        plan_close(p);
        arena_free(a);
    }
}

static void test_faults(void)
{
    uint64_t n = test_draws(3000, 150), random = 7, faults = 0, refused = 0, wrong = 0;
    for (uint64_t seed = 1; seed <= n; seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, 1 + seed % 50, 8);
        struct mutant m;
        if (p->nroles > 1 && mutate(a, p, (enum mutation)random_below(&random, NMUTATIONS), &random, &m)) {
            struct verdict alone = {0};
            bool apart = false, usable = matched(a, &m.plan);
            wrong += usable && !agree(a, &m.plan, 2, &apart);
            if (usable)
                conserve_prove(a, &m.plan, PROGRAM_TRAIN, 1, &alone);
            faults += usable;
            refused += alone.nviolations > 0;
            mutant_free(&m);
        }
        plan_close(p);
        arena_free(a);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(faults >= n / 20 && refused >= faults / 10);
}

void suite_side_by_side(void);
void suite_side_by_side(void)
{
    CU_pSuite s = CU_add_suite("side_by_side", NULL, NULL);
    CU_add_test(s, "what is right is proved by workers, and by none alone", test_legal);
    CU_add_test(s, "so are experts under several schedules", test_experts);
    CU_add_test(s, "faults are refused in the same words", test_faults);
}
