/* Every plan that the compiler makes is accepted, by roles and with all ranks unfolded alike. */

#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define NPLANS 1000
#define NPLANS_QUICK 60 /* sanitizers */

static bool accepted(struct arena *a, const struct plan *p, uint64_t seed, bool full)
{
    const struct verdict *v = verify_plan(a, p, full);
    if (v->nviolations)
        printf("\n    seed %llu%s, %s: property %u: %.1000s", (unsigned long long)seed, full ? " (full)" : "",
               decision_text(a, p->job, &p->decision), v->violations[0].property, v->violations[0].message);
    return !v->nviolations && v->certificate && v->checked_ranks == p->ranks->nranks;
}

static void test_random(void)
{
    uint64_t n = test_draws(NPLANS, NPLANS_QUICK);
    uint32_t wrong = 0, drawn[SCHED_AUTO] = {0};
    for (uint64_t seed = 1; seed <= n && wrong < 5; seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, seed, 8);
        drawn[p->decision.schedule]++;
        wrong += !accepted(a, p, seed, false) || !accepted(a, p, seed, true);
        plan_close(p);
        arena_free(a);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    for (int k = 0; k < SCHED_AUTO && n == NPLANS; k++)
        CU_ASSERT(drawn[k] >= 20);
}

/* What memory held before says nothing: malloc() gives it full of ones and zeros in turn. */
static void test_used_memory(void)
{
    mallopt(M_PERTURB, 0x55);
    for (uint64_t seed = 2001; seed <= 2010; seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, seed, 8);
        CU_ASSERT_TRUE(accepted(a, p, seed, true));
        plan_close(p);
        arena_free(a);
    }
    mallopt(M_PERTURB, 0);
}

/* orders of axes other than the default, and many ranks */
static void test_orders(void)
{
    static const enum axis orders[][NAXES] = {{AXIS_PP, AXIS_DP, AXIS_CP, AXIS_TP},
                                              {AXIS_DP, AXIS_TP, AXIS_PP, AXIS_CP},
                                              {AXIS_TP, AXIS_PP, AXIS_DP, AXIS_CP}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct arena *a = arena_new();
        const char *why = "";
        struct job *job = text_job(a, i % 2 ? tiny_gpt2 : tiny_llama);
        struct topo *topo = random_host(a, 64);
        struct decision d = text_decision(a, job, topo, "tp=2 sp=1 pp=4 dp=8 zero=1 microbatch=1");
        memcpy(d.order, orders[i], sizeof d.order);
        struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        CU_ASSERT_TRUE(accepted(a, p, i, false));
        CU_ASSERT_TRUE(accepted(a, p, i, true));
        plan_close(p);
        arena_free(a);
    }
}

/* experts that cut tp into two digits: heads, whose norms share a gain, go by both */
static void test_digits(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(
        a, "llmc 1\nmodel tiny {\n    vocab 32\n    width 16\n    norm rmsnorm\n    embed tokens\n"
           "    repeat 2 {\n        layer {\n            attn gqa(heads=4, kv=4, rope=10_000, qk_norm=head)\n"
           "            moe swiglu(16) {\n                experts 4\n                active 2\n"
           "                router softmax\n            }\n        }\n    }\n    head untied\n}\n"
           "train {\n    sequence 16\n    batch 8 sequences\n    precision fp32\n"
           "    optimizer adamw(lr=1e-3)\n}\n");
    struct topo *topo = random_host(a, 8);
    struct decision d = text_decision(a, job, topo, "tp=4 sp=1 dp=2 ep=2 zero=1 microbatch=1");
    struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT(p->mesh.ndigits > NAXES);
    CU_ASSERT_TRUE(accepted(a, p, 0, true));
    plan_close(p);
    arena_free(a);
}

