/* The same job gives the same losses in any layout.  Layouts are drawn from a seeded generator over tp, sp, its overlap, pp
 * (even and uneven), dp, microbatch, schedule, ZeRO and recompute, on up to eight ranks; each trains twenty AdamW steps and is
 * compared with the single rank:
 *   losses 1e-5 relative; gradient norm 1e-5 at step 1 and 1e-3 later; first-step gradient of every parameter 1e-5 in norm;
 *   final weights 1e-5 in norm over all and 1e-4 per tensor (key biases of GPT-2 apart, see e2e.h).
 * Each layout then runs again with its queues taken in an adversarial order: log and weights must be the same bytes. */

#include "tests/draws.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { LAYOUTS = 22, QUICK_LAYOUTS = 3, STEPS = 20 }; /* per model; two models */

struct layout {
    unsigned tp, pp, dp, microbatch, zero, shard;
    bool sp, overlap;
    const char *schedule, *recompute;
    const char *stages; /* layers of each stage, Megatron's string; NULL = as llmc cuts them */
};

static uint64_t draw(uint64_t *state, uint64_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % n;
}

/* four layers; E embedding, t layer, L loss */
static const char *draw_stages(uint64_t *state, unsigned pp)
{
    static const char *const cuts[5][4] = {
        {0}, {0},
        {"Ett|ttL", "Et|tttL", "Ettt|tL", NULL},
        {"Ett|t|tL", "Et|tt|tL", "Et|t|ttL", NULL},
        {"Et|t|t|tL", NULL, NULL, NULL},
    };
    return cuts[pp][draw(state, 4)];
}

/* tp stays within the heads, not within the key heads */
static struct layout draw_layout(uint64_t *state, unsigned most_tp)
{
    struct layout l = {0};
    do {
        l.tp = (unsigned[]){1, 2, 2, 4}[draw(state, 4)];
        l.pp = (unsigned[]){1, 2, 2, 3, 4}[draw(state, 5)];
        l.dp = (unsigned[]){1, 2, 2, 4, 8}[draw(state, 5)];
        l.microbatch = 1u << draw(state, 3);
    } while (l.tp > most_tp || l.tp * l.pp * l.dp > 8 || l.tp * l.pp * l.dp < 2 || l.dp * l.microbatch > 8);
    l.sp = l.tp > 1 && draw(state, 3);
    l.zero = l.dp > 1 ? (unsigned)draw(state, 4) : 0;
    l.shard = l.dp >= 4 && draw(state, 2) ? 2 : l.dp;
    l.schedule = draw(state, 2) ? "1f1b" : "gpipe";
    l.recompute = draw(state, 2) ? "full" : "none";
    l.stages = draw_stages(state, l.pp);
    l.overlap = l.tp > 1 && *state >> 40 & 1; /* from a bit of the last draw, so that layouts stay what they were */
    return l;
}

static void print_layout(const struct layout *l, char *text, size_t size)
{
    int n = snprintf(text, size, "--set gpus=%u --set tp=%u --set pp=%u --set dp=%u --set microbatch=%u --set zero=%u"
                     " --set sequence_parallel=%s --set schedule=%s --set recompute=%s",
                     l->tp * l->pp * l->dp, l->tp, l->pp, l->dp, l->microbatch, l->zero, l->sp ? "yes" : "no",
                     l->schedule, l->recompute);
    if (l->zero)
        n += snprintf(text + n, size - (size_t)n, " --set shard=%u", l->shard);
    if (l->overlap)
        n += snprintf(text + n, size - (size_t)n, " --set 'overlap=tp with compute'");
    if (l->stages)
        snprintf(text + n, size - (size_t)n, " --set 'layout=\"%s\"'", l->stages);
}

static bool train(const char *folder, const char *plan, const char *model, const char *options)
{
    char log[2 * E2E_PATH];
    snprintf(log, sizeof log, "%s/output", folder);
    return e2e_command(log, "%s/llmrun %s --data tests/reference/%s/tokens.bin --steps %d --log %s/log.jsonl"
                       " --save %s/weights %s", e2e_build(), plan, model, STEPS, folder, folder, options) == 0;
}

static bool plan_and_train(const char *folder, const char *model, const char *layout)
{
    char log[2 * E2E_PATH], plan[2 * E2E_PATH], options[2 * E2E_PATH];
    snprintf(log, sizeof log, "%s/output", folder);
    snprintf(plan, sizeof plan, "%s/plan", folder);
    snprintf(options, sizeof options, "--dump-gradients %s/gradients", folder);
    return e2e_command(log, "%s/llmc plan tests/reference/%s/model.llm topologies/cpu8.xml %s -o %s", e2e_build(), model,
                       layout, plan) == 0
        && train(folder, plan, model, options);
}

