/* Sequences split over ranks, in each of the three ways, train like one rank: alone and together with tensor
 * and sequence parallelism, pipelines, replicas, sharded state and recomputation; grouped heads, windows, sinks,
 * capped scores, rotary and learned positions.  Losses and gradient norms of STEPS steps and the first step's
 * gradients are compared; bounds as in test_layouts.c. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 6, QUICK_LAYOUTS = 4 };

#define REST                                                                                                 \
    "}\ntrain {\n    sequence 24\n    batch 4 sequences\n    precision fp32\n    optimizer "                 \
    "adamw(lr=1e-3)\n}\n"
static const struct {
    const char *name, *text;
    int kinds; /* the first so many; heads are not exchanged where tp shares them, or with sinks or alibi */
} models[] = {
    {"grouped", "llmc 1\nmodel grouped {\n    vocab 101\n    width 32\n    norm rmsnorm\n    embed tokens\n  "
                "  repeat 2 {\n"
                "        layer { attn gqa(heads=8, kv=4, rope=500)\n                ffn swiglu(48) }\n    }\n"
                "    head untied\n" REST, 3},
    {"windows", "llmc 1\nmodel windows {\n    vocab 101\n    width 32\n    norm rmsnorm\n    embed tokens\n  "
                "  repeat 1 {\n"
                "        layer { attn gqa(heads=8, kv=4, rope=500, window=7, softcap=3)\n                ffn "
                "geglu(48) }\n"
                "        layer { attn gqa(heads=8, kv=4, rope=500)\n                ffn geglu(48) }\n"
                "    }\n    head tied\n" REST, 3},
    {"sinks", "llmc 1\nmodel sinks {\n    vocab 101\n    width 32\n    norm rmsnorm\n    embed tokens\n    repeat 1 {\n"
              "        layer { attn gqa(heads=8, kv=2, rope=500, window=7, sinks=yes)\n                ffn swiglu(48, limit=0.5) }\n"
              "        layer { attn gqa(heads=8, kv=2, rope=500, sinks=yes)\n                ffn swiglu(48) }\n"
              "    }\n    head untied\n" REST, 2},
    {"learned", "llmc 1\nmodel learned {\n    vocab 101\n    width 32\n    norm layernorm\n    embed tokens\n"
                "    embed positions(30)\n    repeat 2 {\n        layer { attn mha(heads=8, bias=yes)\n"
                "                ffn gelu(64, bias=yes) }\n    }\n    head tied\n" REST, 3},
    {"normed", "llmc 1\nmodel normed {\n    vocab 101\n    width 32\n    norm rmsnorm\n    embed tokens\n    "
               "repeat 2 {\n"
               "        layer { attn gqa(heads=8, kv=4, rope=500, qk_norm=head)\n                ffn "
               "swiglu(48) }\n    }\n"
               "    head untied\n" REST, 3},
    {"one-key", "llmc 1\nmodel one_key {\n    vocab 101\n    width 32\n    norm rmsnorm\n    embed tokens\n    "
                "repeat 2 {\n        layer parallel { attn gqa(heads=8, kv=1, rope=500, qkv_bias=yes, qk_norm=head)\n"
                "                ffn swiglu(48) }\n    }\n    head untied\n" REST, 2},
    {"chunks", "llmc 1\nmodel chunks {\n    vocab 101\n    width 32\n    norm rmsnorm\n    embed tokens\n    repeat 1 {\n"
               "        layer { attn gqa(heads=8, kv=2, rope=500, chunk=3)\n                ffn swiglu(48) }\n"
               "        layer { attn gqa(heads=8, kv=2, rope=500, chunk=3, alibi=no, sinks=yes)\n                ffn swiglu(48) }\n"
               "    }\n    head untied\n" REST, 2},
    {"biased", "llmc 1\nmodel biased {\n    vocab 101\n    width 32\n    norm layernorm\n    embed tokens(norm=yes)\n    repeat 1 {\n"
               "        layer { attn gqa(heads=8, kv=2, window=7, alibi=yes)\n                ffn gelu(64) }\n"
               "        layer { attn mha(heads=8, alibi=yes)\n                ffn gelu(64, bias=yes) }\n"
               "    }\n    head tied\n" REST, 2},
};
enum { NMODELS = sizeof models / sizeof *models };

/* words of --set; the kinds take turns at the layouts, each model gets all of them */
static const char *const layouts[] = {
    "gpus=2 cp=2 dp=1",
    "gpus=4 cp=4 dp=1 microbatch=2",
    "gpus=8 cp=2 tp=2 sequence_parallel=yes pp=2 dp=1",
    "gpus=8 cp=2 tp=2 sequence_parallel=yes dp=2 zero=1 microbatch=2",
    "gpus=8 cp=4 dp=2 zero=1 recompute=full",
    "gpus=8 cp=2 pp=2 dp=2 microbatch=2 schedule=gpipe zero=0",
};
static const char *const kinds[] = {"ring", "all_gather", "all_to_all"};

