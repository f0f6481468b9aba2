/* Recomputation by operators, and activations kept in host memory: each gives bit for bit the losses and gradients of
 * keeping everything on the device, since the same instructions work on the same values, and its arena is smaller. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *model, *saving, *schedule;
    bool quick;
} cases[] = {
    {"llama", "recompute=[core_attn]", "1f1b", true},
    {"llama", "recompute=[norm]", "1f1b", false},
    {"llama", "recompute=[ffn_act]", "1f1b", false},
    {"llama", "recompute=[ffn]", "zb_h1", true},
    {"llama", "recompute=full(layers=1)", "1f1b", true},
    {"gpt2", "recompute=[norm, core_attn, ffn]", "1f1b", false},
    {"gemma2", "recompute=[norm, ffn]", "zb_h1", false},
    {"gpt_neox", "recompute=[norm, ffn_act]", "1f1b", false},
    {"qwen3", "recompute=[norm, core_attn]", "1f1b", false},
    {"mla", "recompute=[mla_up]", "1f1b", true},
    {"mla", "recompute=[norm, core_attn, mla_up, ffn]", "zb_h1", false},
    {"llama", "offload=[activations]", "1f1b", true},
    {"gpt2", "offload=[activations, optimizer]", "zb_h1", false},
    {"mla", "offload=[activations]", "zb_h2", false},
    {"mixtral", "offload=[activations]", "1f1b", true},
    {"deepseek_v3", "offload=[activations]", "1f1b", false},
};

/* "arena   291KiB = 298,112 bytes" of the plan's report */
static double arena_bytes(const char *text)
{
    const char *p = strstr(text, "arena "), *e = p ? strchr(p, '=') : NULL;
    double bytes = 0;
    for (e = e ? e + 1 : ""; *e && *e != '\n'; e++)
        if (isdigit((unsigned char)*e))
            bytes = 10 * bytes + (*e - '0');
        else if (*e != ',' && *e != '_' && bytes > 0)
            break;
    return bytes;
}

static bool train(const char *folder, const char *model, const char *saving, const char *schedule,
                  double *arena)
{
    char log[2 * E2E_PATH], text[16384];
    snprintf(log, sizeof log, "%s/output", folder);
    if (e2e_command(
            log,
            "%s/llmc plan tests/reference/%s/model.llm topologies/cpu8.xml -o %s/plan --set gpus=4 --set tp=2"
            " --set pp=2 --set microbatch=1 --set sequence_parallel=yes --set schedule=%s --set "
            "'%s'",
            e2e_build(), model, folder, schedule, saving))
        return false;
    e2e_read_text(log, text, sizeof text);
    *arena = arena_bytes(text);
    return !e2e_command(
        log,
        "%s/llmrun %s/plan --data tests/reference/%s/tokens.bin --init tests/reference/%s --steps 2"
        " --dump-gradients %s/gradients --log %s/log.jsonl",
        e2e_build(), folder, model, model, folder, folder);
}

static void check_case(size_t i)
{
    char name[64], kept[E2E_PATH], again[E2E_PATH], a[2 * E2E_PATH], b[2 * E2E_PATH];
    double all = 0, some = 0;
    snprintf(name, sizeof name, "recompute/%zu-none", i);
    e2e_folder(kept, name);
    snprintf(name, sizeof name, "recompute/%zu", i);
    e2e_folder(again, name);
    CU_ASSERT_FATAL(train(kept, cases[i].model, "recompute=none", cases[i].schedule, &all));
    CU_ASSERT_FATAL(train(again, cases[i].model, cases[i].saving, cases[i].schedule, &some));
    snprintf(a, sizeof a, "%s/gradients/gradients.safetensors", kept);
    snprintf(b, sizeof b, "%s/gradients/gradients.safetensors", again);
    struct e2e_log x, y;
    bool same = e2e_same_bytes(a, b);
    snprintf(a, sizeof a, "%s/log.jsonl", kept);
    snprintf(b, sizeof b, "%s/log.jsonl", again);
    same = same && e2e_log_read(a, &x) && e2e_log_read(b, &y) && x.steps == 2 && y.steps == 2 &&
           !memcmp(x.loss, y.loss, sizeof *x.loss * 2) &&
           !memcmp(x.grad_norm, y.grad_norm, sizeof *x.loss * 2);
    CU_ASSERT(same);
    bool tells = cases[i].quick && !strcmp(cases[i].schedule, "1f1b");
    double most = tells ? all : 1.03 * all; /* else so small models may save no more than holes take */
    CU_ASSERT(some > 0 && some < most);
    if (!same || !(some > 0 && some < most))
        printf("\n    %s %s %s: %s, arena %.0f bytes, without %.0f", cases[i].model, cases[i].saving,
               cases[i].schedule, same ? "the same" : "another result", some, all);
}

static void test_parts(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (cases[i].quick || test_whole())
            check_case(i);
}

void suite_recompute(void);
void suite_recompute(void)
{
    CU_pSuite s = CU_add_suite("recompute", NULL, NULL);
    CU_add_test(s, "parts of layers: the same results in less memory", test_parts);
}
