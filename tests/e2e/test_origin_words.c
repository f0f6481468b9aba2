/* What is said of a plan folder whose plan.json is not what its inputs give: one key that is missing, one
 * more, one of another value, in what a plan says of its inputs, in the decision, in what it predicts, and in
 * its order. */

#include "tests/e2e/e2e.h"
#include "tests/e2e/forge.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

void suite_origin_words(void);

/* clang-format off */
#define JOB \
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm\n    embed tokens\n" \
    "    repeat 4 {\n        layer {\n            attn gqa(heads=4, kv=2, rope=10_000)\n" \
    "            ffn swiglu(48)\n        }\n    }\n    head untied\n}\n" \
    "train {\n    sequence 16\n    batch 8 sequences\n    precision fp32\n    optimizer adamw(lr=1e-3)\n}\n"
static const char model[] =
    JOB
    "plan {\n    tp = 2\n    pp = 2\n    dp = 2\n    microbatch = 2\n    schedule 1f1b\n"
    "    recompute none\n}\n";
static const char free_model[] = JOB "plan {\n    pp = 1\n    microbatch = 1\n    schedule 1f1b\n}\n";
/* clang-format on */

static const struct {
    const char *from, *to; /* in plan.json */
    int code;              /* of forge_judge() */
    const char *sentence;  /* that is in the first */
} cases[] = {
    {"\"name\": \"cpu8\", ", "", 3, "'cluster.name' is missing"},
    {"\"name\": \"cpu8\", ", "\"name\": \"cpu8\", \"odd\": 1, ", 3, "unknown key 'cluster.odd'"},
    {"\"cpu8\"", "\"cpu9\"", 3, "'cluster.name' is \"cpu9\"; by the inputs and the decision it is \"cpu8\""},
    {"\"sp\": false", "\"sp\": true", 1, "decision.sp is true, the search chooses false"},
    {"\"zero\": 1", "\"zero\": 2", 1, "decision.zero is 2, the search chooses 1"},
    {", \"peak_memory_rank\": 0", "", 1, "predicted.peak_memory_rank is missing, this compiler makes it 0"},
    {"\"peak_memory_rank\": 0", "\"peak_memory_rank\": 0, \"odd\": 7", 1,
     "predicted.odd is 7, and no key of this compiler's"},
    {"\"peak_memory_rank\": 0", "\"peak_memory_rank\": 1", 1,
     "predicted.peak_memory_rank is 1, this compiler makes it 0"},
    {"{\"schema\": 1,\n ", "{\"schema\": 1,  ", 1, "line 1 is '"},
};

static void test_keys(void)
{
    struct arena *a = arena_new();
    char root[E2E_PATH];
    struct forge honest;
    const char *text;
    e2e_folder(root, "origin-words");
    const char *dir = arena_printf(a, "%s/plan", root), *forged = arena_printf(a, "%s/forged", root);
    forge_plan(a, dir, model, "topologies/cpu8.xml", NULL, 0);
    forge_read(a, dir, &honest);
    CU_ASSERT_EQUAL(forge_try(&honest, forged, &text), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct forge f = honest;
        bool edited = forge_edit(&f, "plan.json", cases[i].from, cases[i].to);
        CU_ASSERT(edited);
        if (!edited)
            printf("\n    %s is not in\n%s", cases[i].from, (const char *)forge_file(&f, "plan.json")->bytes);
        int code = forge_try(&f, forged, &text);
        CU_ASSERT_EQUAL(code, cases[i].code);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, cases[i].sentence));
        if (code != cases[i].code || !strstr(text, cases[i].sentence))
            printf("\n    wanted: %s\n    code %d: %s\n", cases[i].sentence, code, text);
    }
    arena_free(a);
}

/* wishes for a number of GPUs that the decision keeps, though it uses others: what is left over gives way */
static const struct {
    const char *set;
    const char *uses;
} numbers[] = {
    {"gpus=7", "\"gpus_used\": 4"},   {"gpus=4", "\"gpus_used\": 4"},     {"gpus<=7", "\"gpus_used\": 4"},
    {"gpus>=5", "\"gpus_used\": 8"}, {"gpus in [2, 7]", "\"gpus_used\": 2"}, {"tp<=2", "\"gpus_used\": 8"},
};

static void test_numbers(void)
{
    struct arena *a = arena_new();
    char root[E2E_PATH];
    e2e_folder(root, "origin-numbers");
    const char *dir = arena_printf(a, "%s/plan", root), *text;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct forge f;
        forge_plan(a, dir, free_model, "topologies/cpu8.xml", &numbers[i].set, 1);
        forge_read(a, dir, &f);
        const char *plan = (const char *)forge_file(&f, "plan.json")->bytes;
        CU_ASSERT_PTR_NOT_NULL(strstr(plan, numbers[i].uses));
        int code = forge_judge(a, dir, &text);
        CU_ASSERT_EQUAL(code, 0);
        if (code || !strstr(plan, numbers[i].uses))
            printf("\n    %s: code %d: %s\n%.400s", numbers[i].set, code, text, plan);
    }
    arena_free(a);
}

void suite_origin_words(void)
{
    CU_pSuite s = CU_add_suite("origin_words", NULL, NULL);
    CU_add_test(s, "keys that are missing, unknown or other", test_keys);
    CU_add_test(s, "numbers that are wished for", test_numbers);
}
