/* Faults in real plans are found, and named.
 *
 * Small plans over all dimensions get one fault each (mutate.h).  The verifier must report it, at an
 * instruction that the fault touches, that meets it, or that uses its bytes.  A mutant that it accepts must
 * be harmless: the brute-force closure over all ranks (oracle.h) finds neither deadlock nor race, and all ranks,
 * executed modulo a prime under adversarial orders (compiler/execute), compute what the one rank computes.
 *
 * make check-mutants: MUTANTS=N of them, on layouts drawn over all that can be lowered (in parts from layout MUTANTS_FROM=SEED
 * on), and VALID=N random valid plans that must be accepted. */

#include "compiler/execute/exact.h"
#include "compiler/verify/verify.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/mutate.h"
#include "tests/compiler/verify/oracle.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

#define NMUTANTS 11000 /* all plans together; `make check-mutants` for more */

static const char llama[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 2 {\n        layer {\n            attn gqa(heads=4, kv=2, rope=10_000)\n"
    "            ffn swiglu(48)\n        }\n    }\n    head untied\n}\n"
    "train {\n    sequence 8\n    batch 8 sequences\n    precision fp32\n"
    "    optimizer adamw(lr=1e-3)\n}\n";
static const char gpt2[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm layernorm\n    embed tokens\n"
    "    embed positions(8)\n    repeat 2 {\n        layer {\n            attn mha(heads=4, bias=yes)\n"
    "            ffn gelu(64, bias=yes)\n        }\n    }\n    head tied\n}\n"
    "train {\n    sequence 8\n    batch 8 sequences\n    precision fp32\n"
    "    optimizer adamw(lr=1e-3)\n}\n";
static const char deep[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 16\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 3 {\n        layer {\n            attn gqa(heads=2, kv=1, rope=10_000, bias=yes)\n"
    "            ffn geglu(32)\n        }\n    }\n    head tied\n}\n"
    "train {\n    sequence 8\n    batch 8 sequences\n    precision fp32\n"
    "    optimizer sgd(lr=0.1, momentum=0.9)\n}\n";
static const char four[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 16\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 4 {\n        layer {\n            attn gqa(heads=2, kv=2, rope=10_000)\n"
    "            ffn swiglu(32)\n        }\n    }\n    head tied\n}\n"
    "train {\n    sequence 8\n    batch 8 sequences\n    precision fp32\n"
    "    optimizer adamw(lr=1e-3)\n}\n";
#define ENDS "train {\n    sequence 8\n    batch 8 sequences\n    precision fp32\n    optimizer adamw(lr=1e-3)\n}\n"
static const char gemma[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 16\n    norm rmsnorm(place=both)\n    embed tokens(scale=yes)\n"
    "    repeat 2 {\n        layer {\n            attn gqa(heads=2, kv=2, rope=10_000, softcap=5, window=3)\n"
    "            ffn geglu(32)\n        }\n    }\n    head tied(softcap=3)\n}\n" ENDS;
static const char neox[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 16\n    norm layernorm\n    embed tokens\n"
    "    repeat 2 {\n        layer parallel(norms=2) {\n            attn mha(heads=2, bias=yes, rope=rotary(10_000, dims=4))\n"
    "            ffn gelu(32, bias=yes)\n        }\n    }\n    head untied\n}\n" ENDS;
static const char qwen3[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 16\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 2 {\n        layer {\n            attn gqa(heads=4, kv=2, rope=10_000, qk_norm=head)\n"
    "            ffn swiglu(32)\n        }\n    }\n    head untied\n}\n" ENDS;
static const char mla[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 16\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 2 {\n        layer {\n            attn mla(heads=4, q_rank=8, kv_rank=8, nope=4, rope=2, v=4)\n"
    "            ffn swiglu(32)\n        }\n    }\n    head untied\n}\n" ENDS;
#define EXPERTS(room)                                                                                         \
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 16\n    norm rmsnorm\n    embed tokens\n"                   \
    "    repeat 2 {\n        layer {\n            attn gqa(heads=2, kv=2, rope=10_000)\n"                       \
    "            moe swiglu(8) {\n                experts 8\n                active 3\n                shared 1\n" \
    "                router sigmoid(groups=4, pick=2, bias=yes, scale=2.5)\n            }\n        }\n    }\n"  \
    "    head untied\n}\ntrain {\n    sequence 8\n    batch 8 sequences\n    precision fp32\n"                 \
    "    optimizer adamw(lr=1e-3)\n" room "}\n"
static const char experts[] = EXPERTS(""), roomy[] = EXPERTS("    expert_room 2.5\n");
static const struct {
    const char *model, *decision;
} plans[] = {
    {llama, "tp=2 sp=1 pp=2 dp=2 zero=1 microbatch=2"},
    {llama, "tp=2 pp=2 dp=2 zero=0 microbatch=1"},
    {gpt2, "tp=2 sp=1 pp=2 dp=2 zero=1 microbatch=1 gpipe=1"},
    {gpt2, "tp=2 pp=2 dp=1 microbatch=2"},
    {deep, "tp=1 pp=3 dp=2 zero=1 microbatch=2"},
    {gpt2, "tp=4 sp=1 pp=1 dp=2 zero=0 microbatch=2"},
    {llama, "tp=2 sp=1 pp=2 dp=1 microbatch=2 full=1"},
    {llama, "tp=1 pp=2 dp=2 zero=1 microbatch=2 full=1 gpipe=1"},
    {gpt2, "tp=1 pp=1 dp=4 zero=1 microbatch=1"},
    {llama, "tp=1 pp=1 dp=1 microbatch=4"},
    {llama, "ring=2 tp=2 sp=1 dp=2 zero=1 microbatch=2"},
    {gpt2, "all_gather=2 pp=2 dp=2 microbatch=1"},
    {llama, "all_to_all=2 pp=2 dp=1 zero=1 microbatch=2"},
    {llama, "ring=4 dp=1 microbatch=4 full=1"},
    {four, "tp=2 sp=1 pp=2 vpp=2 dp=1 microbatch=2 schedule=zb_v full=1"},
    {four, "tp=1 pp=2 vpp=2 dp=2 zero=1 microbatch=1 schedule=interleaved"},
    {gpt2, "tp=2 pp=2 dp=1 microbatch=2 schedule=dualpipe"},
    {gpt2, "tp=1 pp=2 dp=2 microbatch=1 schedule=zb_h1"},
    {four, "tp=2 sp=1 pp=2 vpp=2 dp=1 microbatch=2 schedule=combined_1f1b"},
    {gemma, "tp=2 sp=1 pp=2 dp=1 microbatch=2"},
    {neox, "tp=2 pp=2 dp=1 microbatch=2"},
    {qwen3, "tp=2 pp=2 dp=1 zero=1 microbatch=2"},
    {mla, "tp=2 sp=1 pp=2 dp=1 microbatch=2"},
    {mla, "tp=2 pp=1 dp=2 zero=1 microbatch=2"},
    {experts, "dp=4 ep=4 nodes=2 zero=1 microbatch=1"},
    {roomy, "tp=2 sp=1 pp=2 dp=2 ep=4 nodes=2 microbatch=2"},
    {qwen3, "tp=4 sp=1 dp=2 zero=1 microbatch=2"},
    {deep, "tp=2 pp=3 dp=1 microbatch=2"},
};
#define NPLANS (sizeof plans / sizeof *plans)

struct tally {
    uint32_t made, survived, harmless, unnamed, disagreed;
    uint32_t killed[10];
};

/* what survivors are measured by */
struct bench {
    const struct plan *plan;
    const struct exact_truth *truth;
};

static void judge(struct arena *a, const struct mutant *m, const struct bench *b, struct tally *t,
                  const char *what)
{
    const struct verdict *full = verify_plan(a, &m->plan, true);
    t->disagreed += full->nviolations > 0;
    if (full->nviolations)
        printf("\n    %s: full disagrees: %.400s", what, full->violations[0].message);
    const char *why = mutant_harm(a, m, b->truth);
    t->harmless += !why;
    if (why) {
        const struct program *p =
            m->nsites ? (m->sites[0].evaluation ? m->plan.eval : m->plan.train)[m->sites[0].role] : NULL;
        printf("\n    %s: %s survived, but %.600s; ", what, mutation_name(m->kind), why);
        for (uint32_t s = 0; s < m->nsites; s++)
            if (p && m->sites[s].insn != NONE && m->sites[s].insn < p->ninsns) {
                program_print_insn(p, m->sites[s].insn, stdout);
                break;
            }
    }
}

/* more of the kinds that need luck, fewer of those where any draw is harmless */
static uint32_t weight(enum mutation k)
{
    switch ((unsigned)k) {
    case MUTATE_DROP:
        return 5;
    case MUTATE_ARENA:
    case MUTATE_SEQ:
    case MUTATE_QUEUE:
    case MUTATE_GPU:
    case MUTATE_DUPLICATE:
    case MUTATE_SWAP:
        return 1;
    }
    return 2;
}

static void mutate_plan(const struct bench *b, const char *what, uint64_t seed, uint32_t count, struct tally *tallies)
{
    const struct plan *p = b->plan;
    uint32_t kinds = 0, total = 0;
    enum mutation list[4 * NMUTATIONS];
    for (unsigned k = 0; k < NMUTATIONS; k++)
        for (uint32_t w = 0; w < weight((enum mutation)k) && kinds < 4 * NMUTATIONS; w++)
            list[kinds++] = (enum mutation)k;
    for (uint32_t draws = 0; total < count && draws < 20 * count; draws++) {
        struct arena *a = arena_new();
        struct mutant m;
        enum mutation kind = list[random_below(&seed, kinds)];
        struct tally *t = &tallies[kind];
        if (!mutate(a, p, kind, &seed, &m)) {
            arena_free(a);
            continue;
        }
        total++;
        t->made++;
        const struct verdict *v = verify_plan(a, &m.plan, false);
        if (v->nviolations) {
            bool named = false;
            for (uint32_t i = 0; i < v->nviolations && !named; i++)
                named = mutate_named(&m, &v->violations[i]);
            t->killed[v->violations[0].property]++;
            t->unnamed += !named;
            if (!named && getenv("LLMC_SHOW"))
                printf("\n    %s %s not named: %.600s", what, mutation_name(kind), v->violations[0].message);
        } else {
            t->survived++;
            judge(a, &m, b, t, what);
        }
        mutant_free(&m);
        arena_free(a);
    }
}

/* adds `count` mutants of one decision's plan; false: the plan itself is not right */
static bool mutate_decision(struct arena *a, struct job *job, struct topo *topo, const struct decision *d, uint64_t seed,
                            uint32_t count, struct tally *tallies)
{
    const char *why = "", *what = decision_text(a, job, d);
    struct decision alone = layout_alone(a, job, topo);
    struct plan *raw = compile_apart(a, job, topo, d, &(struct compile_options){0}, &why);
    struct plan *one = compile_apart(a, job, topo, &alone, &(struct compile_options){0}, &why);
    CU_ASSERT_FATAL(raw && one);
    struct plan *p = mutate_spread(a, raw, 8);
    struct bench b = {p, exact_truth(a, one, &why)};
    const struct verdict *v = verify_plan(a, p, true);
    bool fine = !v->nviolations && b.truth;
    why = fine ? oracle_order(a, p, false) : v->nviolations ? v->violations[0].message : why;
    if (fine && !why)
        why = exact_compare(a, p, b.truth, seed).why;
    if (why)
        printf("\n    %s, without a fault: %.600s", what, why);
    CU_ASSERT_PTR_NULL(why);
    if (!why)
        mutate_plan(&b, what, seed, count, tallies);
    plan_close(raw);
    plan_close(one);
    for (uint32_t r = 0; r < p->nroles; r++) {
        program_free(p->train[r]);
        program_free(p->eval[r]);
    }
    ranks_free(p->ranks);
    return !why;
}

/* unnamed: thousandths, rounded up, that may be reported only where what they did arrives several instructions later */
static void print_tallies(const struct tally *tallies, uint32_t least, uint32_t unnamed)
{
    struct tally sum = {0};
    printf("\n    %-20s %6s %6s %8s %7s   killed by property 1..8\n", "mutation", "made", "alive", "harmless",
           "unnamed");
    for (unsigned k = 0; k < NMUTATIONS; k++) {
        const struct tally *t = &tallies[k];
        printf("    %-20s %6u %6u %8u %7u  ", mutation_name((enum mutation)k), t->made, t->survived,
               t->harmless, t->unnamed);
        for (int p = 1; p <= 8; p++)
            printf(" %5u", t->killed[p]);
        printf("\n");
        sum.made += t->made;
        sum.survived += t->survived;
        sum.harmless += t->harmless;
        sum.unnamed += t->unnamed;
        sum.disagreed += t->disagreed;
    }
    printf("    %-20s %6u %6u %8u %7u\n  ", "all", sum.made, sum.survived, sum.harmless, sum.unnamed);
    CU_ASSERT_TRUE(sum.made >= least);
    CU_ASSERT_EQUAL(sum.survived, sum.harmless);
    CU_ASSERT_EQUAL(sum.disagreed, 0);
    CU_ASSERT((uint64_t)sum.unnamed * 1000 < (uint64_t)sum.made * unnamed + (unnamed ? 1000 : 1));
}

static void test_mutants(void)
{
    struct tally tallies[NMUTATIONS] = {0};
    uint32_t n = test_draws(NMUTANTS, 300), per_plan = n / (uint32_t)NPLANS;
    if (getenv("MUTANTS"))
        return;
    for (size_t i = 0; i < NPLANS; i++) {
        struct arena *a = arena_new();
        struct job *job = text_job(a, plans[i].model);
        struct topo *topo = random_host(a, 8);
        struct decision d = text_decision(a, job, topo, plans[i].decision);
        mutate_decision(a, job, topo, &d, i + 1, per_plan, tallies);
        arena_free(a);
    }
    print_tallies(tallies, n > 1000 ? n - n / 10 : 0, 0);
}

enum { RANKS_DRAWN = 8, MUTANTS_EACH = 100, MUTANTS_DRAWN = 400 };

/* the job of a drawn plan: short, since the closure is quadratic in instructions; NULL: cannot be lowered yet */
static struct job *drawn_job(struct arena *a, uint32_t model)
{
    const char *why;
    struct job *job = text_job(a, layout_models[model % layout_nmodels].text);
    struct topo *topo = random_host(a, 1);
    job->train.batch = 8;
    struct decision alone = layout_alone(a, job, topo);
    return decision_emittable(a, job, &alone, &why) ? job : NULL;
}

/* the same on layouts drawn over everything */
static void test_drawn(void)
{
    struct tally tallies[NMUTATIONS] = {0};
    const char *wanted = getenv("MUTANTS"), *from = getenv("MUTANTS_FROM");
    uint64_t left = wanted ? strtoull(wanted, NULL, 10) : test_draws(MUTANTS_DRAWN, 40);
    uint32_t each = wanted ? MUTANTS_EACH : 20;
    for (uint64_t seed = from ? strtoull(from, NULL, 10) : 1; left; seed++) {
        struct arena *a = arena_new();
        uint64_t state = seed;
        struct topo *topo = random_host(a, RANKS_DRAWN);
        struct job *job = drawn_job(a, (uint32_t)seed);
        struct decision d;
        if (job && layout_draw(a, &state, job, topo, RANKS_DRAWN, &d)) {
            mutate_decision(a, job, topo, &d, seed, each, tallies);
            left -= left < each ? left : each;
            if (wanted && left % (50 * (uint64_t)each) == 0)
                printf("\n    %llu to go behind layout %llu", (unsigned long long)left, (unsigned long long)seed);
            fflush(stdout);
        }
        arena_free(a);
    }
    print_tallies(tallies, 0, 1);
}

static void test_valid(void)
{
    const char *wanted = getenv("VALID");
    uint64_t n = wanted ? strtoull(wanted, NULL, 10) : test_draws(100, 5), accepted = 0, drawn = 0;
    for (uint64_t seed = 1; drawn < n; seed++) {
        struct arena *a = arena_new();
        uint64_t state = seed ^ (uint64_t)1 << 40;
        const char *why = "";
        struct topo *topo = random_host(a, RANKS_DRAWN);
        struct job *job = drawn_job(a, (uint32_t)seed);
        struct decision d;
        if (job && layout_draw(a, &state, job, topo, RANKS_DRAWN, &d)) {
            struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
            const struct verdict *v = p ? verify_plan(a, p, true) : NULL;
            bool fine = v && !v->nviolations;
            accepted += fine;
            drawn++;
            if (!fine)
                printf("\n    %s: %.500s", decision_text(a, job, &d), v ? v->violations[0].message : why);
            if (p)
                plan_close(p);
        }
        arena_free(a);
    }
    CU_ASSERT_EQUAL(accepted, drawn);
    printf("%llu random valid plans accepted ", (unsigned long long)accepted);
}

void suite_verify_mutation(void);
void suite_verify_mutation(void)
{
    CU_pSuite s = CU_add_suite("verify_mutation", NULL, NULL);
    CU_add_test(s, "thousands of faults are found and named", test_mutants);
    CU_add_test(s, "so are those in drawn layouts", test_drawn);
    CU_add_test(s, "valid plans are accepted", test_valid);
}
