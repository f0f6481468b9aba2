/* Which products round to 8 bits, and how, and the formats of weights, gradients, their sums and the optimizer's state, are part
 * of what a plan has to compute: every one that does otherwise is found. */

#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>

static const char fp8_job[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm\n    embed tokens\n"
    "    layer {\n        attn mla(heads=4, q_rank=16, kv_rank=8, nope=8, rope=4, v=8)\n        ffn swiglu(48)\n    }\n"
    "    layer {\n        attn gqa(heads=4, kv=2)\n        moe swiglu(24) {\n            experts 8\n            active 2\n"
    "            shared 1\n            router sigmoid(bias=yes)\n        }\n    }\n    head untied\n}\n"
    "train {\n    sequence 16\n    batch 16 sequences\n    precision fp8(moments=bf16, recipe=block)\n"
    "    optimizer adamw(lr=1e-3)\n}\n";

/* place of the attribute; NONE: the instruction has none */
static uint32_t fp8_attr(const struct insn *x)
{
    if (isa_product(x->op))
        return x->attr + ATTR(MATMUL_NT, fp8);
    if (isa_grouped(x->op))
        return x->attr + ATTR(GROUPED_NT, fp8);
    return NONE;
}

static bool accepted(struct arena *a, const struct plan *p)
{
    struct arena_mark mark = arena_mark(a);
    bool fine = verify_plan(a, p, false)->nviolations == 0;
    arena_reset(a, mark);
    return fine;
}

/* every product of the plan with another recipe; the vocabulary's and the router's with any */
static void check_recipes(const char *decision, uint32_t *rounding, uint32_t *plain)
{
    struct arena *a = arena_new();
    struct job *job = text_job(a, fp8_job);
    struct topo *topo = random_host(a, 8);
    struct decision d = text_decision(a, job, topo, decision);
    const char *why = "";
    struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT(accepted(a, p));
    for (uint32_t r = 0; r < 2 * p->nroles; r++) {
        struct program *q = r < p->nroles ? p->train[r] : p->eval[r - p->nroles];
        for (uint32_t i = 0; i < q->ninsns; i++) {
            uint32_t at = fp8_attr(&q->insns[i]);
            if (at == NONE)
                continue;
            int64_t said = q->attrs[at].u.i;
            CU_ASSERT(said == 0 || said == 3);
            *(said ? rounding : plain) += 1;
            q->attrs[at].u.i = said ? 0 : 3;
            CU_ASSERT(!accepted(a, p));
            q->attrs[at].u.i = said ? 4 : 1;
            CU_ASSERT(!accepted(a, p));
            q->attrs[at].u.i = said;
        }
    }
    plan_close(p);
    arena_free(a);
}

static void test_recipes(void)
{
    static const char *const decisions[] = {"tp=1 pp=1 dp=4 ep=4 zero=1 microbatch=2", "tp=1 pp=2 dp=2 ep=2 zero=0 microbatch=4"};
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++) {
        uint32_t rounding = 0, plain = 0;
        check_recipes(decisions[i], &rounding, &plain);
        CU_ASSERT(rounding >= 30 && plain >= 8);
    }
}

/* Rows to experts in 8 bits, and what the backward pass reads, are what the job says, no more and no less: a plan that has them
 * so is none of a job without the word, nor the other way round. */
static void test_stored(void)
{
    static const char *const decisions[] = {"tp=1 pp=1 dp=4 ep=4 zero=1 microbatch=2", "tp=1 pp=1 dp=1 microbatch=4",
                                            "tp=1 pp=1 dp=4 ep=4 nodes=2 zero=0 microbatch=2", "tp=2 sp=1 ep=2 dp=2 etp=2 microbatch=2"};
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++)
        for (int words = 0; words < 4; words++) {
            bool sent = words & 1, kept = words & 2;
            struct arena *a = arena_new();
            struct job *job = text_job(a, fp8_job);
            struct topo *topo = random_host(a, 8);
            struct decision d = text_decision(a, job, topo, decisions[i]);
            const char *why = "";
            job->train.fp8_sent = sent;
            job->train.fp8_kept = kept;
            struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
            CU_ASSERT_PTR_NOT_NULL_FATAL(p);
            CU_ASSERT(accepted(a, p));
            p->job->train.fp8_sent = !sent;
            CU_ASSERT(!accepted(a, p));
            p->job->train.fp8_sent = sent;
            p->job->train.fp8_kept = !kept;
            CU_ASSERT(!accepted(a, p));
            uint32_t made = 0;
            for (uint32_t k = 0; k < p->train[0]->ninsns; k++)
                made += p->train[0]->insns[k].op == OP_QUANTIZE;
            CU_ASSERT_EQUAL(made > 0, sent || kept);
            plan_close(p);
            arena_free(a);
        }
}

