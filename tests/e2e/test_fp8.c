/* Training with products in 8 bits: one rank against eight, and against 16 bits.
 *
 * Where tiles that share a scale lie within every rank's part (recipe mx: 32 columns, here of parts of 32 and more, and 32
 * tokens of sequences of 32), layouts round the same numbers in the same way, and what is left is the order of sums in bf16:
 * 1e-3, as without fp8.  Per tensor and per row scales belong to what a rank multiplies, and tp, microbatches and experts cut
 * that; an 8-bit number is then off by up to 2^-4 in another way: losses agree to 2e-2. */

#include "tests/e2e/e2e.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 6 };

static const char model_text[] =
    "llmc 1\n\nmodel tiny {\n    vocab 101\n    width 64\n    norm rmsnorm\n    embed tokens\n    repeat 2 {\n"
    "        layer {\n            attn gqa(heads=4, kv=2, head=32)\n            ffn swiglu(128)\n        }\n    }\n"
    "    repeat 2 {\n        layer {\n            attn gqa(heads=4, kv=2, head=32)\n            %s\n        }\n    }\n"
    "    head untied\n}\n\ntrain {\n    sequence 32\n    batch 8 sequences\n    precision %s\n"
    "    optimizer adamw(lr=1e-3)\n}\n";
#define DENSE "ffn swiglu(128)"
#define EXPERTS "moe swiglu(64) {\n experts 8\n active 2\n shared 1\n }"

static bool run_layout(const char *folder, const char *name, const char *layout, struct e2e_log *log)
{
    char output[2 * E2E_PATH], path[2 * E2E_PATH];
    snprintf(output, sizeof output, "%s/output", folder);
    snprintf(path, sizeof path, "%s/%s.jsonl", folder, name);
    return e2e_command(output, "%s/llmc plan %s/model.llm topologies/cpu8.xml %s -o %s/%s", e2e_build(), folder, layout,
                       folder, name) == 0 &&
           e2e_command(output, "%s/llmrun %s/%s --data tests/reference/gpt2/tokens.bin --steps %d --log %s", e2e_build(),
                       folder, name, STEPS, path) == 0 &&
           e2e_log_read(path, log);
}

static void open_case(char *folder, const char *name, const char *part, const char *precision)
{
    char path[2 * E2E_PATH];
    e2e_folder(folder, name);
    snprintf(path, sizeof path, "%s/model.llm", folder);
    FILE *f = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fprintf(f, model_text, part, precision);
    fclose(f);
}

static double worst_loss(const struct e2e_log *a, const struct e2e_log *b)
{
    double worst = 0;
    for (size_t s = 0; s < STEPS; s++)
        worst = worst > e2e_relative(a->loss[s], b->loss[s]) ? worst : e2e_relative(a->loss[s], b->loss[s]);
    return worst;
}

