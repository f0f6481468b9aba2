/* What stands beside the figures of an explanation: bytes per parameter and sizes of transfers, by hand; and
 * the change that helps where two wishes are impossible at once. */

#include "compiler/inspect/explain.h"
#include "compiler/inspect/explain_items.h"
#include "compiler/inspect/explain_private.h"
#include "compiler/model/sema.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void suite_explain_words(void);

/* clang-format off */
static const char dense[] =
    "llmc 1\nmodel m {\n    vocab 97\n    width 32\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 4 {\n        layer {\n            attn gqa(heads=4, kv=2, rope=10_000)\n"
    "            ffn swiglu(48)\n        }\n    }\n    head untied\n}\n"
    "train {\n    sequence 16\n    batch 16 sequences\n    total 1M tokens\n"
    "    precision %s\n    optimizer %s\n}\n";
/* clang-format on */

/* clang-format off */
static const char experts[] =
    "llmc 1\nmodel m {\n    vocab 64\n    width 4096\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 2 {\n        layer {\n            attn gqa(heads=4, kv=2, rope=10_000)\n"
    "            moe swiglu(64) {\n                experts 8\n                active 3\n"
    "                router softmax\n            }\n        }\n    }\n    head untied\n}\n"
    "train {\n    sequence 64\n    batch 8 sequences\n    precision bf16\n    optimizer adamw(lr=1e-3)\n}\n";
/* clang-format on */

static const char pairs[] =
    "<cluster version='1'><node-type id='n' gpus='2'><gpu model='H100-SXM'/><scale-up kind='nvswitch' "
    "bandwidth='450GB/s'/><nic count='2' bandwidth='400Gb/s'/></node-type><nodes type='n' count='4'/>"
    "<fabric medium='infiniband'><tier name='leaf' span='all'/></fabric></cluster>";

static const char *how_of(const struct explain_item *item, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(item[i].name, name))
            return item[i].how;
    return "";
}

