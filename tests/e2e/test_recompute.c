/* Recomputation by operators: every list of parts gives bit for bit the losses and gradients of keeping
 * everything, since what runs again is the same instructions on the same values, and its arena is smaller. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *model, *recompute, *schedule;
    bool quick;
} cases[] = {
    {"llama", "[core_attn]", "1f1b", true},
    {"llama", "[norm]", "1f1b", false},
    {"llama", "[ffn_act]", "1f1b", false},
    {"llama", "[ffn]", "zb_h1", true},
    {"llama", "full(layers=1)", "1f1b", true},
    {"gpt2", "[norm, core_attn, ffn]", "1f1b", false},
    {"gemma2", "[norm, ffn]", "zb_h1", false},
    {"gpt_neox", "[norm, ffn_act]", "1f1b", false},
    {"qwen3", "[norm, core_attn]", "1f1b", false},
    {"mla", "[mla_up]", "1f1b", true},
    {"mla", "[norm, core_attn, mla_up, ffn]", "zb_h1", false},
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

static bool train(const char *folder, const char *model, const char *recompute, const char *schedule,
                  double *arena)
{
    char log[2 * E2E_PATH], text[16384];
    snprintf(log, sizeof log, "%s/output", folder);
    if (e2e_command(
            log,
            "%s/llmc plan tests/reference/%s/model.llm topologies/cpu8.xml -o %s/plan --set gpus=4 --set tp=2"
            " --set pp=2 --set microbatch=1 --set sequence_parallel=yes --set schedule=%s --set "
            "'recompute=%s'",
            e2e_build(), model, folder, schedule, recompute))
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
    CU_ASSERT_FATAL(train(kept, cases[i].model, "none", cases[i].schedule, &all));
    CU_ASSERT_FATAL(train(again, cases[i].model, cases[i].recompute, cases[i].schedule, &some));
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
    CU_ASSERT(some > 0 && some < all);
    if (!same || !(some > 0 && some < all))
        printf("\n    %s %s %s: %s, arena %.0f bytes, without %.0f", cases[i].model, cases[i].recompute,
               cases[i].schedule, same ? "the same" : "another result", some, all);
}

static void test_parts(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (cases[i].quick || !e2e_quick())
            check_case(i);
}

void suite_recompute(void);
void suite_recompute(void)
{
    CU_pSuite s = CU_add_suite("recompute", NULL, NULL);
    CU_add_test(s, "parts of layers: the same results in less memory", test_parts);
}
