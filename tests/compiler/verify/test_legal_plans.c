/* Legal plans that once were called wrong, or could not be executed exactly: each is a combination that
 * models of one family alone don't have (tests/e2e/test_drawn_models.c draws more).  Each must be legal and
 * emittable, verify by roles and by ranks, and compute what one rank computes modulo a prime; and so must its
 * small plan, where shrinking it is asked for. */

#include "compiler/execute/exact.h"
#include "compiler/execute/shrink.h"
#include "compiler/verify/verify.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <stdio.h>

struct legal {
    const char *what, *norm, *ends; /* the model but for its layers */
    const char *layers, *train, *plan;
    const char *decision;
    bool shrinks; /* to a plan whose exact execution is asked for too */
};
#define TOKENS "embed tokens\n    head untied"
#define QKNORM "repeat 2 { layer {\n attn gqa(heads=4, kv=4, head=4, qk_norm=head)\n"
#define LATENT "attn mla(heads=4, kv_rank=8, nope=4, rope=4, v=6)\n"
#define KEYS(kv, words) "repeat 2 { layer {\n attn gqa(heads=4, kv=" kv ", head=4" words ")\n"
#define MOE "moe swiglu(8) {\n experts 4\n active 2\n router softmax\n }\n } }"
#define EIGHT(words)                                                                                         \
    "repeat 2 { layer {\n attn mha(heads=2)\n moe swiglu(8) {\n experts 8\n active 2\n" words "}\n } }"
#define DENSE "repeat 4 { layer {\n attn mha(heads=2)\n ffn gelu(16)\n } }"