static void test_layouts(void)
{
    static const struct {
        const char *name, *part, *precision, *layout;
        double bound;
        bool quick;
    } cases[] = {
        {"mx", DENSE, "fp8(recipe=mx)", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=yes --set zero=1",
         1e-3, true},
        {"tensor", DENSE, "fp8(recipe=tensor)", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set microbatch=1", 2e-2, false},
        {"row", DENSE, "fp8(recipe=row)", "--set tp=2 --set dp=4 --set gpus=8 --set recompute=full", 2e-2, false},
        {"block", DENSE, "fp8(recipe=block, moments=bf16)", "--set tp=2 --set pp=4 --set dp=1 --set gpus=8 --set schedule=zb_h1",
         2e-2, false},
        {"experts", EXPERTS, "fp8(recipe=block, moments=bf16)", "--set tp=2 --set pp=2 --set dp=2 --set ep=4 --set gpus=8"
         " --set schedule=dualpipe --set microbatch=1", 2e-2, true},
        {"dispatch", EXPERTS, "fp8(recipe=block, dispatch=fp8)", "--set dp=8 --set ep=4 --set gpus=8 --set zero=1", 1e-3, true},
        {"activations", EXPERTS, "fp8(recipe=block, activations=fp8, dispatch=fp8)", "--set pp=2 --set dp=4 --set ep=4 --set gpus=8"
         " --set schedule=zb_h1 --set microbatch=1", 2e-2, true},
        {"activations-dense", DENSE, "fp8(recipe=mx, activations=fp8)", "--set tp=2 --set dp=4 --set gpus=8 --set sequence_parallel=yes",
         2e-2, false},
        {"dispatch-etp", EXPERTS, "fp8(recipe=block, dispatch=fp8)", "--set tp=2 --set dp=4 --set ep=4 --set etp=2 --set gpus=8"
         " --set sequence_parallel=yes --set recompute=full", 2e-2, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[E2E_PATH], name[64];
        struct e2e_log alone, split;
        if (test_quick() && !cases[i].quick)
            continue;
        snprintf(name, sizeof name, "fp8/%s", cases[i].name);
        open_case(folder, name, cases[i].part, cases[i].precision);
        CU_ASSERT_FATAL(run_layout(folder, "one", "--set gpus=1", &alone));
        CU_ASSERT_FATAL(run_layout(folder, "eight", cases[i].layout, &split));
        double worst = worst_loss(&split, &alone), norm = e2e_relative(split.grad_norm[0], alone.grad_norm[0]);
        bool fine = worst <= cases[i].bound && norm <= 5 * cases[i].bound && alone.loss[STEPS - 1] < alone.loss[0];
        CU_ASSERT(fine);
        if (!fine)
            printf("\n    %s: loss off by %.2g, first gradient norm by %.2g", cases[i].name, worst, norm);
    }
}

/* it does round, and not by much: products, and what is stored in 8 bits beside them */
static void test_near_bf16(void)
{
    static const struct {
        const char *part, *precision;
    } words[] = {{DENSE, "fp8"}, {EXPERTS, "fp8"}, {EXPERTS, "'fp8(dispatch=fp8)'"}, {EXPERTS, "'fp8(dispatch=fp8, activations=fp8)'"}};
    char folder[E2E_PATH], set[80];
    struct e2e_log half, eight, before = {0};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        open_case(folder, "fp8/half", words[i].part, "bf16");
        snprintf(set, sizeof set, "--set gpus=1 --set precision=%s", words[i].precision);
        CU_ASSERT_FATAL(run_layout(folder, "one", "--set gpus=1", &half));
        CU_ASSERT_FATAL(run_layout(folder, "fp8", set, &eight));
        double worst = worst_loss(&eight, &half);
        CU_ASSERT(worst > 1e-6 && worst < 2e-2);
        CU_ASSERT(i < 2 || worst_loss(&eight, &before) > 1e-7);
        before = eight;
    }
}

/* on the fake device: products that a GPU does not take in 8 bits are told in the line about the device */
static void test_told(void)
{
    static const char *const parts[] = {DENSE, "ffn swiglu(120)"};
    static char text[1 << 14];
    char folder[E2E_PATH], plugin[E2E_PATH + 40], output[2 * E2E_PATH];
    snprintf(plugin, sizeof plugin, "%s/tests/fake/llmrun-fake.so", e2e_build());
    if (access(plugin, R_OK)) {
        test_skip("%s was not built", plugin);
        return;
    }
    for (int odd = 0; odd < 2; odd++) {
        struct e2e_log cpu;
        open_case(folder, "fp8/told", parts[odd], "fp8(recipe=tensor)");
        CU_ASSERT_FATAL(run_layout(folder, "one", "--set gpus=1", &cpu));
        snprintf(output, sizeof output, "%s/told", folder);
        CU_ASSERT_EQUAL(e2e_command(output, "env LLMRUN_CUDA=%s %s/llmrun %s/one --data tests/reference/gpt2/tokens.bin --steps 2 --device cuda --transport d2d",
                                    plugin, e2e_build(), folder),
                        0);
        e2e_read_text(output, text, sizeof text);
        CU_ASSERT_EQUAL(strstr(text, "products of a step not in fp8: its dimensions are no multiples of 16") != NULL, odd);
    }
}

/* a plan for GPUs whose kernels lack the recipe says so when it is made; one for CPUs, or a recipe that is there, does not */
static void test_plan_told(void)
{
    static const char *const clusters[] = {"topologies/h100x8.xml", "topologies/cpu8.xml"};
    static const char *const recipes[] = {"tensor", "row", "block", "mx"};
    char folder[E2E_PATH], output[2 * E2E_PATH], precision[40], want[100], text[1 << 14];
    for (int i = 0; i < 8; i++) {
        snprintf(precision, sizeof precision, "fp8(recipe=%s)", recipes[i / 2]);
        open_case(folder, "fp8/planned", DENSE, precision);
        snprintf(output, sizeof output, "%s/said", folder);
        CU_ASSERT_EQUAL(e2e_command(output, "%s/llmc plan %s/model.llm %s --set gpus=1 -o %s/one --force", e2e_build(), folder,
                                    clusters[i % 2], folder),
                        0);
        e2e_read_text(output, text, sizeof text);
        snprintf(want, sizeof want, "warning: llmrun plays fp8(recipe=%s) on CPU ranks only", recipes[i / 2]);
        CU_ASSERT_EQUAL(strstr(text, want) != NULL, i / 2 > 0 && i % 2 == 0);
    }
}

void suite_fp8_training(void);
void suite_fp8_training(void)
{
    CU_pSuite s = CU_add_suite("fp8_training", NULL, NULL);
    CU_add_test(s, "8-bit products give one rank's losses in any layout, as far as scales agree", test_layouts);
    CU_add_test(s, "they stay near 16 bits", test_near_bf16);
    CU_add_test(s, "a plan tells that GPUs lack its recipe", test_plan_told);
    CU_add_test(s, "a device tells what it does not do in 8 bits", test_told);
}