static const char *const formats[] = {"bf16", "bf16(grads=bf16)", "bf16(reduce=bf16)", "bf16(grads=bf16, reduce=fp32)",
                                      "bf16(master=bf16)", "bf16(moments=bf16)", "bf16(master=bf16, reduce=bf16)"};

static struct job *job_of(struct arena *a, const char *precision)
{
    return text_job(a, arena_printf(a,
                                    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm\n    embed tokens\n"
                                    "    repeat 4 {\n        layer {\n            attn gqa(heads=4, kv=2)\n            ffn swiglu(48)\n"
                                    "        }\n    }\n    head tied\n}\ntrain {\n    sequence 16\n    batch 16 sequences\n"
                                    "    precision %s\n    optimizer adamw(lr=1e-3)\n}\n",
                                    precision));
}

/* the plan of each format is right for that one alone, however gradients come together */
static void test_formats(void)
{
    static const char *const decisions[] = {"tp=2 sp=1 pp=2 dp=2 zero=0 microbatch=2", "tp=2 sp=1 pp=2 dp=2 zero=1 microbatch=8",
                                            "tp=1 cp=2 pp=1 dp=4 zero=2 shard=4 microbatch=1", "tp=2 sp=1 pp=1 dp=4 zero=3 shard=2 microbatch=2",
                                            "tp=1 pp=4 dp=2 zero=2 microbatch=1 schedule=zb_h1"};
    for (size_t k = 0; k < sizeof decisions / sizeof *decisions; k++)
        for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
            struct arena *a = arena_new();
            struct job *job = job_of(a, formats[i]);
            struct topo *topo = random_host(a, 8);
            struct decision d = text_decision(a, job, topo, decisions[k]);
            const char *why = "";
            struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
            CU_ASSERT_PTR_NOT_NULL_FATAL(p);
            for (size_t j = 0; j < sizeof formats / sizeof *formats; j++) {
                p->job = job_of(a, formats[j]);
                CU_ASSERT_EQUAL(accepted(a, p), i == j);
                if (accepted(a, p) != (i == j))
                    printf("\n    %s: a plan for %s is %s for %s", decisions[k], formats[i], i == j ? "refused" : "accepted", formats[j]);
            }
            plan_close(p);
            arena_free(a);
        }
}

/* hiding transfers of tensor parallelism leaves rows whole where they are kept in 8 bits: with and without it a plan is right */
static void test_kept_whole(void)
{
    static const char *const decisions[] = {"tp=2 sp=1 pp=2 dp=2 zero=0 microbatch=2", "tp=4 sp=1 dp=2 zero=3 microbatch=4",
                                            "tp=2 dp=2 zero=1 microbatch=4"};
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++)
        for (int hidden = 0; hidden < 2; hidden++) {
            struct arena *a = arena_new();
            struct job *job = job_of(a, "fp8(activations=fp8)");
            struct topo *topo = random_host(a, 8);
            struct decision d = text_decision(a, job, topo, decisions[i]);
            const char *why = "";
            job->wishes.overlap = hidden ? OVERLAP_TP : 0;
            struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
            CU_ASSERT_PTR_NOT_NULL_FATAL(p);
            CU_ASSERT(accepted(a, p));
            plan_close(p);
            arena_free(a);
        }
}

void suite_precision(void);
void suite_precision(void)
{
    CU_pSuite s = CU_add_suite("precision", NULL, NULL);
    CU_add_test(s, "a product that rounds otherwise than the job says is found", test_recipes);
    CU_add_test(s, "rows travel and stay in 8 bits where the job says so, and only there", test_stored);
    CU_add_test(s, "a plan in other formats than the job's is refused", test_formats);
    CU_add_test(s, "rows kept in 8 bits beside hidden transfers", test_kept_whole);
}