static const struct legal legal[] = {
    {"normalised heads along digits that experts cut", "rmsnorm", TOKENS, QKNORM MOE, "", "",
     "tp=4 sp=1 ep=2", true},
    {"a scaled embedding before positions, with split backward passes", "rmsnorm",
     "embed tokens(scale=3.5)\n embed positions(8)\n head untied", DENSE, "", "", "pp=2 schedule=zb_h1",
     true},
    {"the same with a norm of the embedding", "rmsnorm",
     "embed tokens(scale=3.5, norm=yes)\n embed positions(8)\n head untied", DENSE, "", "",
     "tp=2 sp=1 pp=2 schedule=zb_h1", true},
    {"experts whose input has no norm", "rmsnorm(place=post)", TOKENS, EIGHT("shared 1\n"), "", "",
     "tp=2 sp=1 dp=2 ep=2", true},
    {"a bias of the router's product beside its correction bias", "rmsnorm", TOKENS,
     EIGHT("router sigmoid(bias=yes, linear_bias=yes)\n"), "", "", "dp=2 ep=2", true},
    {"loads of experts among activations in host memory", "rmsnorm", TOKENS, EIGHT("balance 0.01\n"), "",
     "offload [activations]", "dp=2 ep=2", false},
    {"experts of one column on each rank", "rmsnorm", TOKENS,
     "repeat 2 { layer {\n attn mha(heads=2)\n moe relu(2) {\n experts 4\n active 2\n }\n } }",
     "precision bf16", "", "dp=2 etp=2", false},
    {"room that is bounded in some layers only", "rmsnorm", TOKENS,
     "layer {\n attn mha(heads=2)\n moe swiglu(8) {\n experts 4\n active 3\n }\n }\n" QKNORM MOE,
     "expert_room 1.5", "", "dp=2 ep=2", false},
    {"GPT-2's kind of model with latent attention", "layernorm",
     "embed tokens\n embed positions(8)\n head tied", "repeat 2 { layer {\n " LATENT "ffn gelu(16)\n } }", "",
     "", "tp=2 dp=2", false},
    {"GPT-2's kind of model with normalised queries", "layernorm",
     "embed tokens\n embed positions(8)\n head tied", QKNORM "ffn gelu(16)\n } }", "", "", "tp=2 dp=2",
     false},
    {"a capped head of many words with a prediction module", "rmsnorm",
     "embed tokens\n head tied(softcap=8)\n predict 1 ahead", DENSE, "", "", "dp=2 schedule=zb_h1", true},
    {"rows to nodes on the queue of sums over stages", "rmsnorm", "embed tokens\n head tied",
     "repeat 4 { layer {\n attn mha(heads=2)\n " MOE, "", "",
     "pp=2 vpp=2 dp=4 ep=4 nodes=2 schedule=combined_1f1b", true},
    {"master weights in host memory", "rmsnorm", TOKENS, DENSE, "precision bf16", "offload [optimizer]",
     "dp=2 zero=1", true},
    {"experts in the middle of a stage", "rmsnorm", TOKENS,
     "layer {\n attn mha(heads=2)\n ffn gelu(16)\n }\n layer {\n attn mha(heads=2)\n moe relu(8) {\n experts "
     "4\n active 2\n "
     "}\n }\n layer {\n attn mha(heads=2)\n ffn gelu(16)\n }",
     "", "", "dp=2 ep=2", true},
    {"two key heads on four ranks, with biases and norms", "rmsnorm", TOKENS,
     KEYS("2", ", rope=500, qkv_bias=yes, qk_norm=head") "ffn swiglu(12)\n } }", "", "", "tp=4 dp=2 zero=1", true},
    {"one key head on ranks that experts cut", "rmsnorm", TOKENS, KEYS("1", "") MOE, "", "", "tp=4 sp=1 ep=2 etp=2", true},
    {"the same, with shares of one expert across key heads", "rmsnorm", TOKENS, KEYS("2", "") MOE, "", "",
     "tp=4 sp=1 dp=2 ep=2 etp=4", true},
    {"shared key heads of sequences that go round a ring", "rmsnorm", TOKENS, KEYS("1", ", rope=500") "ffn swiglu(12)\n } }",
     "", "", "tp=2 sp=1 ring=2 dp=2 zero=2", true},
    {"shared key heads of gathered sequences, parameters gathered too", "rmsnorm", TOKENS,
     KEYS("2", ", bias=yes") "ffn gelu(16, bias=yes)\n } }", "precision bf16", "", "tp=4 sp=1 all_gather=2 dp=2 zero=3 shard=2", true},
    {"sinks, and a clamped feed-forward, with one key head on four ranks", "rmsnorm", TOKENS,
     KEYS("1", ", rope=500, sinks=yes") "ffn swiglu(12, limit=0.5, alpha=1.702, offset=1)\n } }", "precision bf16", "",
     "tp=4 sp=1 dp=2 zero=1", true},
    {"sinks of sequences that go round a ring, layers run again", "rmsnorm", TOKENS,
     KEYS("2", ", rope=500, window=3, sinks=yes") "moe swiglu(8, limit=2) {\n experts 4\n active 2\n }\n } }", "", "",
     "tp=2 sp=1 ring=2 dp=2 ep=2 full=1", true},
    {"sinks of gathered sequences in host memory", "rmsnorm", TOKENS, KEYS("4", ", sinks=yes") "ffn gelu(12)\n } }",
     "precision bf16", "offload [activations]", "all_gather=2 dp=2 zero=3 full=1", true},
    {"sinks with split backward passes in two copies of the model, GPT-2's names", "layernorm",
     "embed tokens\n embed positions(8)\n head tied", KEYS("4", ", sinks=yes") "ffn gelu(16)\n } }", "", "",
     "tp=2 pp=2 schedule=dualpipe", true},
    {"a prediction module with experts behind a dense model", "rmsnorm",
     "embed tokens\n head untied\n predict 2 ahead { layer { attn mha(heads=4)\n moe swiglu(8) {\n experts 4\n active 2\n"
     " balance 0.01\n router sigmoid(bias=yes)\n } } }",
     DENSE, "", "", "tp=2 sp=1 dp=2 ep=4 pp=2 zero=1", true},
    {"a dense prediction module behind experts, in two copies of the model", "rmsnorm",
     "embed tokens\n head tied\n predict 1 ahead { layer { attn gqa(heads=4, kv=2, alibi=yes)\n ffn gelu(16, bias=yes) } }",
     "repeat 2 { layer {\n attn mha(heads=2)\n " MOE, "", "", "pp=2 dp=2 ep=2 schedule=dualpipe", true},
    {"experts with biases over nodes, layers run again, in bf16", "rmsnorm", TOKENS,
     "repeat 2 { layer {\n attn mha(heads=4)\n moe swiglu(8, bias=yes, limit=7) {\n experts 8\n active 2\n } } }", "precision bf16", "",
     "tp=2 sp=1 dp=2 ep=4 nodes=2 full=1 zero=1", true},
    {"experts with biases in two copies of the model, ungated", "layernorm", TOKENS,
     "repeat 4 { layer {\n attn mha(heads=2)\n moe gelu(8, bias=yes) {\n experts 4\n active 2\n balance 0.01\n } } }", "", "",
     "pp=2 dp=2 ep=2 zero=1 schedule=dualpipe", true},
    {"chunks within the runs of a sequence that goes round a ring in other layers", "rmsnorm", TOKENS,
     "repeat 2 { layer {\n attn gqa(heads=4, kv=2, head=4, rope=500, chunk=2)\n ffn gelu(16)\n }\n layer {\n attn mha(heads=4, rope=500)\n"
     " ffn gelu(16)\n } }", "", "", "tp=2 sp=1 ring=2 dp=2 zero=1 full=1", true},
    {"linear biases with one key head on four ranks, layers run again", "layernorm", "embed tokens(norm=yes)\n head tied",
     KEYS("1", ", alibi=yes") "ffn gelu(16, bias=yes)\n } }", "precision bf16", "", "tp=4 sp=1 dp=2 zero=1 full=1", true},
    {"linear biases of gathered sequences, two copies of the model", "rmsnorm", TOKENS,
     KEYS("2", ", alibi=yes, window=3") "ffn gelu(16)\n } }", "", "", "tp=2 sp=1 all_gather=2 pp=2 schedule=dualpipe", true},
    {"shared key heads with split backward passes", "rmsnorm", TOKENS, KEYS("1", ", qkv_bias=yes") "ffn swiglu(12)\n } }", "",
     "", "tp=2 pp=2 schedule=zb_h1 full=1", true},
    {"shared key heads in two copies of the model", "rmsnorm", TOKENS, KEYS("1", "") "ffn swiglu(12)\n } }", "", "",
     "tp=2 pp=2 dp=2 zero=1 schedule=dualpipe", true},
    {"shared key heads of a prediction module, state in host memory", "rmsnorm",
     "embed tokens\n head untied\n predict 1 ahead", KEYS("2", "") "ffn swiglu(12)\n } }", "", "offload [optimizer]",
     "tp=4 sp=1 pp=2 zero=0", true},
    {"GPT-2's kind of model with one key head", "layernorm", "embed tokens\n embed positions(8)\n head tied",
     KEYS("1", ", bias=yes") "ffn gelu(16, bias=yes)\n } }", "", "", "tp=2 dp=2", true},
};