static bool run(const char *folder, const char *data, const char *layout)
{
    char log[2 * E2E_PATH], sets[1024] = "";
    for (const char *p = layout; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " "), at = strlen(sets);
        snprintf(sets + at, sizeof sets - at, " --set %.*s", (int)n, p);
        p += n;
    }
    snprintf(log, sizeof log, "%s/output", folder);
    return e2e_command(log, "%s/llmc plan %s/../model.llm topologies/cpu8.xml %s -o %s/plan", e2e_build(),
                       folder, sets, folder) == 0 &&
           e2e_command(
               log, "%s/llmrun %s/plan --data %s --steps %d --log %s/log.jsonl --dump-gradients %s/gradients",
               e2e_build(), folder, data, STEPS, folder, folder) == 0;
}

static void compare(const char *folder, const char *alone, const char *what)
{
    char path[2 * E2E_PATH];
    const char *name = "";
    struct e2e_log a, b;
    struct e2e_tensors x, y;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    CU_ASSERT_FATAL(e2e_log_read(path, &a));
    snprintf(path, sizeof path, "%s/log.jsonl", alone);
    CU_ASSERT_FATAL(e2e_log_read(path, &b));
    CU_ASSERT_EQUAL_FATAL(a.steps, b.steps);
    double loss = 0, norm = 0;
    for (size_t i = 0; i < a.steps; i++) {
        double l = e2e_relative(a.loss[i], b.loss[i]), n = e2e_relative(a.grad_norm[i], b.grad_norm[i]);
        loss = l > loss ? l : loss;
        norm = n > norm ? n : norm;
    }
    snprintf(path, sizeof path, "%s/gradients/gradients.safetensors", folder);
    CU_ASSERT_FATAL(e2e_tensors_read(path, &x));
    snprintf(path, sizeof path, "%s/gradients/gradients.safetensors", alone);
    CU_ASSERT_FATAL(e2e_tensors_read(path, &y));
    e2e_forget_key_biases(&x);
    e2e_forget_key_biases(&y);
    double worst = e2e_worst(&x, &y, &name);
    bool fine = loss <= 1e-5 && norm <= 1e-3 && worst <= 1e-5;
    CU_ASSERT(fine);
    if (!fine)
        printf("\n    %s: loss off by %.2g, gradient norm by %.2g, gradient of %s by %.2g", what, loss, norm,
               name, worst);
    e2e_tensors_free(&x);
    e2e_tensors_free(&y);
}

static void check_model(size_t m)
{
    char root[E2E_PATH], alone[E2E_PATH], folder[E2E_PATH], name[96], path[2 * E2E_PATH], layout[512];
    const char *data = "tests/reference/gpt2/tokens.bin"; /* ids below 101 */
    snprintf(name, sizeof name, "context-%s", models[m].name);
    e2e_folder(root, name);
    snprintf(path, sizeof path, "%s/model.llm", root);
    FILE *f = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(models[m].text, f);
    fclose(f);
    snprintf(name, sizeof name, "context-%s/alone", models[m].name);
    e2e_folder(alone, name);
    CU_ASSERT_FATAL(run(alone, data, "gpus=1"));
    size_t n = sizeof layouts / sizeof *layouts;
    size_t nkinds = (size_t)models[m].kinds;
    for (size_t i = 0; i < (test_whole() ? nkinds * n : QUICK_LAYOUTS); i++) {
        const char *kind = kinds[(i + i / n + m) % nkinds];
        snprintf(name, sizeof name, "context-%s/%zu", models[m].name, i);
        snprintf(layout, sizeof layout, "%s context=%s", layouts[i % n], kind);
        e2e_folder(folder, name);
        bool ran = run(folder, data, layout);
        CU_ASSERT(ran);
        if (!ran)
            printf("\n    %s, %s: it does not run", models[m].name, layout);
        snprintf(path, sizeof path, "%s, %s", models[m].name, layout);
        if (ran)
            compare(folder, alone, path);
    }
}

static void test_grouped(void)
{
    check_model(0);
}

static void test_windows(void)
{
    check_model(1);
}

static void test_sinks(void)
{
    check_model(2);
}

static void test_learned(void)
{
    check_model(3);
}

static void test_normed(void)
{
    check_model(4);
}

static void test_one_key(void)
{
    check_model(5);
}

static void test_chunks(void)
{
    check_model(6);
}

static void test_biased(void)
{
    check_model(7);
}

void suite_context(void);
void suite_context(void)
{
    CU_pSuite s = CU_add_suite("context", NULL, NULL);
    CU_add_test(s, "grouped heads in split sequences", test_grouped);
    CU_add_test(s, "windows and capped scores", test_windows);
    CU_add_test(s, "sinks", test_sinks);
    CU_add_test(s, "learned positions", test_learned);
    CU_add_test(s, "normalised queries and keys", test_normed);
    CU_add_test(s, "one key head on all tensor-parallel ranks", test_one_key);
    CU_add_test(s, "chunks", test_chunks);
    CU_add_test(s, "linear biases", test_biased);
}