/* greatest of all tensors' differences, and that of all tensors together */
static void compare_tensors(const char *a_folder, const char *b_folder, const char *file, double each, double all,
                            const char *layout)
{
    char path[2 * E2E_PATH];
    const char *name;
    struct e2e_tensors a, b;
    snprintf(path, sizeof path, "%s/%s", a_folder, file);
    CU_ASSERT_FATAL(e2e_tensors_read(path, &a));
    snprintf(path, sizeof path, "%s/%s", b_folder, file);
    CU_ASSERT_FATAL(e2e_tensors_read(path, &b));
    e2e_forget_key_biases(&a);
    e2e_forget_key_biases(&b);
    double worst = e2e_worst(&a, &b, &name), together = e2e_difference(&a, &b, NULL);
    CU_ASSERT(worst <= each);
    CU_ASSERT(together <= all);
    if (worst > each || together > all)
        printf("\n    %s: %s: %s off by %.2g in norm, all together %.2g", layout, file, name, worst, together);
    e2e_tensors_free(&a);
    e2e_tensors_free(&b);
}

static void compare_logs(const char *a_folder, const char *b_folder, const char *layout)
{
    char path[2 * E2E_PATH];
    struct e2e_log a, b;
    snprintf(path, sizeof path, "%s/log.jsonl", a_folder);
    CU_ASSERT_FATAL(e2e_log_read(path, &a));
    snprintf(path, sizeof path, "%s/log.jsonl", b_folder);
    CU_ASSERT_FATAL(e2e_log_read(path, &b));
    CU_ASSERT_EQUAL_FATAL(a.steps, STEPS);
    CU_ASSERT_EQUAL_FATAL(b.steps, STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        double loss = e2e_relative(a.loss[i], b.loss[i]), norm = e2e_relative(a.grad_norm[i], b.grad_norm[i]);
        bool fine = loss <= 1e-5 && norm <= (i == 0 ? 1e-5 : 1e-3);
        CU_ASSERT(fine);
        if (!fine)
            printf("\n    %s: step %zu: loss off by %.2g, gradient norm by %.2g", layout, i, loss, norm);
    }
    CU_ASSERT(b.loss[STEPS - 1] < b.loss[0]);
}

static void check_repeated(const char *first, const char *again, const char *layout)
{
    char a[2 * E2E_PATH], b[2 * E2E_PATH];
    struct e2e_log x, y;
    snprintf(a, sizeof a, "%s/weights/model.safetensors", first);
    snprintf(b, sizeof b, "%s/weights/model.safetensors", again);
    bool same = e2e_same_bytes(a, b);
    snprintf(a, sizeof a, "%s/log.jsonl", first);
    snprintf(b, sizeof b, "%s/log.jsonl", again);
    same = same && e2e_log_read(a, &x) && e2e_log_read(b, &y) && x.steps == y.steps
        && !memcmp(x.loss, y.loss, x.steps * sizeof *x.loss) && !memcmp(x.grad_norm, y.grad_norm, x.steps * sizeof *x.loss);
    CU_ASSERT(same);
    if (!same)
        printf("\n    %s: a repeated run differs", layout);
}

static void check_model(const char *model, unsigned most_tp, uint64_t seed)
{
    char alone[E2E_PATH], folder[E2E_PATH], again[E2E_PATH], plan[2 * E2E_PATH], name[64], layout[512], options[64];
    snprintf(name, sizeof name, "layouts/%s-alone", model);
    e2e_folder(alone, name);
    CU_ASSERT_FATAL(plan_and_train(alone, model, "--set gpus=1"));
    uint32_t n = test_draws(LAYOUTS, QUICK_LAYOUTS);
    for (uint32_t i = 0; i < n; i++) {
        struct layout l = draw_layout(&seed, most_tp);
        print_layout(&l, layout, sizeof layout);
        snprintf(name, sizeof name, "layouts/%s-%u", model, i);
        e2e_folder(folder, name);
        snprintf(name, sizeof name, "layouts/%s-%u-again", model, i);
        e2e_folder(again, name);
        bool ran = plan_and_train(folder, model, layout);
        CU_ASSERT(ran);
        if (!ran)
            continue;
        compare_logs(folder, alone, layout);
        compare_tensors(folder, alone, "gradients/gradients.safetensors", 1e-5, 1e-5, layout);
        compare_tensors(folder, alone, "weights/model.safetensors", 1e-4, 1e-5, layout);
        /* every fourth as it was; the others in an adversarial order */
        snprintf(plan, sizeof plan, "%s/plan", folder);
        snprintf(options, sizeof options, "--shuffle-queues %u", i + 1);
        CU_ASSERT(train(again, plan, model, i % 4 == 3 ? "" : options));
        check_repeated(folder, again, layout);
    }
}

static void test_gpt2(void)
{
    check_model("gpt2", 4, 1);
}

static void test_llama(void)
{
    check_model("llama", 4, 2);
}

void suite_layouts(void);
void suite_layouts(void)
{
    CU_pSuite s = CU_add_suite("layouts", NULL, NULL);
    CU_add_test(s, "gpt2: any layout, same losses", test_gpt2);
    CU_add_test(s, "llama: any layout, same losses", test_llama);
}
