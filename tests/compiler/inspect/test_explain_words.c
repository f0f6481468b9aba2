/* What stands beside the figures of an explanation: bytes per parameter and sizes of transfers, by hand; and
 * the change that helps where two wishes are impossible at once. */

#include "compiler/inspect/explain.h"
#include "compiler/inspect/explain_items.h"
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
    CU_add_test(s, "without any wish", test_both);
}
