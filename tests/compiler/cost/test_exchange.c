/* Experts over nodes: how many nodes a token meets, which way its rows take, and the plan of it. */

#include "compiler/cost/cost_private.h"
#include "compiler/execute/exact.h"
#include "compiler/verify/verify.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* by drawing: groups without putting back, choices with; a set is met if some choice lies in it */
static double drawn(uint32_t n, uint32_t k, uint32_t groups, uint32_t pick)
{
    enum { DRAWS = 40000, MOST = 64 };
    uint64_t state = 5;
    uint32_t total = 0, parts = groups > n ? groups : n;
    for (uint32_t d = 0; d < DRAWS; d++) {
        uint32_t picked[MOST], met = 0;
        bool seen[MOST] = {0};
        for (uint32_t g = 0; g < groups; g++)
            picked[g] = g;
        for (uint32_t i = 0; i < pick; i++) {
            uint32_t j = i + random_below(&state, groups - i), swap = picked[i];
            picked[i] = picked[j];
            picked[j] = swap;
        }
        for (uint32_t j = 0; j < k; j++) {
            uint32_t in = parts / groups, part = picked[random_below(&state, pick)] * in + random_below(&state, in);
            met += !seen[part * n / parts];
            seen[part * n / parts] = true;
        }
        total += met;
    }
    return (double)total / DRAWS;
}

static void test_met(void)
{
    static const struct {
        uint32_t n, k, groups, pick;
        double within; /* the sets that picked groups lie in are counted by their mean: exact where they are groups */
    } cases[] = {{8, 8, 1, 1, 0.01}, {8, 8, 8, 4, 0.01}, {2, 2, 1, 1, 0.01}, {4, 6, 8, 4, 0.08},
                 {16, 8, 8, 4, 0.01}, {32, 8, 1, 1, 0.01}, {2, 8, 8, 4, 0.05}};
    CU_ASSERT_DOUBLE_EQUAL(model_sets_met(8, 8, 8, 4), 3.5995, 1e-3);
    CU_ASSERT_DOUBLE_EQUAL(model_sets_met(16, 8, 8, 1), 2 * (1 - pow(0.5, 8)), 1e-9); /* one group of eight is two of 16 sets */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t pick = cases[i].groups > 1 ? cases[i].pick : 1;
        double want = drawn(cases[i].n, cases[i].k, cases[i].groups, pick),
               got = model_sets_met(cases[i].n, cases[i].k, cases[i].groups, cases[i].groups > 1 ? cases[i].pick : 0);
        CU_ASSERT(fabs(got - want) <= cases[i].within * want);
        if (!(fabs(got - want) <= cases[i].within * want))
            printf("\n    %u sets, %u choices, %u of %u groups: %.3f, drawn %.3f", cases[i].n, cases[i].k, pick,
                   cases[i].groups, got, want);
    }
}

static const char model[] =
    "llmc 1\nmodel m {\n    vocab 64\n    width %u\n    norm rmsnorm\n    embed tokens\n    repeat 2 {\n        layer {\n"
    "            attn gqa(heads=4, kv=2, rope=10_000)\n            moe swiglu(%u) {\n                experts 8\n"
    "                active 3\n                router softmax\n            }\n        }\n    }\n    head untied\n}\n"
    "train {\n    sequence %u\n    batch 8 sequences\n    precision %s\n    optimizer adamw(lr=1e-3)\n}\n";

