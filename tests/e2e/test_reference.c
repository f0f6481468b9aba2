/* llmrun against an independent reference: tests/reference/make_fixtures.py and, with Hugging Face's models, make_hf.py
 * computed loss, every parameter gradient and eight AdamW steps of tiny models in float64.  Each model starts from the same safetensors here, on one rank and
 * split several ways on eight.
 *
 * Bounds, in fp32: loss of every step 1e-5 relative; each gradient of the first step 1e-5 in norm; gradient norm 1e-5 at
 * the first step and 1e-3 later (AdamW turns rounding noise of tiny gradients into steps of full size). */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *model, *layout;
    int ranks;
    bool quick; /* also under the sanitizers */
} cases[] = {
    {"gpt2", "--set gpus=1", 1, true},
    {"gpt2", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=no --set zero=0", 8, true},
    {"gpt2", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=yes --set zero=1 --set schedule=1f1b", 8, false},
    {"gpt2", "--set tp=4 --set pp=2 --set dp=1 --set gpus=8 --set sequence_parallel=yes --set microbatch=1 --set recompute=full", 8, false},
    {"llama", "--set gpus=1", 1, false},
    {"llama", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=yes --set zero=1", 8, true},
    {"llama", "--set tp=2 --set pp=4 --set dp=1 --set gpus=8 --set sequence_parallel=no --set microbatch=1 --set schedule=gpipe", 8, false},
    {"llama", "--set tp=1 --set pp=1 --set dp=8 --set gpus=8 --set zero=1", 8, false},
    {"qwen2", "--set gpus=1", 1, false},
    {"qwen2", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=yes --set zero=1", 8, true},
    {"qwen2", "--set tp=1 --set pp=4 --set dp=2 --set gpus=8 --set zero=0 --set recompute=full --set microbatch=2", 8, false},
    {"mixed", "--set gpus=1", 1, false},
    {"mixed", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=yes --set zero=1", 8, true},
    {"mixed", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=no --set recompute=full", 8, false},
    {"bloom", "--set gpus=1", 1, false},
    {"bloom", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=yes --set zero=1", 8, true},
    {"bloom", "--set tp=3 --set pp=2 --set dp=1 --set gpus=6 --set sequence_parallel=no --set schedule=zb_h1 --set microbatch=2", 6, false},
    {"bloom", "--set tp=2 --set cp=2 --set gpus=4 --set context=ring", 4, false},
    {"bloom", "--set cp=2 --set dp=2 --set gpus=4 --set context=all_gather --set recompute=full", 4, false},
    {"module", "--set gpus=1", 1, false},
    {"module", "--set tp=2 --set pp=2 --set dp=2 --set ep=4 --set gpus=8 --set sequence_parallel=yes --set zero=1", 8, true},
    {"module", "--set cp=2 --set dp=2 --set ep=2 --set etp=2 --set gpus=4", 4, false},
    {"gpt_oss", "--set gpus=1", 1, true},
    {"gpt_oss", "--set tp=2 --set pp=2 --set dp=2 --set ep=4 --set gpus=8 --set sequence_parallel=yes --set zero=1", 8, true},
    {"gpt_oss", "--set cp=2 --set dp=2 --set ep=2 --set gpus=4 --set recompute=full", 4, false},
    {"gemma2", "--set gpus=1", 1, false},
    {"gemma2", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=yes --set zero=1", 8, true},
    {"gemma2", "--set tp=2 --set cp=2 --set gpus=4 --set recompute=full", 4, false},
    {"gpt_neox", "--set gpus=1", 1, false},
    {"gpt_neox", "--set tp=2 --set pp=2 --set gpus=4 --set sequence_parallel=yes", 4, true},
    {"gpt_neox", "--set tp=2 --set pp=2 --set gpus=4 --set sequence_parallel=no --set schedule=zb_h1", 4, false},
    {"qwen3", "--set gpus=1", 1, false},
    {"qwen3", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=yes --set zero=3", 8, true},
    {"qwen3", "--set tp=2 --set pp=2 --set gpus=4 --set sequence_parallel=no --set schedule=zb_h1", 4, false},
    {"mla", "--set gpus=1", 1, false},
    {"mla", "--set tp=2 --set pp=2 --set gpus=4 --set sequence_parallel=yes", 4, true},
    {"mla", "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=no --set schedule=zb_h1 --set zero=1", 8, false},
    {"mla", "--set tp=2 --set gpus=2 --set sequence_parallel=yes --set recompute=full", 2, false},
    {"mla", "--set tp=2 --set cp=2 --set gpus=4 --set sequence_parallel=yes", 4, false},
    {"olmo2", "--set gpus=1", 1, false},
    {"olmo2", "--set cp=2 --set pp=2 --set gpus=4", 4, true},
    {"mixtral", "--set gpus=1", 1, false},
    {"mixtral", "--set tp=2 --set pp=2 --set dp=2 --set ep=2 --set gpus=8 --set sequence_parallel=yes", 8, true},
    {"mixtral", "--set cp=2 --set dp=2 --set ep=4 --set gpus=4 --set 'recompute=[norm, moe]'", 4, false},
    {"qwen3_moe", "--set gpus=1", 1, false},
    {"qwen3_moe", "--set tp=2 --set pp=2 --set dp=2 --set ep=2 --set gpus=8 --set sequence_parallel=yes --set zero=1", 8, false},
    {"qwen3_moe", "--set dp=2 --set ep=2 --set pp=2 --set gpus=4 --set 'recompute=[moe_act, norm]'", 4, true},
    {"deepseek_v3", "--set gpus=1", 1, false},
    {"deepseek_v3", "--set tp=2 --set pp=2 --set dp=2 --set ep=4 --set gpus=8 --set sequence_parallel=yes", 8, true},
    {"deepseek_v3", "--set dp=4 --set ep=2 --set pp=2 --set gpus=8 --set zero=1 --set schedule=zb_h1", 8, false},
    {"deepseek_v3", "--set dp=2 --set ep=2 --set gpus=2 --set 'recompute=[norm, mla_up, moe, shared]'", 2, false},
    {"deepseek_mtp", "--set gpus=1", 1, false},
    {"deepseek_mtp", "--set tp=2 --set pp=2 --set dp=2 --set ep=4 --set gpus=8 --set sequence_parallel=yes", 8, true},
    {"deepseek_mtp", "--set cp=2 --set dp=2 --set ep=4 --set gpus=4 --set zero=1", 4, false},
};

static void compare_losses(const char *folder, const char *reference)
{
    char path[2 * E2E_PATH];
    struct e2e_log ours, theirs;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    CU_ASSERT_FATAL(e2e_log_read(path, &ours));
    snprintf(path, sizeof path, "%s/expected.jsonl", reference);
    CU_ASSERT_FATAL(e2e_log_read(path, &theirs));
    CU_ASSERT_EQUAL_FATAL(ours.steps, theirs.steps);
    for (size_t i = 0; i < ours.steps; i++) {
        double loss = e2e_relative(ours.loss[i], theirs.loss[i]), norm = e2e_relative(ours.grad_norm[i], theirs.grad_norm[i]);
        CU_ASSERT(loss <= 1e-5);
        CU_ASSERT(norm <= (i == 0 ? 1e-5 : 1e-3));
        if (loss > 1e-5 || norm > (i == 0 ? 1e-5 : 1e-3))
            printf("\n    step %zu: loss %.9g, reference %.9g; gradient norm %.9g, reference %.9g", i, ours.loss[i],
                   theirs.loss[i], ours.grad_norm[i], theirs.grad_norm[i]);
    }
}

static void compare_gradients(const char *folder, const char *reference, bool turned)
{
    char path[2 * E2E_PATH];
    const char *name;
    struct e2e_tensors ours, theirs;
    snprintf(path, sizeof path, "%s/gradients/gradients.safetensors", folder);
    CU_ASSERT_FATAL(e2e_tensors_read(path, &ours));
    snprintf(path, sizeof path, "%s/expected.safetensors", reference);
    CU_ASSERT_FATAL(e2e_tensors_read(path, &theirs));
    if (!turned) {
        e2e_forget_unturned_biases(&ours);
        e2e_forget_unturned_biases(&theirs);
    }
    double worst = e2e_worst(&ours, &theirs, &name);
    CU_ASSERT(worst <= 1e-5);
    if (worst > 1e-5)
        printf("\n    gradient of %s: off by %.2g in norm (%zu tensors, reference %zu)", name, worst, ours.count, theirs.count);
    e2e_tensors_free(&ours);
    e2e_tensors_free(&theirs);
}

static void check_case(size_t i)
{
    char name[64], folder[E2E_PATH], log[2 * E2E_PATH], reference[E2E_PATH];
    snprintf(name, sizeof name, "reference/%s-%zu", cases[i].model, i);
    e2e_folder(folder, name);
    snprintf(reference, sizeof reference, "tests/reference/%s", cases[i].model);
    snprintf(log, sizeof log, "%s/output", folder);
    CU_ASSERT_EQUAL_FATAL(e2e_command(log, "%s/llmc plan %s/model.llm topologies/cpu8.xml %s -o %s/plan", e2e_build(),
                                      reference, cases[i].layout, folder), 0);
    CU_ASSERT_EQUAL_FATAL(e2e_command(log, "%s/llmrun %s/plan --data %s/tokens.bin --init %s --steps 8"
                                      " --dump-gradients %s/gradients --log %s/log.jsonl",
                                      e2e_build(), folder, reference, reference, folder, folder), 0);
    compare_losses(folder, reference);
    compare_gradients(folder, reference, strcmp(cases[i].model, "bloom") != 0);
}

static void check_model(const char *model)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!strcmp(cases[i].model, model) && (cases[i].quick || test_whole()))
            check_case(i);
    }
}

static void test_gpt2(void)
{
    check_model("gpt2");
}

static void test_llama(void)
{
    check_model("llama");
}

static void test_qwen2(void)
{
    check_model("qwen2");
}

static void test_mixed(void)
{
    check_model("mixed");
}

static void test_bloom(void)
{
    check_model("bloom");
}

static void test_module(void)
{
    check_model("module");
}

static void test_gpt_oss(void)
{
    check_model("gpt_oss");
}

static void test_gemma2(void)
{
    check_model("gemma2");
}

static void test_neox(void)
{
    check_model("gpt_neox");
}

static void test_qwen3(void)
{
    check_model("qwen3");
}

static void test_mla(void)
{
    check_model("mla");
}

static void test_olmo2(void)
{
    check_model("olmo2");
}

static void test_mixtral(void)
{
    check_model("mixtral");
}

static void test_qwen3_moe(void)
{
    check_model("qwen3_moe");
}

static void test_deepseek(void)
{
    check_model("deepseek_v3");
}

static void test_predict(void)
{
    check_model("deepseek_mtp");
}

void suite_reference(void);
void suite_reference(void)
{
    CU_pSuite s = CU_add_suite("reference", NULL, NULL);
    CU_add_test(s, "gpt2: layernorm, learned positions, gelu, biases, tied head", test_gpt2);
    CU_add_test(s, "llama: rmsnorm, rope, grouped queries, swiglu, untied head", test_llama);
    CU_add_test(s, "qwen2: query and key biases, tied head, bf16 weights", test_qwen2);
    CU_add_test(s, "mixed: adjacent partial rope, llama3 scaling, wide heads, erf geglu, all biases", test_mixed);
    CU_add_test(s, "bloom: normalised embedding, linear position biases", test_bloom);
    CU_add_test(s, "module: two prediction modules with experts behind dense layers", test_module);
    CU_add_test(s, "gpt_oss: sinks, experts with biases", test_gpt_oss);
    CU_add_test(s, "gemma2: norms before and after, soft caps, windows, scaled embedding", test_gemma2);
    CU_add_test(s, "gpt_neox: parallel sublayers, partial rotation", test_neox);
    CU_add_test(s, "qwen3: normalised queries and keys", test_qwen3);
    CU_add_test(s, "mla: latent attention of DeepSeek-V3", test_mla);
    CU_add_test(s, "olmo2: norms behind sublayers, over all queries and keys", test_olmo2);
    CU_add_test(s, "mixtral: softmax router, experts over ranks", test_mixtral);
    CU_add_test(s, "qwen3_moe: normalised queries, small experts", test_qwen3_moe);
    CU_add_test(s, "deepseek_v3: latent attention, grouped sigmoid router, shared expert", test_deepseek);
    CU_add_test(s, "deepseek_mtp: two prediction modules behind the head", test_predict);
}