static bool verifies(struct arena *a, const struct legal *x, const struct plan *p)
{
    for (int full = 0; full < 2; full++) {
        const struct verdict *v = verify_plan(a, p, full);
        if (v->nviolations)
            printf("\n    %s: property %u: %.700s", x->what, v->violations[0].property,
                   v->violations[0].message);
        if (v->nviolations)
            return false;
    }
    return true;
}

/* rows that find no room end a step: such plans verify, and are not executed */
static bool check(struct arena *a, const struct legal *x, struct job *job, struct topo *host,
                  const struct decision *d, const struct decision *alone)
{
    const char *why = NULL;
    struct job plain = *job;
    plain.wishes.offload = 0;
    struct plan *p = compile_decision(a, job, host, d, &(struct compile_options){0}, &why);
    struct plan *one = compile_decision(a, &plain, host, alone, &(struct compile_options){0}, &why);
    bool fine = p && one && verifies(a, x, p);
    if (fine && !(job->train.expert_room > 0)) {
        struct exact_truth *truth = exact_truth(a, one, &why);
        why = truth ? exact_compare(a, p, truth, 1).why : why;
    }
    struct shrunk *small = fine && !why && x->shrinks ? shrink_plan(a, p, &why) : NULL;
    if (small) {
        struct legal s = *x;
        s.shrinks = false;
        fine = check(a, &s, &small->job, host, &small->decision, &small->alone);
    }
    if (why)
        printf("\n    %s: %s", x->what, why);
    if (p)
        plan_close(p);
    if (one)
        plan_close(one);
    return fine && !why;
}

static void test_legal(void)
{
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        const struct legal *x = &legal[i];
        struct arena *a = arena_new();
        const char *why = "";
        struct job *job = text_job(a, arena_printf(a,
                                                   "llmc 1\nmodel m {\n vocab 71\n width 8\n norm %s\n %s\n "
                                                   "%s\n}\ntrain {\n sequence 8\n batch 8 "
                                                   "sequences\n %s\n %s\n}\nplan {\n %s\n}\n",
                                                   x->norm, x->ends, x->layers,
                                                   x->train[0] == 'p' ? x->train : "precision fp32",
                                                   x->train[0] == 'e' ? x->train : "", x->plan));
        struct topo *host = random_host(a, 16);
        struct decision d = text_decision(a, job, host, x->decision), alone = layout_alone(a, job, host);
        bool can = decision_legal(a, job, host, &d, &why) && decision_emittable(a, job, &d, &why);
        if (!can)
            printf("\n    %s: %s", x->what, why);
        CU_ASSERT(can && check(a, x, job, host, &d, &alone));
        arena_free(a);
    }
}

void suite_legal_plans(void);
void suite_legal_plans(void)
{
    CU_pSuite s = CU_add_suite("legal_plans", NULL, NULL);
    CU_add_test(s, "legal plans that were called wrong", test_legal);
}