static struct topo *pairs_of_gpus(struct arena *a, uint32_t nodes)
{
    struct source *s = ARENA_NEW(a, struct source);
    char *text = arena_printf(a, "<cluster version=\"1\"><node-type id=\"n\" gpus=\"2\"><gpu model=\"H100-SXM\"/><scale-up kind=\"nvswitch\" bandwidth=\"450GB/s\"/>"
                              "<nic count=\"2\" bandwidth=\"400Gb/s\"/></node-type><nodes type=\"n\" count=\"%u\"/>"
                              "<fabric medium=\"infiniband\"><tier name=\"leaf\" span=\"all\"/></fabric></cluster>", nodes);
    *s = (struct source){"c.xml", text, strlen(text), false};
    struct diag *d = diag_new(a);
    struct topo *t = topo_parse(a, d, s, NULL);
    if (!t)
        diag_print(d, stderr, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

/* Fast links and large rows: once per node.  Rows of a few bytes, one node, ranks that no node has two of, or a decision that
 * says so: straight. */
static void test_rule(void)
{
    static const struct {
        const char *decision;
        uint32_t nodes, width, want;
    } cases[] = {{"dp=4 ep=4 microbatch=2", 2, 4096, 2},         {"dp=8 ep=8 microbatch=1", 4, 4096, 4},
                 {"dp=4 ep=4 microbatch=2", 2, 16, 1},           {"dp=2 ep=2 microbatch=2", 1, 4096, 1},
                 {"tp=2 sp=1 dp=4 ep=4 microbatch=2", 4, 4096, 2}, {"dp=4 ep=4 nodes=1 microbatch=2", 2, 4096, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        uint32_t width = cases[i].width;
        struct job *job = text_job(a, arena_printf(a, model, width, width, width > 64 ? 2048u : 16u, "bf16"));
        struct topo *topo = pairs_of_gpus(a, cases[i].nodes);
        struct decision d = text_decision(a, job, topo, cases[i].decision);
        const char *why = "";
        CU_ASSERT_FATAL(decision_place(a, topo, &d, &why));
        const struct cost *c = cost_new(a, job, topo, &d);
        CU_ASSERT_EQUAL(cost_exchange_nodes(c), cases[i].want);
        if (cost_exchange_nodes(c) != cases[i].want)
            printf("\n    %s on %u nodes: %u", cases[i].decision, cases[i].nodes, cost_exchange_nodes(c));
        arena_free(a);
    }
}

/* the whole of it: a plan that says so, verifies, and computes what one rank computes; rows between nodes are fewer bytes */
static void test_plan(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(a, arena_printf(a, model, 16, 16, 8, "fp32"));
    struct topo *topo = pairs_of_gpus(a, 2);
    struct decision d = text_decision(a, job, topo, "dp=4 ep=4 nodes=2 microbatch=1"), alone = layout_alone(a, job, topo);
    CU_ASSERT_FATAL(decision_place(a, topo, &d, &why));
    struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
    struct plan *one = compile_decision(a, job, topo, &alone, &(struct compile_options){0}, &why);
    CU_ASSERT_FATAL(p && one);
    CU_ASSERT_EQUAL(verify_plan(a, p, true)->nviolations, 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(decision_text(a, job, &p->decision), "ep 4 over 2 nodes"));
    struct exact_truth *truth = exact_truth(a, one, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(truth);
    CU_ASSERT_PTR_NULL(exact_compare(a, p, truth, 3).why);
    const struct program *q = p->train[0];
    uint32_t far = 0, near = 0;
    for (uint32_t i = 0; i < q->ninsns; i++) {
        if (q->insns[i].op != OP_ALL_TO_ALL || q->insns[i].action != 'F')
            continue;
        uint32_t mask = q->slots[q->attrs[q->insns[i].attr + ATTR(ALL_TO_ALL, group)].slot].arg;
        far += mask == p->mesh.dim[MESH_EP_FAR];
        near += mask == p->mesh.dim[MESH_EP_NEAR];
        CU_ASSERT_EQUAL(mesh_group_level(&p->mesh, topo, d.nodes, 2, mask), mask == p->mesh.dim[MESH_EP_FAR]);
    }
    CU_ASSERT(far == 2 * 2 * 4 && near == 2 * 2 * 3); /* layers, microbatches: choices, weights, rows, sums; rows, counts, rows */
    plan_close(p);
    plan_close(one);
    arena_free(a);
}

void suite_exchange(void);
void suite_exchange(void)
{
    CU_pSuite s = CU_add_suite("exchange", NULL, NULL);
    CU_add_test(s, "nodes that a token meets, against draws", test_met);
    CU_add_test(s, "once per node where it is faster", test_rule);
    CU_add_test(s, "a plan over two nodes equals one rank", test_plan);
}