static void test_memory(void)
{
    static const struct {
        const char *precision, *optimizer, *decision, *parameters, *gradients, *state;
    } cases[] = {
        {"fp32", "adamw(lr=1e-3)", "dp=2", "4 bytes per parameter", "4 bytes per parameter",
         "8 bytes per parameter"},
        {"fp32", "adamw(lr=1e-3)", "dp=2 zero=1", "4 bytes per parameter", "4 bytes per parameter",
         "8 bytes per parameter, split over 2"},
        {"fp32", "sgd(lr=1e-3, momentum=0.9)", "dp=2 zero=2", "4 bytes per parameter",
         "4 bytes per parameter, split over 2", "4 bytes per parameter, split over 2"},
        {"bf16(master=fp32)", "adamw(lr=1e-3)", "dp=2", "2 bytes per parameter", "4 bytes per parameter",
         "12 bytes per parameter"},
        {"bf16(grads=bf16)", "adamw(lr=1e-3)", "dp=2", "2 bytes per parameter", "2 bytes per parameter",
         "12 bytes per parameter"},
        {"bf16(moments=bf16)", "adamw(lr=1e-3)", "dp=2", "2 bytes per parameter", "4 bytes per parameter",
         "8 bytes per parameter"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct job *job = text_job(a, arena_printf(a, dense, cases[i].precision, cases[i].optimizer));
        struct topo *topo = random_host(a, 8);
        struct decision d = text_decision(a, job, topo, cases[i].decision);
        const struct cost *c = cost_new(a, job, topo, &d);
        struct explain_item item[EXPLAIN_ITEMS];
        struct estimate e;
        cost_estimate(a, c, &e);
        uint32_t n = explain_memory_items(a, c, &e, item);
        CU_ASSERT_STRING_EQUAL(how_of(item, n, "parameters"), cases[i].parameters);
        CU_ASSERT_STRING_EQUAL(how_of(item, n, "gradients"), cases[i].gradients);
        CU_ASSERT_STRING_EQUAL(how_of(item, n, "optimizer"), cases[i].state);
        arena_free(a);
    }
}

/* 64 tokens of 2 sequences, 4096 wide, of 2 bytes each are 1 MiB; with sequence parallelism a rank sends half
 * of the rows. */
static void test_transfers(void)
{
    static const struct {
        const char *decision, *says[3];
    } cases[] = {
        {"tp=2 sp=1 dp=4 ep=4 nodes=2 microbatch=2",
         {"tp: all-gather of 1MiB", "ep between nodes: all-to-all of 512KiB",
          "ep within: all-to-all of 512KiB"}},
        {"dp=4 ep=4 nodes=2 microbatch=2",
         {"ep between nodes: all-to-all of 1MiB", "ep within: all-to-all of 1MiB", ""}},
        {"tp=2 sp=1 dp=4 ep=4 nodes=1 microbatch=2",
         {"tp: all-gather of 1MiB", "ep: all-to-all of 512KiB", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct job *job = text_job(a, experts);
        struct source s = {.name = "c.xml", .text = (char *)pairs, .size = strlen(pairs)};
        struct topo *topo = topo_parse(a, diag_new(a), &s, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
        struct decision d = text_decision(a, job, topo, cases[i].decision);
        const struct cost *c = cost_new(a, job, topo, &d);
        struct explain_item item[EXPLAIN_ITEMS];
        struct estimate e;
        cost_estimate(a, c, &e);
        const char *how = how_of(item, explain_time_items(a, c, &e, item), "layer transfers");
        for (size_t k = 0; k < 3; k++) {
            if (!strstr(how, cases[i].says[k]))
                printf("\n    %s: no \"%s\" in \"%s\"", cases[i].decision, cases[i].says[k], how);
            CU_ASSERT_PTR_NOT_NULL(strstr(how, cases[i].says[k]));
        }
        arena_free(a);
    }
}

/* four digits of a total, in the largest unit that leaves one before the point, or the least unit */
static void test_units(void)
{
    static const struct {
        double total;
        bool bytes;
        const char *name;
        double step, per_name;
        int decimals;
    } cases[] = {
        {0, true, "KiB", 1.024, 1024, 3},
        {1023, true, "KiB", 1.024, 1024, 3},
        {1048575, true, "KiB", 1024, 1024, 0},
        {1048576, true, "MiB", 1048.576, 1048576, 3},
        {1048576 * 12.5, true, "MiB", 10485.76, 1048576, 2},
        {1073741823, true, "MiB", 1048576, 1048576, 0},
        {1073741824, true, "GiB", 1073741.824, 1073741824, 3},
        {1073741824 * 150., true, "GiB", 107374182.4, 1073741824, 1},
        {0.0009, false, "us", 1e-7, 1e-6, 1},
        {0.00099999, false, "us", 1e-7, 1e-6, 1},
        {0.001, false, "ms", 1e-6, 1e-3, 3},
        {0.9999, false, "ms", 1e-4, 1e-3, 1},
        {1, false, "s", 1e-3, 1, 3},
        {2000, false, "s", 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double total = cases[i].total;
        struct explain_unit u = cases[i].bytes ? explain_unit_bytes(total) : explain_unit_seconds(total);
        CU_ASSERT_STRING_EQUAL(u.name, cases[i].name);
        CU_ASSERT_DOUBLE_EQUAL(u.step, cases[i].step, 1e-9 * u.step);
        CU_ASSERT_DOUBLE_EQUAL(u.per_name, cases[i].per_name, 1e-9 * u.per_name);
        CU_ASSERT_EQUAL(u.decimals, cases[i].decimals);
    }
}

/* ---- one decision, without a search ---- */

#define TWO_CPUS                                                                                             \
    "<cluster version='1'><node-type id='n' gpus='2' host-bandwidth='4GB/s'><gpu model='cpu' memory='2GiB' " \
    "memory-bandwidth='5GB/s'><peak dtype='fp32' rate='20GFLOP/s'/></gpu><scale-up kind='none'/>"            \
    "</node-type><nodes type='n' count='1'/>"

struct made {
    struct arena *a;
    struct search_result found;
    struct explanation x;
};

/* the dense model on this cluster as decided; ends with arena_free(m->a) */
static void make(struct made *m, const char *cluster, const char *decision)
{
    struct source s = {.name = "c.xml", .text = (char *)cluster, .size = strlen(cluster)};
    *m = (struct made){.a = arena_new()};
    m->x = (struct explanation){.arena = m->a, .found = &m->found, .rank = UINT32_MAX};
    m->x.job = text_job(m->a, arena_printf(m->a, dense, "fp32", "adamw(lr=1e-3)"));
    m->x.topo = topo_parse(m->a, diag_new(m->a), &s, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m->x.topo);
    m->x.chosen = (struct candidate){.decision = text_decision(m->a, m->x.job, m->x.topo, decision)};
    m->x.cost = cost_new(m->a, m->x.job, m->x.topo, &m->x.chosen.decision);
    cost_estimate(m->a, m->x.cost, &m->x.chosen.estimate);
    m->x.shown = m->x.chosen.estimate;
}

static char *printed(const struct explanation *x, bool json)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    json ? explain_json(x, out) : explain_text(x, false, 100, out);
    fclose(out);
    char *copy = arena_strdup(x->arena, text);
    free(text);
    return copy;
}

/* products are called measured where products were, and not where anything else was */
static void test_measured_products(void)
{
    static const struct {
        const char *measured;
        bool said;
    } cases[] = {
        {"", false},
        {"<collective op='all_reduce' ranks='2'><point size='1MiB' time='1ms'/></collective>", false},
        {"<kernel op='SWIGLU' dtype='fp32'><point size='1MiB' time='1ms'/></kernel>", false},
        {"<gemm dtype='fp32'><point m='64' n='64' k='64' efficiency='0.5'/></gemm>", true},
        {"<kernel op='SWIGLU' dtype='fp32'><point size='1MiB' time='1ms'/></kernel>"
         "<gemm dtype='fp32'><point m='64' n='64' k='64' efficiency='0.5'/></gemm>",
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made m;
        struct arena *a = arena_new();
        bool any = *cases[i].measured;
        const char *form = any ? TWO_CPUS "<measured>%s</measured></cluster>" : TWO_CPUS "%s</cluster>";
        make(&m, arena_printf(a, form, cases[i].measured), "tp=2");
        struct explain_item item[EXPLAIN_ITEMS];
        uint32_t n = explain_time_items(m.a, m.x.cost, &m.x.chosen.estimate, item);
        bool said = false;
        for (uint32_t k = 0; k < n; k++)
            said |= strstr(item[k].how, "; measured products") != NULL;
        CU_ASSERT_EQUAL(said, cases[i].said);
        arena_free(m.a);
        arena_free(a);
    }
}

/* Where nothing but the host's memory joins ranks, transfers in a node take longer with a slower one; what
 * one rank does alone does not. */
static void test_inside_a_node(void)
{
    static const struct {
        const char *decision;
        bool depends;
    } cases[] = {{"tp=2", true}, {"dp=2", true}, {"dp=1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made m;
        make(&m, TWO_CPUS "</cluster>", cases[i].decision);
        explain_shifts(&m.x);
        const struct explain_shift *inside = NULL;
        for (size_t k = 0; k < m.x.shifts.n; k++)
            if (!strcmp(m.x.shifts.at[k].key, "scale_up"))
                inside = &m.x.shifts.at[k];
        CU_ASSERT_PTR_NOT_NULL_FATAL(inside);
        CU_ASSERT_STRING_EQUAL(inside->what, "bandwidth inside a node");
        if (cases[i].depends)
            CU_ASSERT(inside->less > 0 && inside->more < 0)
        else
            CU_ASSERT(inside->less == 0 && inside->more == 0);
        arena_free(m.a);
    }
}

/* what differs in one thing: all of it as JSON, in the order of the search; for people what loses least
 * first, and what does not fit apart */
static void test_others(void)
{
    static const double slower[] = {0.25, 0.125, 0.5, 0.0625, 0.125};
    static const char *const names[] = {"other c", "other b", "too large", "other a", "other ba"};
    enum { N = sizeof slower / sizeof *slower };
    for (uint32_t n = 0; n <= N; n++) {
        struct made m;
        make(&m, TWO_CPUS "</cluster>", "tp=2");
        for (uint32_t i = 0; i < n; i++)
            vec_push(m.a, &m.x.others,
                     (struct explain_other){.dimension = names[i],
                                            .what = names[i],
                                            .slower = slower[i],
                                            .fits = i != 2,
                                            .candidate = m.x.chosen,
                                            .why = i == 2 ? "needs 3GiB" : ""});
        json_t *root = json_loads(printed(&m.x, true), JSON_REJECT_DUPLICATES, NULL), *x;
        CU_ASSERT_PTR_NOT_NULL_FATAL(root);
        CU_ASSERT_EQUAL(json_array_size(json_object_get(root, "runners_up")), n);
        size_t k;
        json_array_foreach(json_object_get(root, "runners_up"), k, x)
        {
            CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(x, "change")), names[k]);
            CU_ASSERT_EQUAL(json_number_value(json_object_get(x, "loses")), slower[k]);
        }
        json_decref(root);
        const char *text = printed(&m.x, false), *at = strstr(text, "\nOne thing different\n");
        CU_ASSERT_EQUAL(at != NULL, n > 0);
        static const char *const order[] = {"+6.2 %", "+12.5 %", "+12.5 %", "+25.0 %",
                                             "too large needs 3GiB"};
        for (uint32_t i = 0; n == N && at && i < N; i++) {
            at = strstr(at + 1, order[i]);
            CU_ASSERT_PTR_NOT_NULL(at);
        }
        arena_free(m.a);
    }
}

/* Two wishes, either of which alone rules everything out: no single change helps, and doing without both
 * does. */
static void test_both(void)
{
    static const char *const both[][2] = {{"cp=16", "dp=16"},
                                          {"step_time=1us", "finish=1s"},
                                          {"step_time=1us", "dp=16"},
                                          {"finish=1s", "memory=64KiB"},
                                          {"memory=64KiB", "dp=16"}};
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        const char *text = arena_printf(a, dense, "fp32", "adamw(lr=1e-3)");
        struct source s = {.name = "m.llm", .text = (char *)text, .size = strlen(text)};
        struct job *job = job_parse(a, d, &s, both[i], 2);
        diag_print(d, stdout, false);
        CU_ASSERT_PTR_NOT_NULL_FATAL(job);
        char *said = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&said, &size);
        struct explain_options o = {.json = true, .budget = 1000, .quiet = true};
        CU_ASSERT_EQUAL(explain(a, d, job, random_host(a, 8), NULL, &o, out), STATUS_NO_PLAN);
        fclose(out);
        json_t *root = json_loads(said, 0, NULL), *changes = json_object_get(root, "changes");
        const char *change = json_string_value(json_object_get(json_array_get(changes, 0), "change"));
        bool named = change && !strcmp(change, "without any of the plan block's wishes");
        if (json_array_size(changes) != 1 || !named)
            printf("\n    %s, %s: %s", both[i][0], both[i][1], said);
        CU_ASSERT_EQUAL(json_array_size(changes), 1);
        CU_ASSERT(named);
        json_decref(root);
        free(said);
        arena_free(a);
    }
}

void suite_explain_words(void)
{
    CU_pSuite s = CU_add_suite("explain_words", NULL, NULL);
    CU_add_test(s, "bytes per parameter", test_memory);
    CU_add_test(s, "sizes of transfers", test_transfers);
    CU_add_test(s, "units", test_units);
    CU_add_test(s, "measured products", test_measured_products);
    CU_add_test(s, "bandwidth inside a node", test_inside_a_node);
    CU_add_test(s, "what differs in one thing", test_others);
    CU_add_test(s, "without any wish", test_both);
}