/* key heads that several ranks of tp have, of one dimension and of more */
static void test_shared_heads(void)
{
    static const char *const decisions[] = {"tp=2 microbatch=1", "tp=4 sp=1 dp=2 zero=1 microbatch=1"};
    for (uint32_t k = 0; k < 8; k++) {
        struct arena *a = arena_new();
        const char *why = "";
        struct job *job = text_job(
            a,
            arena_printf(a,
                         "llmc 1\nmodel m {\n vocab 24\n width 16\n norm layernorm\n embed tokens\n"
                         " embed positions(8)\n layer {\n attn gqa(heads=4, kv=%u, head=%u, qkv_bias=yes)\n"
                         " ffn relu(16)\n }\n head tied\n}\ntrain {\n sequence 8\n batch 4 sequences\n"
                         " precision fp32\n optimizer adamw(lr=1e-3)\n}\n",
                         k & 1 ? 2 : 1, k & 2 ? 2 : 1));
        struct topo *topo = random_host(a, 8);
        struct decision d = text_decision(a, job, topo, decisions[k / 4]);
        struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        CU_ASSERT_TRUE(accepted(a, p, k, true));
        plan_close(p);
        arena_free(a);
    }
}

/* Places of two buffers of one program, in the table and in all that names them. */
static void exchange_buffers(struct program *p, uint32_t x, uint32_t y)
{
    struct buffer b = p->buffers[x];
    p->buffers[x] = p->buffers[y];
    p->buffers[y] = b;
    for (uint32_t i = 0; i < p->noperands; i++) {
        uint32_t *at = &p->operands[i].buffer;
        *at = *at == x ? y : *at == y ? x : *at;
    }
}

/* a buffer's number says nothing: the metrics and the first parameters in each other's */
static void test_numbers_of_buffers(void)
{
    struct arena *a = arena_new();
    struct plan *p = text_plan(a, tiny_llama, "tp=2 pp=2 dp=2 zero=1 microbatch=1");
    for (uint32_t r = 0; r < p->nroles; r++)
        for (int kind = 0; kind < 2; kind++) {
            struct program *q = kind ? p->eval[r] : p->train[r];
            uint32_t metrics = 0, param = 0;
            while (q->buffers[metrics].kind != BUFFER_METRICS)
                metrics++;
            while (q->buffers[param].kind != BUFFER_PARAM)
                param++;
            exchange_buffers(q, metrics, param);
        }
    CU_ASSERT_TRUE(accepted(a, p, 0, true));
    plan_close(p);
    arena_free(a);
}

/* a bucket of 2^32 - 1 rows of 64 columns, the most that an operand says */
static void test_large_bucket(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(
        a, "llmc 1\nmodel large {\n    vocab 12583104\n    width 21845\n    norm rmsnorm\n    embed tokens\n"
           "    layer {\n        attn mha(heads=5)\n        ffn relu(64)\n    }\n    head tied\n}\n"
           "train {\n    sequence 4\n    batch 1 sequences\n    precision fp32\n"
           "    optimizer sgd(lr=0.1)\n}\n");
    struct topo *topo = random_host(a, 1);
    topo->types[0].gpu.memory_bytes = (uint64_t)1 << 50;
    struct decision d = text_decision(a, job, topo, "microbatch=1");
    struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
    if (!p)
        printf("\n    %s", why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    bool found = false;
    for (uint32_t i = 0; i < p->train[0]->nbuffers; i++) {
        const struct buffer *b = &p->train[0]->buffers[i];
        found |= b->kind == BUFFER_PARAM && b->bytes == UINT64_C(0xffffffff) * 64 * 4;
    }
    CU_ASSERT_TRUE(found);
    CU_ASSERT_TRUE(accepted(a, p, 0, false));
    plan_close(p);
    arena_free(a);
}

void suite_verify_accept(void);
void suite_verify_accept(void)
{
    CU_pSuite s = CU_add_suite("verify_accept", NULL, NULL);
    CU_add_test(s, "a thousand random plans, by roles and in full", test_random);
    CU_add_test(s, "memory that has been used", test_used_memory);
    CU_add_test(s, "other orders of the axes", test_orders);
    CU_add_test(s, "heads over several digits", test_digits);
    CU_add_test(s, "key heads that several ranks have", test_shared_heads);
    CU_add_test(s, "buffers in another order", test_numbers_of_buffers);
    CU_add_test(s, "a bucket as large as operands can say", test_large_bucket);
}
